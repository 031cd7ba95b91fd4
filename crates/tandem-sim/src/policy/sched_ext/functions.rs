//! The functions of the kernel that programs may call, and the kernels that have them.

use super::prototypes::prototypes;
use super::settings::KernelVersion;
use super::structures::TaskBlock;
use super::types::{Cgroup, CpuStat, RunQueue, Task, enums_of, structs_of};
use std::mem::offset_of;
use tandem_ebpf::{ArrayField, Environment, KernelFunction, KernelVariable, KnownResult, ObjectField, Size};

/// Defines the functions: a name in Rust, the kernel's names for it, and the first and last kernel that has
/// each.
macro_rules! functions {
    ($($function:ident: $($name:literal $($since:ident)? $(..$until:ident)?),+;)*) => {
        /// A function of the kernel.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Function { $($function),* }

        const ALL: &[Function] = &[$(Function::$function),*];

        const NAMES: &[(Function, &str, Option<KernelVersion>, Option<KernelVersion>)] = &[
            $($((Function::$function, $name, version!($($since)?), version!($($until)?)),)+)*
        ];
    };
}

macro_rules! version {
    () => {
        None
    };
    ($version:ident) => {
        Some(KernelVersion::$version)
    };
}

// Names are those of the kernel, where `___v2` is part of a name. `V7_3` after a name: it came later than 6.12. `..V6_12`: that kernel alone has it.
functions! {
    Jiffies: "bpf_jiffies64";
    CurrentNode: "bpf_get_numa_node_id";
    CurrentTask: "bpf_get_current_task_btf", "bpf_get_current_task";
    CurrentPid: "bpf_get_current_pid_tgid";
    Random: "bpf_get_prandom_u32";

    TaskFromPid: "bpf_task_from_pid", "bpf_task_from_vpid" V7_3;
    TaskFromTid: "scx_bpf_tid_to_task" V7_3;
    CgroupFromId: "bpf_cgroup_from_id";

    MaskCreate: "bpf_cpumask_create";
    MaskAcquire: "bpf_cpumask_acquire";
    MaskRelease: "bpf_cpumask_release";
    MaskFirst: "bpf_cpumask_first";
    MaskFirstZero: "bpf_cpumask_first_zero";
    MaskFirstAnd: "bpf_cpumask_first_and";
    MaskSet: "bpf_cpumask_set_cpu";
    MaskClearCpu: "bpf_cpumask_clear_cpu";
    MaskTestAndSet: "bpf_cpumask_test_and_set_cpu";
    MaskTestAndClear: "bpf_cpumask_test_and_clear_cpu";
    MaskSetAll: "bpf_cpumask_setall";
    MaskClear: "bpf_cpumask_clear";
    MaskAnd: "bpf_cpumask_and";
    MaskOr: "bpf_cpumask_or";
    MaskXor: "bpf_cpumask_xor";
    MaskEqual: "bpf_cpumask_equal";
    MaskIntersects: "bpf_cpumask_intersects";
    MaskSubset: "bpf_cpumask_subset";
    MaskEmpty: "bpf_cpumask_empty";
    MaskFull: "bpf_cpumask_full";
    MaskCopy: "bpf_cpumask_copy";
    MaskDistribute: "bpf_cpumask_any_distribute";
    MaskAndDistribute: "bpf_cpumask_any_and_distribute";
    MaskWeight: "bpf_cpumask_weight";
    MaskPopulate: "bpf_cpumask_populate" V7_3;

    CreateQueue: "scx_bpf_create_dsq";
    DestroyQueue: "scx_bpf_destroy_dsq";
    QueueLength: "scx_bpf_dsq_nr_queued";
    QueuePeek: "scx_bpf_dsq_peek" V7_3;
    Insert: "scx_bpf_dsq_insert___v2" V7_3, "scx_bpf_dsq_insert" V7_3, "scx_bpf_dispatch" ..V6_12;
    InsertVtime: "scx_bpf_dsq_insert_vtime" V7_3, "scx_bpf_dispatch_vtime" ..V6_12;
    InsertVtimeArgs: "__scx_bpf_dsq_insert_vtime" V7_3;
    InsertionsLeft: "scx_bpf_dispatch_nr_slots";
    CancelInsertion: "scx_bpf_dispatch_cancel";
    MoveToLocal: "scx_bpf_dsq_move_to_local" V7_3, "scx_bpf_consume" ..V6_12;
    MoveToLocalFlags: "scx_bpf_dsq_move_to_local___v2" V7_3;
    Move: "scx_bpf_dsq_move" V7_3, "scx_bpf_dispatch_from_dsq" ..V6_12;
    MoveVtime: "scx_bpf_dsq_move_vtime" V7_3, "scx_bpf_dispatch_vtime_from_dsq" ..V6_12;
    MoveSetSlice: "scx_bpf_dsq_move_set_slice" V7_3, "scx_bpf_dispatch_from_dsq_set_slice" ..V6_12;
    MoveSetVtime: "scx_bpf_dsq_move_set_vtime" V7_3, "scx_bpf_dispatch_from_dsq_set_vtime" ..V6_12;
    IterateNew: "bpf_iter_scx_dsq_new";
    IterateNext: "bpf_iter_scx_dsq_next";

    SelectDefault: "scx_bpf_select_cpu_dfl";
    SelectAnd: "scx_bpf_select_cpu_and" V7_3;
    SelectAndArgs: "__scx_bpf_select_cpu_and" V7_3;
    TestAndClearIdle: "scx_bpf_test_and_clear_cpu_idle";
    PickIdle: "scx_bpf_pick_idle_cpu";
    PickIdleNode: "scx_bpf_pick_idle_cpu_node" V7_3;
    PickAny: "scx_bpf_pick_any_cpu";
    PickAnyNode: "scx_bpf_pick_any_cpu_node" V7_3;
    IdleMask: "scx_bpf_get_idle_cpumask";
    IdleMaskNode: "scx_bpf_get_idle_cpumask_node" V7_3;
    IdleCoreMask: "scx_bpf_get_idle_smtmask";
    IdleCoreMaskNode: "scx_bpf_get_idle_smtmask_node" V7_3;
    PossibleMask: "scx_bpf_get_possible_cpumask";
    OnlineMask: "scx_bpf_get_online_cpumask";

    CidOfCpu: "scx_bpf_cpu_to_cid" V7_3;
    CpuOfCid: "scx_bpf_cid_to_cpu" V7_3;
    CidPlace: "scx_bpf_cid_topo" V7_3;
    CidNode: "scx_bpf_cid_node" V7_3;
    CidCount: "scx_bpf_nr_cids" V7_3;
    CidCountOnline: "scx_bpf_nr_online_cids" V7_3;
    CidsOnline: "scx_bpf_online_cmask" V7_3;
    CidsReplace: "scx_bpf_cid_override" V7_3;
    CidKick: "scx_bpf_kick_cid" V7_3;
    CidCurrent: "scx_bpf_cid_curr" V7_3;
    CidOfTask: "scx_bpf_task_cid" V7_3;
    CidHere: "scx_bpf_this_cid" V7_3;
    CidPerformance: "scx_bpf_cidperf_cap" V7_3, "scx_bpf_cidperf_cur" V7_3;
    CidPerformanceSet: "scx_bpf_cidperf_set" V7_3;
    SubDispatch: "scx_bpf_sub_dispatch" V7_3;
    SubCaps: "scx_bpf_sub_caps" V7_3;
    SubGrant: "scx_bpf_sub_grant" V7_3;
    SubRevoke: "scx_bpf_sub_revoke" V7_3;
    SubKill: "scx_bpf_sub_kill_bstr" V7_3;

    Reenqueue: "scx_bpf_reenqueue_local", "scx_bpf_reenqueue_local___v2" V7_3;
    ReenqueueQueue: "scx_bpf_dsq_reenq" V7_3;
    Kick: "scx_bpf_kick_cpu";
    TaskRunning: "scx_bpf_task_running";
    CpuRunQueue: "scx_bpf_cpu_rq";
    CpuCurrent: "scx_bpf_cpu_curr" V7_3;
    CpuCount: "scx_bpf_nr_cpu_ids";
    NodeCount: "scx_bpf_nr_node_ids" V7_3;
    CpuNode: "scx_bpf_cpu_node" V7_3;
    PerformanceCap: "scx_bpf_cpuperf_cap";
    PerformanceNow: "scx_bpf_cpuperf_cur";
    Exit: "scx_bpf_exit_bstr";
    Error: "scx_bpf_error_bstr";
}

/// Functions that are not called, and the first kernel that has each.
#[rustfmt::skip]
const KNOWN: &[(KnownResult, &str, Option<KernelVersion>, Option<KernelVersion>)] = &[
    (KnownResult::Clock, "bpf_ktime_get_ns", None, None),
    (KnownResult::Clock, "bpf_ktime_get_boot_ns", None, None),
    (KnownResult::Clock, "bpf_ktime_get_coarse_ns", None, None),
    (KnownResult::Clock, "bpf_ktime_get_tai_ns", None, None),
    (KnownResult::Clock, "scx_bpf_now", version!(V7_3), None),
    (KnownResult::Cpu, "bpf_get_smp_processor_id", None, None),
    (KnownResult::FirstArgument, "bpf_task_acquire", None, None),
    (KnownResult::Nothing, "bpf_task_release", None, None),
    (KnownResult::FirstArgument, "bpf_cgroup_acquire", None, None),
    (KnownResult::Nothing, "bpf_cgroup_release", None, None),
    (KnownResult::Nothing, "bpf_rcu_read_lock", None, None),
    (KnownResult::Nothing, "bpf_rcu_read_unlock", None, None),
    (KnownResult::Nothing, "scx_bpf_put_idle_cpumask", None, None),
    (KnownResult::Nothing, "scx_bpf_put_cpumask", None, None),
    (KnownResult::Nothing, "bpf_iter_scx_dsq_destroy", None, None),
    (KnownResult::Nothing, "scx_bpf_cpuperf_set", None, None),
    (KnownResult::Nothing, "scx_bpf_dump_bstr", None, None),
    (KnownResult::CpuInSet, "bpf_cpumask_test_cpu", None, None),
    (KnownResult::Element(ANCESTORS), "bpf_cgroup_ancestor", None, None),
    (KnownResult::SetField(task_field(offset_of!(Task, scx.slice), Size::D)), "scx_bpf_task_set_slice", version!(V7_3), None),
    (KnownResult::SetField(task_field(offset_of!(Task, scx.dsq_vtime), Size::D)), "scx_bpf_task_set_dsq_vtime", version!(V7_3), None),
    (TASK_CPU, "scx_bpf_task_cpu", None, None),
    (KnownResult::Field(task_field(offset_of!(TaskBlock, cgroup), Size::D)), "scx_bpf_task_cgroup", None, None),
];

/// Functions of the runtime that came after 6.12: 6.16, and the names without `_impl`, 7.x.
const NEW_IN_RUNTIME: &[&str] = &[
    "bpf_list_front",
    "bpf_list_back",
    "bpf_rbtree_root",
    "bpf_rbtree_left",
    "bpf_rbtree_right",
    "bpf_obj_new",
    "bpf_obj_drop",
    "bpf_percpu_obj_new",
    "bpf_percpu_obj_drop",
    "bpf_refcount_acquire",
    "bpf_list_push_front",
    "bpf_list_push_back",
    "bpf_rbtree_add",
];
/// What `scx_bpf_task_cpu()` returns.
pub const TASK_CPU: KnownResult = KnownResult::Field(task_field(offset_of!(Task, thread_info.cpu), Size::W));

/// A cgroup's ancestors by level, itself last.
const ANCESTORS: ArrayField =
    ArrayField { last: offset_of!(Cgroup, level) as u16, first: offset_of!(Cgroup, ancestors) as u16 };

const fn task_field(offset: usize, size: Size) -> ObjectField {
    ObjectField { object: "a task", mark: offset_of!(TaskBlock, address) as u16, offset: offset as u16, size }
}

/// Functions that take CPUs or sets of them, and that the kernel's verifier refuses to schedulers by cid
/// (`scx_kfunc_ids_cpu_only`).
pub const BY_CPU: &[&str] = &[
    "__scx_bpf_select_cpu_and",
    "scx_bpf_cpu_curr",
    "scx_bpf_cpu_node",
    "scx_bpf_cpuperf_cap",
    "scx_bpf_cpuperf_cur",
    "scx_bpf_get_idle_cpumask",
    "scx_bpf_get_idle_cpumask_node",
    "scx_bpf_get_idle_smtmask",
    "scx_bpf_get_idle_smtmask_node",
    "scx_bpf_get_online_cpumask",
    "scx_bpf_get_possible_cpumask",
    "scx_bpf_kick_cpu",
    "scx_bpf_pick_any_cpu",
    "scx_bpf_pick_any_cpu_node",
    "scx_bpf_pick_idle_cpu",
    "scx_bpf_pick_idle_cpu_node",
    "scx_bpf_select_cpu_and",
    "scx_bpf_select_cpu_dfl",
    "scx_bpf_test_and_clear_cpu_idle",
];

impl Function {
    /// The function with a number.
    pub fn from_number(number: KernelFunction) -> Self {
        ALL[usize::from(number.0)]
    }

    fn number(self) -> KernelFunction {
        KernelFunction(self as u16)
    }
}

/// A kernel with sched_ext, for schedulers to be linked against.
pub fn environment(version: KernelVersion) -> Environment {
    let is_there = |since: Option<KernelVersion>, until: Option<KernelVersion>| {
        since.is_none_or(|since| version >= since) && until.is_none_or(|until| version <= until)
    };
    let functions = NAMES
        .iter()
        .filter(|(_, _, since, until)| is_there(*since, *until))
        .map(|&(function, name, ..)| (name, function.number()));
    let known = KNOWN
        .iter()
        .filter(|(_, _, since, until)| is_there(*since, *until))
        .map(|&(known, name, ..)| (name, known));
    let per_cpu = |size: usize| KernelVariable { size: size as u32, per_cpu: true };
    Environment {
        structs: structs_of(version),
        enums: enums_of(version),
        functions: functions.collect(),
        known: known.collect(),
        lacks: match version {
            KernelVersion::V6_12 => NEW_IN_RUNTIME.iter().copied().collect(),
            KernelVersion::V7_3 => Default::default(),
        },
        prototypes: prototypes().collect(),
        variables: [
            ("kernel_cpustat", per_cpu(CpuStat::SIZE)),
            ("runqueues", per_cpu(RunQueue::SIZE)),
            // CPUs run at one frequency: there are no policies.
            ("cpufreq_cpu_data", per_cpu(size_of::<u64>())),
        ]
        .into(),
        config: [
            ("LINUX_KERNEL_VERSION", version.code()),
            ("CONFIG_HZ", 250),
            ("CONFIG_PREEMPT_RCU", 1),
            ("CONFIG_NR_CPUS", 8192),
        ]
        .into(),
    }
}
