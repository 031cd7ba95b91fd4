/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A scheduler that knows nothing of the machine: its user space tells it before it starts.
 *
 * There is one queue for each domain, such as the CPUs of a cache. What belongs to which domain comes in variables, how
 * long turns are comes in a map, and which CPUs take part comes by calls of a program, as with many published schedulers.
 * Tasks that are too many for a domain wait there, even if another one idles.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

#define MAX_CPUS 1024
#define MAX_DOMAINS 64

/* Of the user space: how many domains there are, and which one each CPU belongs to. */
const volatile u32 nr_domains;
u16 cpu_domain[MAX_CPUS];

/* What it knows of a domain. */
struct domain {
	u32 cpus;
	struct {
		u64 slice_ns;
		bool ordered;
	} turn;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_DOMAINS);
	__type(key, u32);
	__type(value, struct domain);
} domains SEC(".maps");

static u8 takes_part[MAX_CPUS];
u64 tasks;
bool started;

struct cpu_arg {
	u32 reserved;
	s32 cpu;
};

/* A CPU takes part from now on. */
SEC("syscall")
int add_cpu(struct cpu_arg *arg)
{
	u32 cpu = arg->cpu;

	if (cpu >= MAX_CPUS || arg->reserved)
		return -EINVAL;
	takes_part[cpu] = 1;
	return 0;
}

/* Everything is there; only then do CPUs look for tasks. */
SEC("syscall")
int start(void *ctx)
{
	if (!tasks)
		return -ENOENT;
	started = true;
	return 0;
}

static u32 domain_of(s32 cpu)
{
	return cpu_domain[cpu & (MAX_CPUS - 1)];
}

s32 BPF_STRUCT_OPS_SLEEPABLE(domains_init)
{
	s32 i, err;

	if (!nr_domains || nr_domains > MAX_DOMAINS) {
		scx_bpf_error("nr_domains is %u, not 1 to %u", nr_domains, MAX_DOMAINS);
		return -EINVAL;
	}
	bpf_for(i, 0, nr_domains) {
		err = scx_bpf_create_dsq(i, NUMA_NO_NODE);
		if (err)
			return err;
	}
	return 0;
}

s32 BPF_STRUCT_OPS(domains_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	tasks++;
	return 0;
}

s32 BPF_STRUCT_OPS(domains_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return prev_cpu;
}

void BPF_STRUCT_OPS(domains_enqueue, struct task_struct *p, u64 enq_flags)
{
	u32 id = domain_of(scx_bpf_task_cpu(p));
	struct domain *domain = bpf_map_lookup_elem(&domains, &id);
	u64 slice_ns = domain ? domain->turn.slice_ns : SCX_SLICE_DFL;
	s32 cpu;

	if (domain && domain->turn.ordered)
		scx_bpf_dsq_insert_vtime(p, id, slice_ns, p->scx.dsq_vtime, enq_flags);
	else
		scx_bpf_dsq_insert(p, id, slice_ns, enq_flags);
	bpf_for(cpu, 0, scx_bpf_nr_cpu_ids()) {
		if (domain_of(cpu) == id && takes_part[cpu & (MAX_CPUS - 1)])
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	}
}

void BPF_STRUCT_OPS(domains_dispatch, s32 cpu, struct task_struct *prev)
{
	if (started && takes_part[cpu & (MAX_CPUS - 1)])
		scx_bpf_dsq_move_to_local(domain_of(cpu), 0);
}

/* Turns are worth the same for all. User space may leave this out. */
void BPF_STRUCT_OPS(domains_stopping, struct task_struct *p, bool runnable)
{
	p->scx.dsq_vtime += 1;
}

SCX_OPS_DEFINE(domains_ops,
	       .select_cpu = (void *)domains_select_cpu,
	       .enqueue = (void *)domains_enqueue,
	       .dispatch = (void *)domains_dispatch,
	       .stopping = (void *)domains_stopping,
	       .init_task = (void *)domains_init_task,
	       .init = (void *)domains_init,
	       .name = "domains");
