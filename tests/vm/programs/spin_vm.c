/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * spin_vm VCPUS CPUS [pinned]: a virtual machine whose vCPUs spin for each other, on the CPUs 0 to CPUS-1, until SIGTERM.
 *
 * The vCPUs take turns, in the order of a ticket lock: the one whose turn it is works a little and hands the turn to
 * the next, and all others wait for theirs in a loop of PAUSE. So at any time exactly one vCPU can make progress, and
 * with more vCPUs than CPUs it is often one that does not run: then nothing happens until the host runs it.
 *
 * With `pinned`, each vCPU may use only one of the CPUs; they are dealt out in turn. Prints the numbers of the vCPUs'
 * threads when all of them are about to run, and at the end how many turns there were:
 *
 *	threads 71 72 73 74
 *	turns 1234
 *
 * The code runs in real mode, as a vCPU starts, so that it needs neither tables nor a stack.
 */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	VCPUS_MAX = 64,
	/* Where the code and the data are in the guest; both are in one piece of memory of two pages. */
	CODE = 0x1000,
	DATA = 0x2000,
	MEMORY_SIZE = 0x2000,
	/* Rounds of work in a turn: short beside an exit. */
	WORK_ROUNDS = 100,
	/* In FLAGS only this bit is set, as always. */
	FLAGS = 2,
};

/* The guest's data, at DATA. */
struct data {
	uint16_t whose_turn;
	uint16_t unused;
	atomic_uint turns;
};

/* A vCPU finds its own number in BX, the next one's in DI, WORK_ROUNDS in DX, and DATA in SI. */
static const uint8_t code[] = {
	0x39, 0x1c,		/* wait: cmp [si], bx */
	0x74, 0x04,		/*       je work */
	0xf3, 0x90,		/*       pause */
	0xeb, 0xf8,		/*       jmp wait */
	0x89, 0xd1,		/* work: mov cx, dx */
	0xe2, 0xfe,		/*       loop to itself */
	0x66, 0xff, 0x44, 0x04,	/*       inc dword [si + 4] */
	0x89, 0x3c,		/*       mov [si], di */
	0xeb, 0xec,		/*       jmp wait */
};

static int vm, vcpus, cpus, run_size;
static bool pinned;
static pid_t thread_numbers[VCPUS_MAX];
static pthread_barrier_t ready;

static int call(int fd, unsigned long request, void *argument, const char *name)
{
	int result = ioctl(fd, request, argument);

	if (result < 0)
		err(1, "%s", name);
	return result;
}

static void set_registers(int vcpu, long number)
{
	struct kvm_sregs special;
	struct kvm_regs registers = {
		.rip = CODE,
		.rflags = FLAGS,
		.rbx = number,
		.rdi = (number + 1) % vcpus,
		.rdx = WORK_ROUNDS,
		.rsi = DATA,
	};

	call(vcpu, KVM_GET_SREGS, &special, "KVM_GET_SREGS");
	special.cs.base = special.cs.selector = 0;
	call(vcpu, KVM_SET_SREGS, &special, "KVM_SET_SREGS");
	call(vcpu, KVM_SET_REGS, &registers, "KVM_SET_REGS");
}

static void allow_cpus(long number)
{
	cpu_set_t allowed;

	CPU_ZERO(&allowed);
	for (int cpu = 0; cpu < cpus; cpu++)
		if (!pinned || cpu == number % cpus)
			CPU_SET(cpu, &allowed);
	if (sched_setaffinity(0, sizeof(allowed), &allowed))
		err(1, "cannot run on %d CPUs", cpus);
}

static void *run_vcpu(void *argument)
{
	long number = (long)argument;
	int vcpu = call(vm, KVM_CREATE_VCPU, argument, "KVM_CREATE_VCPU");
	struct kvm_run *run = mmap(NULL, run_size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);

	if (run == MAP_FAILED)
		err(1, "cannot map a vCPU");
	allow_cpus(number);
	set_registers(vcpu, number);
	thread_numbers[number] = gettid();
	pthread_barrier_wait(&ready);
	call(vcpu, KVM_RUN, NULL, "KVM_RUN");
	errx(1, "vCPU %ld left its loop: exit reason %u", number, run->exit_reason);
}

static struct data *make_memory(void)
{
	uint8_t *memory = mmap(NULL, MEMORY_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct kvm_userspace_memory_region region = {
		.guest_phys_addr = CODE,
		.memory_size = MEMORY_SIZE,
		.userspace_addr = (uintptr_t)memory,
	};

	if (memory == MAP_FAILED)
		err(1, "no memory for the guest");
	memcpy(memory, code, sizeof(code));
	call(vm, KVM_SET_USER_MEMORY_REGION, &region, "KVM_SET_USER_MEMORY_REGION");
	return (struct data *)(memory + DATA - CODE);
}

int main(int argc, char **argv)
{
	struct data *data;
	pthread_t thread;
	sigset_t end;
	int kvm, signal;

	if (argc < 3 || argc > 4 || (argc == 4 && strcmp(argv[3], "pinned")))
		errx(2, "arguments: VCPUS CPUS [pinned]");
	vcpus = atoi(argv[1]);
	cpus = atoi(argv[2]);
	pinned = argc == 4;
	if (vcpus < 1 || vcpus > VCPUS_MAX || cpus < 1)
		errx(2, "1 to %d vCPUs, on 1 CPU or more", VCPUS_MAX);
	/* Before there are other threads, which would get the signal instead. */
	sigemptyset(&end);
	sigaddset(&end, SIGTERM);
	sigprocmask(SIG_BLOCK, &end, NULL);

	kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	if (kvm < 0)
		err(1, "cannot open /dev/kvm");
	vm = call(kvm, KVM_CREATE_VM, NULL, "KVM_CREATE_VM");
	run_size = call(kvm, KVM_GET_VCPU_MMAP_SIZE, NULL, "KVM_GET_VCPU_MMAP_SIZE");
	data = make_memory();
	pthread_barrier_init(&ready, NULL, vcpus + 1);
	for (long number = 0; number < vcpus; number++)
		if (pthread_create(&thread, NULL, run_vcpu, (void *)number))
			errx(1, "cannot create a thread");
	pthread_barrier_wait(&ready);

	printf("threads");
	for (int number = 0; number < vcpus; number++)
		printf(" %d", thread_numbers[number]);
	printf("\n");
	fflush(stdout);
	sigwait(&end, &signal);
	printf("turns %u\n", data->turns);
	/* The vCPUs end with the process. */
	return 0;
}
