/* Looking up sixty-four bytes at once: tables of 256 entries in registers, for processors with AVX-512 VBMI.
 *
 * An entry of 23 bits lies in three planes of bytes. A plane is four registers; two permutations look up its
 * lower and its upper half for 64 rows, the index's highest bit chooses. A plane's bytes are summed in words
 * of 16 bits without being unpacked: `all` adds them in pairs, even + 256 * odd modulo 2^16, `odd` the odd
 * ones; 192 bytes do not overflow a word, so that even = all - 256 * odd is exact. */
#include "vq.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi")
#endif
#include <immintrin.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

enum { PLANES = 3, HALF = VQ_ROWS / 2 };

struct byte_sums {
    __m512i all[PLANES], odd[PLANES];
};

INLINE __mmask64 first_lanes(long count)
{
    return count >= HALF ? ~0ull : count <= 0 ? 0 : (1ull << count) - 1;
}

INLINE void add_bytes(struct byte_sums *sums, int plane, __m512i bytes)
{
    sums->all[plane] = _mm512_add_epi16(sums->all[plane], bytes);
    sums->odd[plane] = _mm512_add_epi16(sums->odd[plane], _mm512_srli_epi16(bytes, 8));
}

/* 64 sums of 32 bits. */
INLINE void join_planes(const struct byte_sums *sums, uint32_t *out)
{
    uint32_t joined[HALF] = {0};
    for (int plane = 0; plane < PLANES; plane++) {
        uint16_t odd[HALF / 2], even[HALF / 2];
        const __m512i rest = _mm512_sub_epi16(sums->all[plane], _mm512_slli_epi16(sums->odd[plane], 8));
        _mm512_storeu_si512(odd, sums->odd[plane]);
        _mm512_storeu_si512(even, rest);
        for (int i = 0; i < HALF / 2; i++) {
            joined[2 * i] += (uint32_t)even[i] << 8 * plane;
            joined[2 * i + 1] += (uint32_t)odd[i] << 8 * plane;
        }
    }
    memcpy(out, joined, sizeof joined);
}

/* A plane of a table. */
struct plane {
    __m512i part[4];
};

INLINE struct plane load_plane(const unsigned char *tables, int plane)
{
    const __m512i *const at = (const __m512i *)(const void *)(tables + plane * VQ_CENTROIDS);
    return (struct plane){{_mm512_load_si512(at), _mm512_load_si512(at + 1), _mm512_load_si512(at + 2),
                           _mm512_load_si512(at + 3)}};
}

INLINE void look_up(struct byte_sums *sums, int plane, const struct plane *table, __m512i indices)
{
    const __m512i lower = _mm512_permutex2var_epi8(table->part[0], indices, table->part[1]);
    const __m512i upper = _mm512_permutex2var_epi8(table->part[2], indices, table->part[3]);
    add_bytes(sums, plane, _mm512_mask_blend_epi8(_mm512_movepi8_mask(indices), lower, upper));
}

INLINE void clear(struct byte_sums *sums)
{
#pragma GCC unroll 3
    for (int plane = 0; plane < PLANES; plane++)
        sums->all[plane] = sums->odd[plane] = _mm512_setzero_si512();
}

void vq_look_up_planes(long count, long rows, const unsigned char *indices, const unsigned char *tables,
                       uint32_t *sums)
{
    const __mmask64 first = first_lanes(rows), second = first_lanes(rows - HALF);
    struct byte_sums a, b;
    uint32_t joined[VQ_ROWS];
    clear(&a);
    clear(&b);
    for (long i = 0; i < count; i++, indices += rows, tables += VQ_PLANES_BYTES) {
        const __m512i low = _mm512_maskz_loadu_epi8(first, indices);
        const __m512i high = _mm512_maskz_loadu_epi8(second, indices + HALF);
#pragma GCC unroll 3
        for (int plane = 0; plane < PLANES; plane++) {
            const struct plane table = load_plane(tables, plane);
            look_up(&a, plane, &table, low);
            look_up(&b, plane, &table, high);
        }
    }
    join_planes(&a, joined);
    join_planes(&b, joined + HALF);
    memcpy(sums, joined, (unsigned long)rows * sizeof *sums);
}

void vq_look_up_two_blocks(long count, const unsigned char *indices, long stride, const unsigned char *tables,
                           uint32_t *sums)
{
    struct byte_sums a, b, c, d;
    clear(&a);
    clear(&b);
    clear(&c);
    clear(&d);
    for (long i = 0; i < count; i++, indices += VQ_ROWS, tables += VQ_PLANES_BYTES) {
#pragma GCC unroll 3
        for (int plane = 0; plane < PLANES; plane++) {
            const struct plane table = load_plane(tables, plane);
            look_up(&a, plane, &table, _mm512_loadu_si512(indices));
            look_up(&b, plane, &table, _mm512_loadu_si512(indices + HALF));
            look_up(&c, plane, &table, _mm512_loadu_si512(indices + stride));
            look_up(&d, plane, &table, _mm512_loadu_si512(indices + stride + HALF));
        }
    }
    join_planes(&a, sums);
    join_planes(&b, sums + HALF);
    join_planes(&c, sums + VQ_ROWS);
    join_planes(&d, sums + VQ_ROWS + HALF);
}
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
void vq_look_up_planes(long count, long rows, const unsigned char *indices, const unsigned char *tables,
                       uint32_t *sums)
{
    (void)count, (void)rows, (void)indices, (void)tables, (void)sums; /* never called here */
}
void vq_look_up_two_blocks(long count, const unsigned char *indices, long stride, const unsigned char *tables,
                           uint32_t *sums)
{
    (void)count, (void)indices, (void)stride, (void)tables, (void)sums; /* never called here */
}
#endif
