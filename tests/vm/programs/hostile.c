/*
 * The program of a hostile user. It passes for the monitor of a VM if it is called by the path of one.
 *
 *   hostile as UID PROGRAM ...         becomes this program, as this user, with all limits at their highest
 *   hostile vm THREADS FILES MS ...    so many threads with names of vCPUs and open files; ends after MS, if that is not 0
 *   hostile turn PROGRAM ...           such a thread, and after SIGUSR1 this program
 *   hostile many COUNT BESIDE PROGRAM ...  starts it so often, so many at a time
 *   hostile take PID PROGRAM ...       forks until a child has this number, which becomes the program
 *   hostile mute FILE ...              has a page of this file, which never answers, and waits for it so that readers of it wait
 *   hostile silence DIRECTORY UID      a file system of this user that is mounted there; to be started by root
 *
 * Each prints `ready` when it has started. Words after those that are named above are ignored: they are for readers of command lines.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static void say_ready(void)
{
	puts("ready");
	fflush(stdout);
}

static void raise_limit(int resource, rlim_t limit)
{
	struct rlimit both = { limit, limit };

	if (setrlimit(resource, &both))
		err(EXIT_FAILURE, "setrlimit");
}

static _Noreturn void become(char **command)
{
	execvp(command[0], command);
	err(EXIT_FAILURE, "%s", command[0]);
}

static void as_user(uid_t user, char **command)
{
	raise_limit(RLIMIT_NPROC, RLIM_INFINITY);
	raise_limit(RLIMIT_NOFILE, 65536);
	if (setgid(user) || setuid(user))
		err(EXIT_FAILURE, "setuid");
	become(command);
}

static void *pose_as_vcpu(void *number)
{
	char name[16];

	snprintf(name, sizeof(name), "CPU %u/KVM", (unsigned)(uintptr_t)number % 10000);
	prctl(PR_SET_NAME, name);
	for (;;)
		pause();
	return NULL;
}

/* Starts as many of so many threads as there can be; how many that were. */
static unsigned start_vcpus(unsigned count)
{
	pthread_attr_t attributes;
	unsigned started;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN);
	pthread_attr_setguardsize(&attributes, 0);
	for (started = 0; started < count; started++) {
		pthread_t thread;

		if (pthread_create(&thread, &attributes, pose_as_vcpu, (void *)(uintptr_t)started))
			break;
	}
	return started;
}

static void be_vm(unsigned threads, unsigned files, unsigned ms)
{
	unsigned started, opened = 0;

	while (opened < files && open("/dev/null", O_RDONLY) >= 0)
		opened++;
	started = start_vcpus(threads);
	printf("%u threads, %u files\n", started, opened);
	say_ready();
	if (ms) {
		usleep(ms * 1000);
		exit(EXIT_SUCCESS);
	}
	for (;;)
		pause();
}

static void turn(char **command)
{
	sigset_t signals;
	int signal;

	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	start_vcpus(1);
	say_ready();
	sigwait(&signals, &signal);
	become(command);
}

static void start_many(unsigned count, unsigned beside, char **command)
{
	unsigned running = 0;

	say_ready();
	while (count || running) {
		if (!count || running == beside) {
			if (wait(NULL) > 0)
				running--;
			continue;
		}
		switch (fork()) {
		case 0:
			become(command);
		case -1:
			/* As many as the user may have. */
			usleep(1000);
			break;
		default:
			running++;
			count--;
		}
	}
}

static void take(pid_t wanted, char **command)
{
	for (;;) {
		pid_t child = fork();

		if (child < 0)
			err(EXIT_FAILURE, "fork");
		if (child == 0) {
			if (getpid() != wanted)
				_exit(EXIT_SUCCESS);
			become(command);
		}
		if (child == wanted)
			break;
		waitpid(child, NULL, 0);
	}
	say_ready();
	wait(NULL);
}

/* The threads of a mute process begin at the same time: the stack of a later one would wait as well. */
static pthread_barrier_t beginning;
/* How often the address space was changed. */
static volatile unsigned changes;

/* The kernel holds the address space for reading while it waits for this page. */
static void *read_itself(void *page)
{
	int memory = open("/proc/self/mem", O_RDONLY);
	char byte;

	pthread_barrier_wait(&beginning);
	if (pread(memory, &byte, 1, (off_t)(uintptr_t)page) < 0)
		pause();
	return NULL;
}

/* A writer waits for readers, and later readers wait for this one. */
static void *change_itself(void *page)
{
	pthread_barrier_wait(&beginning);
	for (;; changes++) {
		usleep(20000);
		mprotect((char *)page + 4096, 4096, changes % 2 ? PROT_READ : PROT_NONE);
	}
	return NULL;
}

/* It seems to be a VM when that has happened. */
static void *pose_late(void *page)
{
	unsigned before;

	(void)page;
	pthread_barrier_wait(&beginning);
	do {
		before = changes;
		usleep(500000);
	} while (changes != before);
	return pose_as_vcpu(NULL);
}

static void be_mute(const char *path)
{
	void *(*const parts[])(void *) = { read_itself, change_itself, pose_late };
	int file = open(path, O_RDONLY);
	void *page = mmap(NULL, 2 * 4096, PROT_READ, MAP_PRIVATE, file, 0);

	if (file < 0 || page == MAP_FAILED)
		err(EXIT_FAILURE, "%s", path);
	/* Takes memory, which it cannot later on. */
	say_ready();
	pthread_barrier_init(&beginning, NULL, 3);
	for (unsigned part = 0; part < 3; part++) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, parts[part], page))
			err(EXIT_FAILURE, "pthread_create");
	}
	for (;;)
		pause();
}

static void answer(int device, uint64_t question, int error, const void *body, size_t length)
{
	struct fuse_out_header header = {
		.len = sizeof(header) + length, .error = error, .unique = question,
	};
	struct iovec parts[] = {
		{ &header, sizeof(header) }, { (void *)body, length },
	};

	/* Who has asked may be gone. */
	if (writev(device, parts, 2) < 0 && errno != ENOENT)
		err(EXIT_FAILURE, "cannot answer");
}

/* The node 1 is the directory, 2 its one file. */
static struct fuse_attr attributes_of(uint64_t node, uid_t user)
{
	struct fuse_attr attributes = {
		.ino = node, .mode = node == 1 ? S_IFDIR | 0755 : S_IFREG | 0644,
		.nlink = 1, .uid = user, .gid = user, .size = 1 << 20, .blksize = 4096,
	};
	return attributes;
}

/*
 * Reports the file `memory`, whose contents never arrive, and nothing else: a reader of `silent` waits, too.
 */
static void be_silent(const char *directory, uid_t user)
{
	static char question[FUSE_MIN_READ_BUFFER + (1 << 17)];
	struct fuse_in_header *header = (void *)question;
	int device = open("/dev/fuse", O_RDWR);
	char options[128];

	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=%u,group_id=%u,allow_other",
		 device, user, user);
	if (device < 0 || mount("silent", directory, "fuse", MS_NOSUID | MS_NODEV, options))
		err(EXIT_FAILURE, "cannot mount %s", directory);
	if (setgid(user) || setuid(user))
		err(EXIT_FAILURE, "setuid");
	say_ready();
	while (read(device, question, sizeof(question)) > 0) {
		const char *name = (const char *)(header + 1);
		struct fuse_init_in *init = (void *)(header + 1);
		struct fuse_init_out agreed = {
			.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION, .max_write = 4096,
		};
		struct fuse_entry_out entry = {
			.nodeid = 2, .entry_valid = 3600, .attr_valid = 3600, .attr = attributes_of(2, user),
		};
		struct fuse_attr_out node = {
			.attr_valid = 3600, .attr = attributes_of(header->nodeid, user),
		};
		struct fuse_open_out opened = { 0 };

		switch (header->opcode) {
		case FUSE_INIT:
			if (init->minor < agreed.minor)
				agreed.minor = init->minor;
			answer(device, header->unique, 0, &agreed, sizeof(agreed));
			break;
		case FUSE_LOOKUP:
			if (!strcmp(name, "memory"))
				answer(device, header->unique, 0, &entry, sizeof(entry));
			else if (strcmp(name, "silent"))
				answer(device, header->unique, -ENOENT, NULL, 0);
			break;
		case FUSE_GETATTR:
			answer(device, header->unique, 0, &node, sizeof(node));
			break;
		case FUSE_OPEN:
			answer(device, header->unique, 0, &opened, sizeof(opened));
			break;
		case FUSE_READ:
		case FUSE_FORGET:
		case FUSE_BATCH_FORGET:
		case FUSE_INTERRUPT:
			break;
		default:
			answer(device, header->unique, -ENOSYS, NULL, 0);
		}
	}
}

int main(int argc, char **argv)
{
	const char *part = argc > 1 ? argv[1] : "";

	if (!strcmp(part, "as") && argc > 3)
		as_user(atoi(argv[2]), argv + 3);
	else if (!strcmp(part, "vm") && argc > 4)
		be_vm(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
	else if (!strcmp(part, "turn") && argc > 2)
		turn(argv + 2);
	else if (!strcmp(part, "many") && argc > 4)
		start_many(atoi(argv[2]), atoi(argv[3]), argv + 4);
	else if (!strcmp(part, "take") && argc > 3)
		take(atoi(argv[2]), argv + 3);
	else if (!strcmp(part, "mute") && argc > 2)
		be_mute(argv[2]);
	else if (!strcmp(part, "silence") && argc > 3)
		be_silent(argv[2], atoi(argv[3]));
	else
		errx(EXIT_FAILURE, "usage: hostile as|vm|turn|many|take|mute|silence ...");
	return EXIT_SUCCESS;
}
