//! The kernel's types that schedulers read: fields have the kernel's names and offsets of our own, which
//! CO-RE makes programs use.

use super::settings::KernelVersion;
use super::structures::TaskBlock;
use std::collections::HashMap;
use std::mem::{offset_of, size_of};
use tandem_ebpf::{FieldType, KernelEnum, KernelField, KernelStruct};

/// The type of a field for programs.
trait Field {
    const TYPE: FieldType;
}

macro_rules! scalars {
    ($($scalar:ty)*) => {$(
        impl Field for $scalar {
            const TYPE: FieldType = FieldType::Scalar;
        }
        impl<const N: usize> Field for [$scalar; N] {
            const TYPE: FieldType = FieldType::Array(size_of::<$scalar>() as u32);
        }
    )*};
}
scalars!(u8 u16 u32 i32 u64 i64);

/// `self` cannot be a field's name in Rust.
const fn kernel_name(field: &'static str) -> &'static str {
    match field.as_bytes() {
        b"self_" => "self",
        _ => field,
    }
}

/// Defines structures of the kernel: the Rust name, the kernel's, and the fields. Pointers are `u64`.
macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident = $kernel:literal { $($field:ident: $type:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[allow(missing_docs, dead_code)]
            pub struct $name { $(pub $field: $type),* }

            impl Field for $name {
                const TYPE: FieldType = FieldType::Struct($kernel);
            }

            impl $name {
                /// Size, bytes.
                #[allow(dead_code)]
                pub const SIZE: usize = size_of::<Self>();

                /// Its fields, for programs.
                const FIELDS: &'static [KernelField] = &[$(KernelField {
                    name: kernel_name(stringify!($field)),
                    offset: offset_of!($name, $field) as u32,
                    size: size_of::<$type>() as u32,
                    kind: <$type as Field>::TYPE,
                }),*];
            }
        )*

        /// All of them.
        pub fn structs() -> HashMap<&'static str, KernelStruct> {
            HashMap::from([$(($kernel, KernelStruct {
                size: size_of::<$name>() as u32,
                fields: $name::FIELDS,
            })),*])
        }
    };
}

structures! {
    /// The state of a task in sched_ext.
    Entity = "sched_ext_entity" {
        dsq: u64,
        dsq_vtime: u64,
        slice: u64,
        flags: u32,
        weight: u32,
        sticky_cpu: i32,
        holding_cpu: i32,
        selected_cpu: i32,
        disallow: u8,
        ddsp_dsq_id: u64,
        ddsp_enq_flags: u64,
        runnable_at: u64,
        tid: u64,
    }
    /// The state of a task in the fair scheduler, which sched_ext updates as well.
    FairEntity = "sched_entity" {
        exec_start: u64,
        sum_exec_runtime: u64,
        prev_sum_exec_runtime: u64,
        vruntime: u64,
        nr_migrations: u64,
    }
    /// How long a task has waited for CPUs, and how often it got one.
    SchedInfo = "sched_info" { pcount: u64, run_delay: u64, last_arrival: u64, last_queued: u64 }
    /// The part of a task that holds its CPU.
    ThreadInfo = "thread_info" { flags: u64, cpu: u32 }
    /// A task.
    Task = "task_struct" {
        thread_info: ThreadInfo,
        __state: u32,
        flags: u32,
        on_cpu: i32,
        on_rq: i32,
        wake_cpu: i32,
        recent_used_cpu: i32,
        prio: i32,
        static_prio: i32,
        normal_prio: i32,
        rt_priority: u32,
        policy: u32,
        nr_cpus_allowed: i32,
        migration_disabled: u16,
        in_execve: u8,
        se: FairEntity,
        scx: Entity,
        sched_info: SchedInfo,
        mempolicy: u64,
        cpus_ptr: u64,
        pid: i32,
        tgid: i32,
        real_parent: u64,
        parent: u64,
        group_leader: u64,
        mm: u64,
        nvcsw: u64,
        nivcsw: u64,
        utime: u64,
        stime: u64,
        start_time: u64,
        start_boottime: u64,
        cgroups: u64,
        sched_task_group: u64,
        signal: u64,
        exit_state: i32,
        comm: [u8; 16],
    }
    /// The structure that the threads of a process share.
    SignalStruct = "signal_struct" { nr_threads: i32 }
    /// A set of CPUs; as long as the machine needs.
    CpuMaskBits = "cpumask" { bits: [u64; 1] }
    /// The cgroups of a task.
    CssSet = "css_set" { dfl_cgrp: u64 }
    /// The state of a cgroup in a controller.
    CssState = "cgroup_subsys_state" { cgroup: u64, flags: u32, id: i32, parent: u64 }
    /// A cgroup's directory.
    KernfsNode = "kernfs_node" { id: u64, name: u64 }
    /// A cgroup.
    Cgroup = "cgroup" {
        self_: CssState,
        level: i32,
        kn: u64,
        ancestors: [u64; crate::scenario::Cgroup::LEVELS_MAX + 1],
    }
    /// A dispatch queue.
    DispatchQueue = "scx_dispatch_q" { id: u64, nr: u32, seq: u32 }
    /// Arguments of `init_task`.
    InitTaskArgs = "scx_init_task_args" { fork: u8, cgroup: u64 }
    /// Arguments of `exit_task`.
    ExitTaskArgs = "scx_exit_task_args" { cancelled: u8 }
    /// Arguments of `cgroup_init`.
    CgroupInitArgs = "scx_cgroup_init_args" {
        weight: u32,
        bw_period_us: u64,
        bw_quota_us: u64,
        bw_burst_us: u64,
        sched_idle: u8,
    }
    /// Arguments of `cpu_release`.
    CpuReleaseArgs = "scx_cpu_release_args" { reason: u32, task: u64 }
    /// How a scheduler ended.
    ExitInfo = "scx_exit_info" {
        kind: u32,
        exit_cpu: i32,
        exit_code: i64,
        flags: u64,
        reason: u64,
        bt: u64,
        bt_len: u32,
        msg: u64,
        dump: u64,
    }
    /// A CPU's run queue.
    RunQueue = "rq" {
        nr_running: u32,
        cpu: i32,
        curr: u64,
        idle: u64,
        clock: u64,
        clock_task: u64,
        clock_pelt: u64,
        lost_idle_time: u64,
    }
    /// The structure that the newest kernel takes for some arguments of `__scx_bpf_select_cpu_and`.
    SelectCpuAndArgs = "scx_bpf_select_cpu_and_args" { prev_cpu: i32, wake_flags: u64, flags: u64 }
    /// The structure that the newest kernel takes for some arguments of `__scx_bpf_dsq_insert_vtime`.
    InsertVtimeArgs = "scx_bpf_dsq_insert_vtime_args" { dsq_id: u64, slice: u64, vtime: u64, enq_flags: u64 }
    /// The scope of a `guard(rcu)`, which programs have on their stacks.
    RcuGuard = "class_rcu_t" { lock: u64 }
    /// Where a cid is in the topology.
    CidTopology = "scx_cid_topo" {
        core_cid: i32,
        core_idx: i32,
        llc_cid: i32,
        llc_idx: i32,
        node_cid: i32,
        node_idx: i32,
        shard_cid: i32,
        shard_idx: i32,
        cluster_cid: i32,
        cluster_idx: i32,
    }
    /// A set of cids from `base` on, which has its words behind it.
    CidMask = "scx_cmask" { base: u32, nr_cids: u32, alloc_words: u32, bits: [u64; 0] }
    /// Times of a CPU.
    CpuStat = "kernel_cpustat" { cpustat: [u64; 10] }
}

/// Position of steal time in [`CpuStat`].
pub const CPUTIME_STEAL: usize = 7;

macro_rules! constants {
    ($($enum:literal { $($name:ident = $value:expr),* $(,)? })*) => {
        $($(
            #[allow(missing_docs, dead_code)]
            pub const $name: u64 = $value;
        )*)*

        /// Enumerations of 7.3; in each, values that 6.12 lacks come last.
        fn enums() -> HashMap<&'static str, KernelEnum> {
            HashMap::from([$(($enum, KernelEnum { values: &[$((stringify!($name), $value)),*] })),*])
        }
    };
}

// Of include/linux/sched/ext.h and kernel/sched/ext.c, 6.12 to 7.3.
constants! {
    "scx_public_consts" {
        SCX_OPS_NAME_LEN = 128,
        SCX_SLICE_DFL = 20_000_000,
        SCX_SLICE_INF = u64::MAX,
    }
    "scx_enq_flags" {
        SCX_ENQ_WAKEUP = 1,
        SCX_ENQ_HEAD = 1 << 16,
        SCX_ENQ_CPU_SELECTED = 1 << 20,
        SCX_ENQ_PREEMPT = 1 << 32,
        SCX_ENQ_REENQ = 1 << 40,
        SCX_ENQ_LAST = 1 << 41,
        SCX_ENQ_DSQ_PRIQ = 1 << 57,
        SCX_ENQ_IMMED = 1 << 33,
    }
    "scx_deq_flags" { SCX_DEQ_SLEEP = 1, SCX_DEQ_CORE_SCHED_EXEC = 1 << 32 }
    "scx_kick_flags" { SCX_KICK_IDLE = 1, SCX_KICK_PREEMPT = 2, SCX_KICK_WAIT = 4 }
    "scx_wake_flags" { SCX_WAKE_FORK = 4, SCX_WAKE_TTWU = 8, SCX_WAKE_SYNC = 16 }
    "scx_ent_flags" {
        SCX_TASK_QUEUED = 1,
        SCX_TASK_RESET_RUNNABLE_AT = 4,
        SCX_TASK_DEQD_FOR_SLEEP = 8,
        SCX_TASK_IMMED = 32,
        SCX_TASK_REENQ_REASON_SHIFT = 12,
        SCX_TASK_REENQ_REASON_BITS = 3,
        SCX_TASK_REENQ_REASON_MASK = 7 << 12,
        SCX_TASK_REENQ_NONE = 0,
        SCX_TASK_REENQ_KFUNC = 1 << 12,
        SCX_TASK_REENQ_IMMED = 2 << 12,
        SCX_TASK_REENQ_PREEMPTED = 3 << 12,
    }
    "scx_ops_flags" {
        SCX_OPS_KEEP_BUILTIN_IDLE = 1,
        SCX_OPS_ENQ_LAST = 2,
        SCX_OPS_ENQ_EXITING = 4,
        SCX_OPS_SWITCH_PARTIAL = 8,
        SCX_OPS_ENQ_MIGRATION_DISABLED = 16,
        SCX_OPS_ALLOW_QUEUED_WAKEUP = 32,
        SCX_OPS_BUILTIN_IDLE_PER_NODE = 64,
        SCX_OPS_ALWAYS_ENQ_IMMED = 128,
        SCX_OPS_TID_TO_TASK = 256,
        SCX_OPS_LAZY_RESCHED = 512,
        SCX_OPS_ENQ_BLOCKED = 1024,
    }
    "scx_dsq_id_flags" {
        SCX_DSQ_FLAG_BUILTIN = 1 << 63,
        SCX_DSQ_FLAG_LOCAL_ON = 1 << 62,
        SCX_DSQ_INVALID = 1 << 63,
        SCX_DSQ_GLOBAL = 1 << 63 | 1,
        SCX_DSQ_LOCAL = 1 << 63 | 2,
        SCX_DSQ_LOCAL_ON = 3 << 62,
        SCX_DSQ_LOCAL_CPU_MASK = 0xffff_ffff,
    }
    "scx_dsq_iter_flags" { SCX_DSQ_ITER_REV = 1 << 16 }
    "scx_pick_idle_cpu_flags" { SCX_PICK_IDLE_CORE = 1, SCX_PICK_IDLE_IN_NODE = 2 }
    "scx_exit_kind" {
        SCX_EXIT_NONE = 0,
        SCX_EXIT_DONE = 1,
        SCX_EXIT_UNREG = 64,
        SCX_EXIT_UNREG_BPF = 65,
        SCX_EXIT_UNREG_KERN = 66,
        SCX_EXIT_ERROR = 1024,
        SCX_EXIT_ERROR_BPF = 1025,
        SCX_EXIT_ERROR_STALL = 1026,
    }
    "scx_exit_code" { SCX_ECODE_RSN_HOTPLUG = 1 << 32, SCX_ECODE_ACT_RESTART = 1 << 48 }
    "scx_cpu_preempt_reason" {
        SCX_CPU_PREEMPT_RT = 0,
        SCX_CPU_PREEMPT_DL = 1,
        SCX_CPU_PREEMPT_STOP = 2,
        SCX_CPU_PREEMPT_UNKNOWN = 3,
    }
    "scx_cpuperf_const" { SCX_CPUPERF_ONE = 1024 }
    "scx_cap_flags" {
        SCX_CAP_ENQ_IMMED = 1,
        SCX_CAP_ENQ = 2,
        SCX_CAP_PREEMPT = 4,
        SCX_CAP_PERF = 8,
        SCX_CAP_BASE = 1,
    }
}

/// The fields of a task, with its own set of CPUs, which lies behind all else: it is as long as the machine
/// needs.
const TASK_FIELDS: &[KernelField] = &{
    const CPUS_MASK: KernelField = KernelField {
        name: "cpus_mask",
        offset: TaskBlock::SIZE as u32,
        size: CpuMaskBits::SIZE as u32,
        kind: <CpuMaskBits as Field>::TYPE,
    };
    let mut all = [CPUS_MASK; Task::FIELDS.len() + 1];
    let mut at = 0;
    while at < Task::FIELDS.len() {
        all[at] = Task::FIELDS[at];
        at += 1;
    }
    all
};

/// Structures that 6.12 does not have.
const NEW_STRUCTS: [&str; 4] =
    ["scx_bpf_select_cpu_and_args", "scx_bpf_dsq_insert_vtime_args", "scx_cid_topo", "scx_cmask"];

/// Fields of the arguments of `cgroup_init` that 6.12 has: the weight alone.
const OLD_CGROUP_INIT_ARGS: usize = 1;

/// How many values of an enumeration 6.12 has, where that is fewer than 7.3 has.
const OLD_ENUMS: [(&str, usize); 3] = [("scx_enq_flags", 7), ("scx_ent_flags", 3), ("scx_ops_flags", 7)];

/// The enumerations that a kernel has.
pub fn enums_of(version: KernelVersion) -> HashMap<&'static str, KernelEnum> {
    let mut enums = enums();
    if version < KernelVersion::V7_3 {
        for (name, count) in OLD_ENUMS {
            if let Some(values) = enums.get_mut(name) {
                values.values = &values.values[..count];
            }
        }
    }
    enums
}

/// The flags of schedulers that a kernel knows (`SCX_OPS_ALL_FLAGS`).
pub fn flags_of(version: KernelVersion) -> u64 {
    // Of 6.12, whose headers also know a flag of cgroups that later ones have dropped.
    const HAS_CGROUP_WEIGHT: u64 = 1 << 16;
    let known = enums_of(version)["scx_ops_flags"].values.iter().fold(0, |all, (_, flag)| all | flag);
    known | if version < KernelVersion::V7_3 { HAS_CGROUP_WEIGHT } else { 0 }
}

/// The structures that a kernel has.
pub fn structs_of(version: KernelVersion) -> HashMap<&'static str, KernelStruct> {
    let mut structs = structs();
    if let Some(task) = structs.get_mut("task_struct") {
        task.fields = TASK_FIELDS;
    }
    if version < KernelVersion::V7_3 {
        structs.retain(|name, _| !NEW_STRUCTS.contains(name));
        if let Some(arguments) = structs.get_mut("scx_cgroup_init_args") {
            arguments.fields = &arguments.fields[..OLD_CGROUP_INIT_ARGS];
        }
    }
    structs
}
