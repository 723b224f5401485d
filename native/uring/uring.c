#include "uring.h"

#include <errno.h>
#include <liburing.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

/* liburing 2.2 does not know these yet */
#ifndef IORING_SETUP_SINGLE_ISSUER
#define IORING_SETUP_SINGLE_ISSUER (1U << 12)
#endif
#ifndef IORING_SETUP_DEFER_TASKRUN
#define IORING_SETUP_DEFER_TASKRUN (1U << 13)
#endif

enum { BATCH = 64 };

struct uring {
    struct io_uring ring;
    uint64_t accepted, retired;
};

/* Best first. A kernel that does not know a flag says -EINVAL.
 *
 * Linux 6.1: completions are worked off only when we ask for them, never by interrupting the arithmetic; in
 * return all calls come from one thread.
 * Linux 5.19: completions wait for the next system call of any kind, instead of an interrupt between cores.
 * Before: each completion interrupts.
 *
 * TASKRUN_FLAG lets a poll see in shared memory, without a system call, that there is something to work off. */
static const unsigned setup_ladder[] = {
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
    IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
    0,
};

static bool can_read(struct io_uring *ring)
{
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    bool can = probe && io_uring_opcode_supported(probe, IORING_OP_READ);

    io_uring_free_probe(probe);
    return can;
}

int uring_open(unsigned depth, struct uring **out, unsigned *flags)
{
    struct uring *ring = calloc(1, sizeof *ring);
    int result = -EINVAL;

    if (!ring)
        return -ENOMEM;
    for (size_t i = 0; i < sizeof setup_ladder / sizeof *setup_ladder && result == -EINVAL; i++)
        result = io_uring_queue_init(depth, &ring->ring, setup_ladder[i]);
    if (result == 0 && !can_read(&ring->ring)) {
        io_uring_queue_exit(&ring->ring);
        result = -ENOSYS;
    }
    if (result < 0) {
        free(ring);
        return result;
    }
    *out = ring;
    *flags = ring->ring.flags;
    return 0;
}

void uring_close(struct uring *ring)
{
    io_uring_queue_exit(&ring->ring);
    free(ring);
}

int uring_register_buffers(struct uring *ring, uint64_t address, uint64_t nbytes, uint64_t step)
{
    size_t count = (nbytes + step - 1) / step;
    struct iovec *buffers = calloc(count, sizeof *buffers);
    int result;

    if (!buffers)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        uint64_t left = nbytes - i * step;

        buffers[i].iov_base = (void *)(uintptr_t)(address + i * step);
        buffers[i].iov_len = left < step ? left : step;
    }
    result = io_uring_register_buffers(&ring->ring, buffers, count);
    free(buffers);
    return result;
}

int uring_register_files(struct uring *ring, const int *fds, unsigned count)
{
    return io_uring_register_files(&ring->ring, fds, count);
}

static void prepare(struct io_uring_sqe *sqe, const struct uring_read *read)
{
    void *address = (void *)(uintptr_t)read->address;

    if (read->buffer >= 0)
        io_uring_prep_read_fixed(sqe, read->file, address, read->nbytes, read->offset, read->buffer);
    else
        io_uring_prep_read(sqe, read->file, address, read->nbytes, read->offset);
    if (read->flags & URING_FIXED_FILE)
        sqe->flags |= IOSQE_FIXED_FILE;
    if (read->flags & URING_ASYNC)
        sqe->flags |= IOSQE_ASYNC;
    sqe->user_data = read->number;
}

int uring_submit(struct uring *ring, const struct uring_read *reads, unsigned count)
{
    int result;

    for (unsigned i = 0; i < count; i++) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&ring->ring);

        if (!sqe)
            break;
        prepare(sqe, &reads[i]);
        ring->accepted++;
    }
    result = io_uring_submit(&ring->ring);
    return result < 0 ? result : 0;
}

uint64_t uring_accepted(const struct uring *ring)
{
    return ring->accepted;
}

uint64_t uring_in_flight(const struct uring *ring)
{
    return ring->accepted - ring->retired;
}

static int copy_ready(struct uring *ring, struct uring_done *done, unsigned capacity)
{
    struct io_uring_cqe *ready[BATCH];
    /* also works off what the kernel deferred, if TASKRUN_FLAG says that there is something */
    unsigned count = io_uring_peek_batch_cqe(&ring->ring, ready, capacity < BATCH ? capacity : BATCH);

    for (unsigned i = 0; i < count; i++) {
        done[i].number = ready[i]->user_data;
        done[i].result = ready[i]->res;
    }
    return (int)count;
}

int uring_reap(struct uring *ring, struct uring_done *done, unsigned capacity, int wait)
{
    int count = copy_ready(ring, done, capacity);
    int result = 0;

    if (count > 0)
        return count;
    if (wait)
        result = io_uring_submit_and_wait(&ring->ring, 1);
    else if (io_uring_sq_ready(&ring->ring)) /* left over from a submit that the kernel put off */
        result = io_uring_submit(&ring->ring);
    else
        return 0;
    return result < 0 ? result : copy_ready(ring, done, capacity);
}

void uring_advance(struct uring *ring, unsigned count)
{
    io_uring_cq_advance(&ring->ring, count);
    ring->retired += count;
}

static int64_t nanoseconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Hands over `count` reads at the time `*now`, which it brings up to date. */
static int submit_noted(struct uring *ring, struct uring_run *run, unsigned count, int64_t *now)
{
    uint64_t accepted = ring->accepted;
    int result = uring_submit(ring, run->reads + run->submitted, count);
    int64_t begin = *now;

    *now = nanoseconds();
    for (; accepted < ring->accepted; accepted++, run->submitted++)
        run->notes[run->submitted] = (struct uring_note){.begin = begin, .submitted = *now};
    return result;
}

int uring_saturate(struct uring *ring, struct uring_run *run)
{
    struct uring_done done[BATCH];
    int64_t now = nanoseconds();

    for (;;) {
        unsigned room = run->depth - (run->submitted - run->finished);
        int result = 0;

        if (room > run->count - run->submitted)
            room = run->count - run->submitted;
        if (now >= run->deadline && run->submitted)
            room = 0;
        while (room && result >= 0) {
            unsigned batch = room < run->batch ? room : run->batch;

            result = submit_noted(ring, run, batch, &now);
            room -= batch;
        }
        if (result < 0 || run->submitted == run->finished)
            return result;
        result = uring_reap(ring, done, BATCH, 1);
        if (result < 0)
            return result;
        now = nanoseconds();
        for (int i = 0; i < result; i++) {
            run->notes[done[i].number].end = now;
            run->notes[done[i].number].result = done[i].result;
        }
        uring_advance(ring, result);
        run->finished += result;
    }
}
