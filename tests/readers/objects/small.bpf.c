/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A scheduler that uses much of the runtime in few bytes, for fuzzing: fuzz/seeds/object/small.bpf.o is
 *
 *     tandem build tests/readers/objects/small.bpf.c && llvm-objcopy --strip-debug tests/readers/objects/small.bpf.o
 *
 * Its types have the fields alone that it uses, as those of vmlinux.h would be nine tenths of it.
 */
typedef unsigned char u8;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
typedef long long s64;
typedef _Bool bool;
typedef u8 __u8;
typedef unsigned short __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef s32 __s32;
typedef s64 __s64;
typedef __u32 __wsum;
typedef __u16 __be16;
typedef __u32 __be32;

#define SEC(name) __attribute__((section(name), used))
#define __ksym __attribute__((section(".ksyms")))
#define __uint(name, value) int(*name)[value]
#define __type(name, type) typeof(type) *name
#define core __attribute__((preserve_access_index))
#define CALLBACK(name) SEC("struct_ops/" #name) name

struct cpumask {
	u64 bits[128];
} core;

struct sched_ext_entity {
	u32 weight;
	u64 slice;
	u64 dsq_vtime;
} core;

struct task_struct {
	s32 pid;
	s32 nr_cpus_allowed;
	const struct cpumask *cpus_ptr;
	struct sched_ext_entity scx;
} core;

struct scx_init_task_args;

struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	void (*enable)(struct task_struct *p);
	s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
	s32 (*init)(void);
	u64 flags;
	u32 timeout_ms;
	char name[128];
};

struct bpf_timer {
	u64 opaque[2];
} __attribute__((aligned(8)));

struct bpf_iter_num {
	u64 opaque[1];
} __attribute__((aligned(8)));

s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym;
s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev_cpu, u64 wake_flags, bool *is_idle) __ksym;
void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) __ksym;
void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime, u64 enq_flags) __ksym;
bool scx_bpf_dsq_move_to_local(u64 dsq_id) __ksym;
s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym;
void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
u64 scx_bpf_now(void) __ksym;
int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __ksym;
int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym;
void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym;

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const map_delete)(void *map, const void *key) = (void *)3;
static void *(*const task_storage)(void *map, struct task_struct *p, void *value, u64 flags) = (void *)156;
static long (*const timer_init)(struct bpf_timer *timer, void *map, u64 flags) = (void *)169;
static long (*const timer_callback)(struct bpf_timer *timer, void *callback) = (void *)170;
static long (*const timer_start)(struct bpf_timer *timer, u64 ns, u64 flags) = (void *)171;
static long (*const loop)(u32 count, void *callback, void *context, u64 flags) = (void *)181;

#define QUEUE 7
#define SLICE_NS 3000000ULL

struct about {
	u64 since_ns;
	u64 ran_ns;
};

struct {
	__uint(type, 29); /* BPF_MAP_TYPE_TASK_STORAGE */
	__uint(map_flags, 1);
	__type(key, int);
	__type(value, struct about);
} abouts SEC(".maps");

struct {
	__uint(type, 1); /* BPF_MAP_TYPE_HASH */
	__uint(max_entries, 16);
	__type(key, u64);
	__type(value, u64);
} seen SEC(".maps");

struct watch {
	struct bpf_timer timer;
	u64 rounds;
};

struct {
	__uint(type, 2); /* BPF_MAP_TYPE_ARRAY */
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct watch);
} watches SEC(".maps");

char _license[] SEC("license") = "GPL";
const volatile u64 slice_ns = SLICE_NS;
u64 clock_ns;
u64 sums[8];

static long add(u32 index, void *context)
{
	u64 *sum = context;

	*sum += index * clock_ns;
	return 0;
}

static __attribute__((noinline)) u64 latest(u64 a, u64 b)
{
	return (s64)(a - b) > 0 ? a : b;
}

static int tick(void *map, u32 *key, struct watch *watch)
{
	u64 pid = watch->rounds++ % 5;

	map_delete(&seen, &pid);
	scx_bpf_kick_cpu(watch->rounds % 2, 0);
	timer_start(&watch->timer, 2000000, 0);
	return 0;
}

s32 CALLBACK(small_select_cpu)(u64 *context)
{
	struct task_struct *p = (void *)context[0];
	bool is_idle = 0;
	s32 cpu = scx_bpf_select_cpu_dfl(p, context[1], context[2], &is_idle);

	if (is_idle)
		scx_bpf_dsq_insert(p, 0x8000000000000002ULL, slice_ns, 0);
	return cpu;
}

void CALLBACK(small_enqueue)(u64 *context)
{
	struct task_struct *p = (void *)context[0];
	u64 pid = p->pid, sum = 0, one = 1;
	struct bpf_iter_num it;
	int *at;

	loop(4, add, &sum, 0);
	bpf_iter_num_new(&it, 0, 3);
	while ((at = bpf_iter_num_next(&it)))
		sums[(*at + sum) & 7] += sum / (pid | 1);
	bpf_iter_num_destroy(&it);
	map_update(&seen, &pid, &one, 0);
	scx_bpf_dsq_insert_vtime(p, QUEUE, slice_ns, latest(p->scx.dsq_vtime, clock_ns - slice_ns), context[1]);
}

void CALLBACK(small_dispatch)(u64 *context)
{
	if (scx_bpf_dsq_nr_queued(QUEUE) > 0)
		scx_bpf_dsq_move_to_local(QUEUE);
}

void CALLBACK(small_running)(u64 *context)
{
	struct task_struct *p = (void *)context[0];
	struct about *own = task_storage(&abouts, p, 0, 1);

	if (own)
		own->since_ns = scx_bpf_now();
	clock_ns = latest(clock_ns, p->scx.dsq_vtime);
}

void CALLBACK(small_stopping)(u64 *context)
{
	struct task_struct *p = (void *)context[0];
	struct about *own = task_storage(&abouts, p, 0, 0);
	u64 ran_ns;

	if (!own)
		return;
	ran_ns = scx_bpf_now() - own->since_ns;
	__sync_fetch_and_add(&own->ran_ns, ran_ns);
	p->scx.dsq_vtime += ran_ns * 100 / p->scx.weight;
}

void CALLBACK(small_enable)(u64 *context)
{
	struct task_struct *p = (void *)context[0];

	p->scx.dsq_vtime = clock_ns;
}

s32 SEC("struct_ops.s/small_init") small_init(u64 *context)
{
	u32 first = 0;
	struct watch *watch = map_lookup(&watches, &first);

	if (watch) {
		timer_init(&watch->timer, &watches, 1);
		timer_callback(&watch->timer, tick);
		timer_start(&watch->timer, 1000000, 0);
	}
	return scx_bpf_create_dsq(QUEUE, -1);
}

SEC(".struct_ops.link")
struct sched_ext_ops small = {
	.select_cpu = (void *)small_select_cpu,
	.enqueue = (void *)small_enqueue,
	.dispatch = (void *)small_dispatch,
	.running = (void *)small_running,
	.stopping = (void *)small_stopping,
	.enable = (void *)small_enable,
	.init = (void *)small_init,
	.name = "small",
};
