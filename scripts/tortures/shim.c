/* Preloaded into a Python process: counts the system calls that change files, and at a chosen one kills the
 * process, fails, or writes half of what was asked. Between two of them nothing on the drive changes, so a
 * kill at each of them is a kill at every system call.
 *
 * Not armed, it does nothing. The counter is the process' own, whatever thread calls. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { OFF = 0, COUNT = 1, KILL = 2, FAIL = 3, HALF = 4 };

static atomic_int mode = OFF;
static atomic_long calls = 0;
static long fatal = -1;
static int failure = 0;

void shim_arm(int what, long at, int number)
{
    fatal = at;
    failure = number;
    atomic_store(&calls, 0);
    atomic_store(&mode, what);
}

long shim_calls(void)
{
    return atomic_load(&calls);
}

/* 0: go on; 1: fail with errno set; 2: do half. Does not return where the process is to die. */
static int judge(void)
{
    int what = atomic_load(&mode);
    if (what == OFF)
        return 0;
    if (atomic_fetch_add(&calls, 1) != fatal)
        return 0;
    if (what == KILL) {
        kill(getpid(), SIGKILL);
        for (;;)
            pause();
    }
    if (what == FAIL) {
        errno = failure;
        return 1;
    }
    return what == HALF ? 2 : 0;
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) \
        real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

#define WRAP(name, parameters, arguments, ...) \
    int name parameters \
    { \
        REAL(int, #name, __VA_ARGS__); \
        return judge() == 1 ? -1 : real arguments; \
    }

WRAP(rename, (const char *from, const char *to), (from, to), const char *, const char *)
WRAP(renameat, (int a, const char *from, int b, const char *to), (a, from, b, to), int, const char *, int,
     const char *)
WRAP(renameat2, (int a, const char *from, int b, const char *to, unsigned flags), (a, from, b, to, flags), int,
     const char *, int, const char *, unsigned)
WRAP(unlink, (const char *path), (path), const char *)
WRAP(unlinkat, (int directory, const char *path, int flags), (directory, path, flags), int, const char *, int)
WRAP(rmdir, (const char *path), (path), const char *)
WRAP(mkdir, (const char *path, mode_t bits), (path, bits), const char *, mode_t)
WRAP(fsync, (int fd), (fd), int)
WRAP(fdatasync, (int fd), (fd), int)
WRAP(ftruncate, (int fd, off_t length), (fd, length), int, off_t)
WRAP(ftruncate64, (int fd, off_t length), (fd, length), int, off_t)

/* These two return the error's number. */
int posix_fallocate(int fd, off_t offset, off_t length)
{
    REAL(int, "posix_fallocate", int, off_t, off_t);
    return judge() == 1 ? errno : real(fd, offset, length);
}

int posix_fallocate64(int fd, off_t offset, off_t length)
{
    REAL(int, "posix_fallocate64", int, off_t, off_t);
    return judge() == 1 ? errno : real(fd, offset, length);
}

ssize_t write(int fd, const void *data, size_t length)
{
    REAL(ssize_t, "write", int, const void *, size_t);
    struct stat status;
    /* pipes to the parent and terminals are no files */
    int verdict = atomic_load(&mode) && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) ? judge() : 0;
    return verdict == 1 ? -1 : real(fd, data, verdict == 2 && length > 1 ? length / 2 : length);
}

#define PWRITE(name) \
    ssize_t name(int fd, const void *data, size_t length, off_t offset) \
    { \
        REAL(ssize_t, #name, int, const void *, size_t, off_t); \
        int verdict = judge(); \
        size_t half = length / 2 / 4096 * 4096; /* direct writes are of whole blocks */ \
        return verdict == 1 ? -1 : real(fd, data, verdict == 2 && half ? half : length, offset); \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

#define OPEN(name) \
    int name(const char *path, int flags, ...) \
    { \
        REAL(int, #name, const char *, int, ...); \
        mode_t bits = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_list list; \
            va_start(list, flags); \
            bits = va_arg(list, mode_t); \
            va_end(list); \
        } \
        if (flags & (O_CREAT | O_TRUNC) && judge() == 1) \
            return -1; \
        return real(path, flags, bits); \
    }
OPEN(open)
OPEN(open64)
