/*
 * A ring that reads: many reads in one call, many completions in one call.
 *
 * Every function returns a count or 0 if it worked and -errno if it did not. None loops over -EINTR, so a
 * signal reaches the caller at once. A ring is used by the thread that opened it. No global state.
 */
#ifndef URINGINFER_URING_H
#define URINGINFER_URING_H

#include <stdint.h>

/* cdef: from here on the builder hands the text to cffi */
struct uring;

/* One read. `file` is a descriptor, or an index of the registered files if URING_FIXED_FILE is set; `buffer`
 * is an index of the registered buffers, or -1. */
struct uring_read {
    uint64_t number, offset, address;
    uint32_t nbytes;
    int32_t file, buffer;
    uint32_t flags;
};

/* One completion: the read's number, and the bytes it moved or -errno. */
struct uring_done {
    uint64_t number;
    int32_t result;
};

enum { URING_FIXED_FILE = 1, URING_ASYNC = 2 }; /* flags of a read */

/* Opens a ring for `depth` reads in flight, with the best IORING_SETUP_* that the kernel takes: `flags`.
 * -ENOSYS also where the kernel has rings but no IORING_OP_READ (before Linux 5.6). */
int uring_open(unsigned depth, struct uring **ring, unsigned *flags);

/* Releases the ring. Reads must not be in flight: their memory would be written after the return. */
void uring_close(struct uring *ring);

/* Pins `nbytes` bytes at `address` once for all reads, in buffers of `step` bytes (the last may be shorter):
 * buffer i starts at address + i * step. All of them or none. */
int uring_register_buffers(struct uring *ring, uint64_t address, uint64_t nbytes, uint64_t step);

/* Registers `count` descriptors; registered file i is fds[i]. */
int uring_register_files(struct uring *ring, const int *fds, unsigned count);

/* Queues up to `count` reads and submits them. How many were queued shows in uring_accepted: those belong to
 * the ring even if the call returns -EAGAIN, -EBUSY or -EINTR, and go to the kernel with a later call. */
int uring_submit(struct uring *ring, const struct uring_read *reads, unsigned count);

/* How many reads were queued since the ring was opened, and how many of them uring_advance has not taken off. */
uint64_t uring_accepted(const struct uring *ring);
uint64_t uring_in_flight(const struct uring *ring);

/* Copies up to `capacity` completions to `done`; with `wait`, sleeps until there is one. They stay in the ring,
 * and are copied again, until uring_advance. */
int uring_reap(struct uring *ring, struct uring_done *done, unsigned capacity, int wait);

/* Takes the first `count` completions off the ring. */
void uring_advance(struct uring *ring, unsigned count);

/* When a read began to be handed over, when it was, when its result was there: CLOCK_MONOTONIC, ns. */
struct uring_note {
    int64_t begin, submitted, end, result;
};

/* `count` reads, numbered from 0 and noted in notes[number], of which `depth` are kept in flight until
 * `deadline` (but one read at least); one call of the kernel takes up to `batch` of them. `submitted` and
 * `finished` start at 0 and say how far it came. */
struct uring_run {
    const struct uring_read *reads;
    struct uring_note *notes;
    int64_t deadline;
    unsigned count, depth, batch, submitted, finished;
};

/* Measures: runs to the deadline and waits for the rest. After -EINTR, -EAGAIN or -EBUSY call it again. */
int uring_saturate(struct uring *ring, struct uring_run *run);

/* cdef: end */
#endif
