// First process of a guest: both its vCPUs compute all the time, or with mode=sleep on the kernel's command
// line, compute for a moment and sleep for 300 us in turn.

#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>

static int sleeps;

static void compute(long rounds)
{
    for (long at = 0; at < rounds; at++)
        __asm__ volatile("" : "+r"(at));
}

static void *run(void *cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((long)cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
    struct timespec pause = { 0, 300000 };
    for (;;) {
        compute(16000);
        if (sleeps)
            nanosleep(&pause, 0);
    }
}

int main(void)
{
    char line[2048] = "";
    mkdir("/proc", 0755);
    mount("proc", "/proc", "proc", 0, 0);
    FILE *file = fopen("/proc/cmdline", "r");
    if (file && fgets(line, sizeof line, file))
        sleeps = strstr(line, "mode=sleep") != 0;
    mlockall(MCL_CURRENT | MCL_FUTURE);
    puts("guest: ready");
    fflush(stdout);
    pthread_t other;
    pthread_create(&other, 0, run, (void *)1L);
    run((void *)0L);
}
