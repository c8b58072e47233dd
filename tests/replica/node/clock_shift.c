/* Shifts the wall clock of a process: preloaded, it adds the seconds in the file that CLOCK_SHIFT names. Other
   clocks are as they were. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *shift;
static int (*real_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void
begin(void)
{
    real_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("CLOCK_SHIFT");
    int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED)
        shift = mapped;
}

int
clock_gettime(clockid_t clock, struct timespec *time)
{
    if (real_gettime == NULL)
        begin();
    int result = real_gettime(clock, time);
    if (result == 0 && clock == CLOCK_REALTIME && shift != NULL)
        time->tv_sec += *shift;
    return result;
}

time_t
time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL)
        *out = now.tv_sec;
    return now.tv_sec;
}
