/* Preloaded into a process, moves its time of day by the nanoseconds in the file that ACCELSHARE_CLOCK_SHIFT names. The file is read
   at every call, so that the time jumps while the process runs. Clocks that never jump (monotonic, boot time) are left alone. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static const volatile int64_t *shift_ns;

__attribute__((constructor)) static void open_shift(void) {
    const char *path = getenv("ACCELSHARE_CLOCK_SHIFT");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED)
        shift_ns = mapped;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (failed || !shift_ns || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return failed;
    int64_t nanoseconds = now->tv_nsec + *shift_ns % SECOND;
    now->tv_sec += *shift_ns / SECOND + (nanoseconds >= SECOND) - (nanoseconds < 0);
    now->tv_nsec = (nanoseconds + SECOND) % SECOND;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec precise;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise))
        return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *second) {
    struct timespec precise;
    if (clock_gettime(CLOCK_REALTIME, &precise))
        return (time_t)-1;
    if (second)
        *second = precise.tv_sec;
    return precise.tv_sec;
}
