/* SPDX-License-Identifier: GPL-2.0-only */
/* Constants of the kernel's enums are those of vmlinux.h: none of those used here has changed since Linux 6.12. */
#define __SCX_ENUMS_BPF_H
#include <scx/common.bpf.h>
#include "settings.h"
#include "requests.h"

char _license[] SEC("license") = "GPL";

UEI_DEFINE(exit_info);

const volatile struct settings settings;
const volatile struct cpu_place cpu_places[MAX_CPUS];
const volatile struct llc_place llc_places[MAX_LLCS];
const volatile struct node_place node_places[MAX_NODES];

enum counter {
#define COUNTER(name, description) COUNTER_##name,
#include "counters.h"
#undef COUNTER
	NR_COUNTERS,
};

struct counters {
	u64 value[NR_COUNTERS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct counters);
} counters SEC(".maps");

SEC("syscall")
int prefer(struct preference_request *request)
{
	return -ENOENT;
}

SEC("syscall")
int preference_of(struct preference_request *request)
{
	return -ENOENT;
}

void BPF_STRUCT_OPS(tandem_exit, struct scx_exit_info *info)
{
	UEI_RECORD(exit_info, info);
}

SCX_OPS_DEFINE(tandem,
	       .exit = (void *)tandem_exit,
	       .name = "tandem");
