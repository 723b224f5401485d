/* Gated feed-forward networks, down(act(gate(x)) * up(x)), many in one call: the routed experts of a layer.
 *
 * One parallel region serves them all. Threads draw tasks, ranges of rows, from one counter: the first halves
 * (gate, up and activation) of network n, then the second halves (down) of network n - 1. A second half needs
 * all first halves of its network; all of those were drawn before it, by threads that run, and with several
 * networks they are over long before. So hardly anybody ever waits, and there is no barrier to sleep at.
 * Every element is computed as the single products compute it, bit for bit. */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>

#include "product.h"

enum { GATE, UP, DOWN };
enum { SHORT_WAIT = 1 << 10 /* looks at a flag before giving the processor away */ };

struct network {
    struct product product[3];
    float *gate, *up; /* [tokens, inner]; the gated product takes the place of `gate` */
    float *room;      /* for the input of `down` */
    atomic_long left; /* first halves that are not done */
    atomic_int ready; /* whether `down` may begin */
};

struct batch {
    const struct simd_ops *ops;
    const struct kernels_gated *shape;
    const struct kernels_network *given;
    const struct format_ops *form[3];
    struct network *networks;
    long hidden, inner, outer;
    long first_turn, first_turns, second_turn, second_turns;
};

static void add_bias(const struct product *p, const float *bias, long first, long last)
{
    for (long t = 0; bias && t < p->tokens; t++)
        for (long i = first; i < last; i++)
            p->out[t * p->out_stride + i] += bias[i];
}

static void multiply(const struct batch *b, long number, int part, long first, long last, float *scratch)
{
    const struct product *const p = &b->networks[number].product[part];
    b->form[part]->rows(p, first, last, scratch);
    add_bias(p, b->given[number].bias[part], first, last);
}

static void first_half(const struct batch *b, long number, long turn, float *scratch)
{
    const struct kernels_gated *const s = b->shape;
    struct network *const n = &b->networks[number];
    const long first = turn * b->first_turn, end = first + b->first_turn;
    const long last = end < b->inner ? end : b->inner;
    multiply(b, number, GATE, first, last, scratch);
    multiply(b, number, UP, first, last, scratch);
    for (long t = 0; t < s->tokens; t++) {
        float *const gate = n->gate + t * b->inner + first;
        b->ops->gated(s->kind, last - first, gate, n->up + t * b->inner + first, s->limit, s->alpha, gate);
    }
    if (atomic_fetch_sub(&n->left, 1) == 1) {
        set_input(&n->product[DOWN], b->form[DOWN],
                  prepare(b->ops, b->form[DOWN], s->tokens, b->inner, n->gate, b->inner, n->room));
        atomic_store(&n->ready, 1);
    }
}

static void second_half(const struct batch *b, long number, long turn, float *scratch)
{
    const long first = turn * b->second_turn, end = first + b->second_turn;
    for (long looks = 0; !atomic_load(&b->networks[number].ready); looks++)
        if (looks >= SHORT_WAIT)
            sched_yield();
    multiply(b, number, DOWN, first, end < b->outer ? end : b->outer, scratch);
}

static void work(const struct batch *b, long count, atomic_long *next, float *scratch)
{
    const long round = b->first_turns + b->second_turns;
    for (long task; (task = atomic_fetch_add(next, 1)) < (count + 1) * round;) {
        const long number = task / round, turn = task % round;
        if (turn < b->first_turns && number < count)
            first_half(b, number, turn, scratch);
        else if (turn >= b->first_turns && number > 0)
            second_half(b, number - 1, turn - b->first_turns, scratch);
    }
}

int kernels_gated_networks(int simd, int threads, const struct kernels_gated *shape, long count,
                           const struct kernels_network *given)
{
    const struct kernels_matrix *const *const matrix = shape->matrix;
    struct batch b = {.ops = simd_ops(simd), .shape = shape, .given = given,
                      .hidden = matrix[GATE]->cols, .inner = matrix[GATE]->rows, .outer = matrix[DOWN]->rows};
    const long tokens = shape->tokens, products = count * tokens * b.inner * (2 * b.hidden + b.outer);
    const int team = products < SMALL_PRODUCT ? 1 : threads, shares = matrix[GATE]->format == matrix[UP]->format;
    const long per_thread = scratch_floats(tokens);
    long room[3];
    for (int part = GATE; part <= DOWN; part++) {
        b.form[part] = b.ops->formats[matrix[part]->format];
        room[part] = part == UP && shares ? 0 : input_floats(b.form[part], tokens, matrix[part]->cols, matrix[part]->cols);
    }
    b.first_turn = rows_per_turn(b.inner, team);
    b.first_turns = (b.inner + b.first_turn - 1) / b.first_turn;
    b.second_turn = rows_per_turn(b.outer, team);
    b.second_turns = (b.outer + b.second_turn - 1) / b.second_turn;
    const long each = 2 * tokens * b.inner + room[GATE] + room[UP] + room[DOWN];
    float *const floats = new_floats(team * per_thread + count * each);
    b.networks = malloc((unsigned long)count * sizeof *b.networks);
    if (!floats || !b.networks) {
        free(b.networks);
        free(floats);
        return -ENOMEM;
    }
    const float *gate = NULL, *up = NULL;
    for (long i = 0; i < count; i++) {
        struct network *const n = &b.networks[i];
        n->gate = floats + team * per_thread + i * each;
        n->up = n->gate + tokens * b.inner;
        float *const gate_room = n->up + tokens * b.inner, *const up_room = gate_room + room[GATE];
        n->room = up_room + room[UP];
        for (int part = GATE; part <= DOWN; part++) {
            struct product *const p = &n->product[part];
            *p = new_product(b.form[part], matrix[part], given[i].data[part], tokens);
            p->out = part == GATE ? n->gate : part == UP ? n->up : given[i].out;
            p->out_stride = part == DOWN ? b.outer : b.inner;
        }
        if (!i || given[i].x != given[i - 1].x) { /* the experts of a single token have one x */
            gate = prepare(b.ops, b.form[GATE], tokens, b.hidden, given[i].x, b.hidden, gate_room);
            up = shares ? gate
                        : prepare(b.ops, b.form[UP], tokens, b.hidden, given[i].x, b.hidden, up_room);
        }
        set_input(&n->product[GATE], b.form[GATE], gate);
        set_input(&n->product[UP], b.form[UP], up);
        atomic_init(&n->left, b.first_turns);
        atomic_init(&n->ready, 0);
    }
    atomic_long next = 0;
#pragma omp parallel num_threads(team)
    work(&b, count, &next, floats + omp_get_thread_num() * per_thread);
    free(b.networks);
    free(floats);
    return 0;
}
