// First process of a machine with one CPU: runs each program under the kernel's trace, and writes the traces
// to QEMU's debug console (port 0xe9).
//
// A program is a few tasks, which all begin at one instant of the monotonic clock and are killed at another
// one. They compute by counts of instructions, so that each does the same in every run.

#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TRACING "/sys/kernel/tracing/"

static const char *const events[] = {
    "sched/sched_switch", "sched/sched_wakeup", "sched/sched_wakeup_new",
    "sched/sched_stat_runtime", "syscalls/sys_enter_sched_yield", "irq_vectors/local_timer_entry",
};

static int64_t start_us; // of the program, by the monotonic clock
static int pipes[6][2];
static sem_t *semaphores; // shared
static unsigned long seed;

static void die(const char *what)
{
    perror(what);
    reboot(RB_POWER_OFF);
}

// QEMU counts an instruction as a ns.
static void compute(long us)
{
    for (long rounds = us * 500; rounds; rounds--)
        __asm__ volatile("" : "+r"(rounds));
}

static void sleep_until(int64_t us)
{
    struct timespec at = { us / 1000000, us % 1000000 * 1000 };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, 0))
        ;
}

static void give(int pipe)
{
    if (write(pipes[pipe][1], "", 1) != 1)
        die("write");
}

static void take(int pipe)
{
    char byte;
    if (read(pipes[pipe][0], &byte, 1) != 1)
        die("read");
}

// The same sequence in every run.
static long between(long low, long high)
{
    seed = seed * 6364136223846793005 + 1442695040888963407;
    return low + (long)((seed >> 33) % (high - low + 1));
}

static void hog(int a, int b)
{
    for (;;)
        compute(1000);
}

// Computes for `run` us at every multiple of `period` us.
static void periodic(int period, int run)
{
    for (int64_t at = start_us;; at += period) {
        sleep_until(at);
        compute(run);
    }
}

static void yielder(int run, int b)
{
    for (;;) {
        compute(run);
        sched_yield();
    }
}

static void ping(int out, int in)
{
    for (;;) {
        compute(40);
        give(out);
        take(in);
    }
}

static void pong(int in, int out)
{
    for (;;) {
        take(in);
        compute(60);
        give(out);
    }
}

// Hands on what comes through a pipe to the next one after `run` us.
static void stage(int in, int run)
{
    for (;;) {
        take(in);
        compute(run);
        give(in + 1);
    }
}

static void source(int out, int period)
{
    for (int64_t at = start_us;; at += period) {
        sleep_until(at);
        compute(100);
        give(out);
    }
}

static void sink(int in, int run)
{
    for (;;) {
        take(in);
        compute(run);
    }
}

// Starts a child every `period` us, which computes for `run` us and ends.
static void parent(int period, int run)
{
    signal(SIGCHLD, SIG_IGN); // nobody waits for them
    for (int64_t at = start_us;; at += period) {
        sleep_until(at);
        compute(50);
        if (!fork()) {
            compute(run);
            _exit(0);
        }
    }
}

// Starts three children, and the next three when all have ended.
static void generations(int run, int b)
{
    for (;;) {
        for (int child = 0; child < 3; child++)
            if (!fork()) {
                compute(run * (child + 1));
                _exit(0);
            }
        while (wait(0) > 0)
            ;
        compute(300);
    }
}

// Holds the semaphore for `inside` us, and is without it for `outside` us.
static void holder(int inside, int outside)
{
    for (;;) {
        sem_wait(semaphores);
        compute(inside);
        sem_post(semaphores);
        compute(outside);
    }
}

// Computes and sleeps for times between these and four times as long.
static void bursty(int run, int pause)
{
    int64_t at = start_us;
    for (;;) {
        compute(between(run, 4 * run));
        at += between(pause, 4 * pause);
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        int64_t now_us = now.tv_sec * 1000000LL + now.tv_nsec / 1000;
        at = at > now_us ? at : now_us + pause;
        sleep_until(at);
    }
}

struct task {
    void (*body)(int, int);
    int a, b, nice;
};

static const struct program {
    const char *name;
    int length_ms;
    struct task tasks[10];
} programs[] = {
    { "equal-hogs", 1000, { { hog }, { hog }, { hog } } },
    { "nice-hogs", 1000, { { hog, .nice = 0 }, { hog, .nice = 5 }, { hog, .nice = -5 }, { hog, .nice = 1 } } },
    { "many-hogs", 1000, { { hog }, { hog }, { hog }, { hog, .nice = 3 }, { hog, .nice = 3 }, { hog, .nice = 7 },
                           { hog, .nice = -2 }, { hog, .nice = 19 } } },
    { "sleeper", 1000, { { hog }, { hog }, { periodic, 10000, 1000 } } },
    { "sleepers", 1000, { { hog }, { hog }, { periodic, 3000, 300 }, { periodic, 7000, 900 },
                          { periodic, 11000, 2500 }, { periodic, 13000, 200 } } },
    { "nice-sleepers", 1000, { { hog }, { hog, .nice = 4 }, { periodic, 5000, 700, -10 },
                               { periodic, 6100, 500, 10 }, { periodic, 9700, 1500, -3 } } },
    { "ping-pong", 300, { { hog }, { ping, 0, 1 }, { pong, 0, 1 } } },
    { "pipeline", 500, { { hog }, { source, 0, 2500 }, { stage, 0, 300 }, { stage, 1, 500 }, { sink, 2, 200 } } },
    { "yielders", 500, { { yielder, 250 }, { yielder, 400 }, { yielder, 1100 }, { hog } } },
    { "yield-and-sleep", 500, { { yielder, 300 }, { yielder, 700, 0, 2 }, { periodic, 4300, 600 },
                                { periodic, 2900, 150, -4 } } },
    { "forks", 1000, { { hog }, { hog, .nice = 2 }, { parent, 9000, 3000 } } },
    { "generations", 1000, { { hog }, { generations, 900 }, { generations, 1300, .nice = 1 } } },
    { "semaphore", 500, { { holder, 500, 300 }, { holder, 700, 200 }, { holder, 300, 900 }, { hog },
                          { holder, 400, 400, 3 } } },
    { "bursts", 1000, { { bursty, 300, 500 }, { bursty, 700, 1500 }, { bursty, 1500, 2500 }, { bursty, 200, 900, -5 },
                        { bursty, 2500, 4000, 5 }, { hog, .nice = 1 } } },
    { "server", 500, { { source, 0, 1700 }, { sink, 0, 900 }, { sink, 0, 900 }, { sink, 0, 900 }, { hog, .nice = 10 },
                       { periodic, 8000, 2000 } } },
};

static void put(const char *path, const char *value)
{
    int to = open(path, O_WRONLY | O_TRUNC);
    if (to < 0 || write(to, value, strlen(value)) < 0)
        die(path);
    close(to);
}

static void set(const char *file, const char *value)
{
    char path[200];
    snprintf(path, sizeof path, TRACING "%s", file);
    put(path, value);
}

static void emit(const char *text, size_t length)
{
    __asm__ volatile("rep outsb" : "+S"(text), "+c"(length) : "d"(0xe9) : "memory");
}

static void emit_file(const char *path)
{
    static char text[1 << 20];
    int from = open(path, O_RDONLY);
    if (from < 0)
        die(path);
    for (ssize_t length; (length = read(from, text, sizeof text)) > 0;)
        emit(text, length);
    close(from);
}

static void run(const struct program *program)
{
    pid_t pids[10];
    int count = 0;
    for (int at = 0; at < 6; at++)
        if (pipe(pipes[at]))
            die("pipe");
    sem_init(semaphores, 1, 1);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    start_us = now.tv_sec * 1000000LL + now.tv_nsec / 1000 + 200000;
    set("trace", "");
    set("tracing_on", "1");
    for (const struct task *task = program->tasks; task->body; task++, count++) {
        setpriority(PRIO_PROCESS, 0, task->nice); // which the child inherits
        pids[count] = fork();
        if (!pids[count]) {
            seed = count + 1;
            sleep_until(start_us + 130 * count);
            task->body(task->a, task->b);
        }
        setpriority(PRIO_PROCESS, 0, 0);
        // It goes to sleep alone on the CPU, so that it neither owes nor is owed anything.
        usleep(2000);
    }
    // What threads of the kernel are owed is settled when they run alone.
    put("/proc/sys/vm/stat_refresh", "1");
    usleep(5000);
    socket(AF_X25, SOCK_DGRAM, 0); // has a worker that belongs to no CPU look for a module
    usleep(5000);
    for (int child = 0; child < 2; child++) {
        if (!fork())
            _exit(0);
        waitpid(-1, 0, 0);
        usleep(20000);
    }
    set("trace_marker", "start");
    sleep_until(start_us + program->length_ms * 1000);
    set("tracing_on", "0");
    while (count--)
        kill(pids[count], SIGKILL);
    while (wait(0) > 0) // of the children that a task has left
        ;
    char head[100];
    emit(head, snprintf(head, sizeof head, "== %s\n", program->name));
    emit_file(TRACING "trace");
    for (int at = 0; at < 6; at++) {
        close(pipes[at][0]);
        close(pipes[at][1]);
    }
}

int main(void)
{
    mkdir("/proc", 0755);
    mkdir("/sys", 0755);
    mount("proc", "/proc", "proc", 0, 0);
    mount("sysfs", "/sys", "sysfs", 0, 0);
    mount("tracefs", TRACING, "tracefs", 0, 0);
    if (mount("debugfs", "/sys/kernel/debug", "debugfs", 0, 0) || iopl(3))
        die("init");
    mlockall(MCL_CURRENT | MCL_FUTURE);
    // Threads of the kernel run less often: what they are owed from before a recording is not in it.
    put("/proc/sys/vm/stat_interval", "3600");
    put("/proc/sys/vm/compaction_proactiveness", "0");
    semaphores = mmap(0, sizeof *semaphores, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    emit_file("/proc/version");
    emit_file("/sys/kernel/debug/sched/preempt");
    emit_file("/sys/kernel/debug/sched/base_slice_ns");
    emit_file("/sys/kernel/debug/sched/features");
    sleep(5); // what booting has postponed is done

    set("tracing_on", "0");
    set("trace_clock", "x86-tsc");
    set("buffer_size_kb", "16384");
    for (size_t event = 0; event < sizeof events / sizeof *events; event++) {
        char path[100];
        snprintf(path, sizeof path, "events/%s/enable", events[event]);
        set(path, "1");
    }
    for (size_t program = 0; program < sizeof programs / sizeof *programs; program++)
        run(&programs[program]);
    emit("== done\n", 8);
    reboot(RB_POWER_OFF);
}
