//! The callbacks of a scheduler, and its flags and limits.

use super::settings::{KernelVersion, SchedExtSettings};
use super::types;
use tandem_ebpf::{FunctionId, StructOps};

/// The callbacks that the scheduler has.
#[derive(Clone, Debug, Default)]
pub struct Callbacks {
    pub select_cpu: Option<FunctionId>,
    pub enqueue: Option<FunctionId>,
    pub dequeue: Option<FunctionId>,
    pub dispatch: Option<FunctionId>,
    pub tick: Option<FunctionId>,
    pub runnable: Option<FunctionId>,
    pub running: Option<FunctionId>,
    pub stopping: Option<FunctionId>,
    pub quiescent: Option<FunctionId>,
    pub yield_: Option<FunctionId>,
    pub set_weight: Option<FunctionId>,
    pub set_cpumask: Option<FunctionId>,
    pub update_idle: Option<FunctionId>,
    pub init_task: Option<FunctionId>,
    pub exit_task: Option<FunctionId>,
    pub enable: Option<FunctionId>,
    pub disable: Option<FunctionId>,
    pub cgroup_init: Option<FunctionId>,
    pub cgroup_exit: Option<FunctionId>,
    pub cgroup_set_weight: Option<FunctionId>,
    pub cgroup_set_bandwidth: Option<FunctionId>,
    pub cpu_online: Option<FunctionId>,
    pub cpu_offline: Option<FunctionId>,
    pub cpu_acquire: Option<FunctionId>,
    pub cpu_release: Option<FunctionId>,
    pub exit: Option<FunctionId>,
    pub init_cids: Option<FunctionId>,
    pub init: Option<FunctionId>,
    /// Callbacks get and give cids instead of CPUs.
    pub is_by_cid: bool,
    /// Most CPUs of a shard of cids; 0 if it does not matter.
    pub shard_size: u64,
    pub flags: u64,
    /// Most insertions of one `dispatch`.
    pub dispatch_max_batch: usize,
    /// Time after which the kernel's watchdog unloads it, ns.
    pub timeout_ns: u64,
}

impl Callbacks {
    /// The callbacks of a scheduler.
    ///
    /// # Errors
    /// What a kernel refuses of its numbers (`bpf_scx_init_member()`, `validate_ops()`).
    pub fn of(ops: &StructOps, kernel: KernelVersion) -> Result<Self, String> {
        const DEFAULT_BATCH: u64 = 32;
        let callback = |name: &str| match ops.is_by_cid.then(|| name_by_cid(name)).flatten() {
            Some(name) => ops.callbacks.get(&name).copied(),
            None => ops.callbacks.get(name).copied(),
        };
        let number = |name: &str| ops.numbers.get(name).copied().unwrap_or(0);
        let (flags, known) = (number("flags"), types::flags_of(kernel));
        if flags & !known != 0 {
            return Err(format!(
                "`flags` has {:#x}, which linux {} does not know: it refuses the scheduler",
                flags & !known,
                kernel.name()
            ));
        }
        if flags & types::SCX_OPS_ENQ_LAST != 0 && callback("enqueue").is_none() {
            return Err("`flags` has SCX_OPS_ENQ_LAST without `enqueue`: a kernel refuses that".into());
        }
        for (name, most) in [
            ("timeout_ms", SchedExtSettings::WATCHDOG_TIMEOUT_NS / 1_000_000),
            ("dispatch_max_batch", i32::MAX as u64),
        ] {
            let value = number(name);
            if value > most {
                return Err(format!("`{name}` is {value}: a kernel refuses more than {most}"));
            }
        }
        Ok(Self {
            select_cpu: callback("select_cpu"),
            enqueue: callback("enqueue"),
            dequeue: callback("dequeue"),
            dispatch: callback("dispatch"),
            tick: callback("tick"),
            runnable: callback("runnable"),
            running: callback("running"),
            stopping: callback("stopping"),
            quiescent: callback("quiescent"),
            yield_: callback("yield"),
            set_weight: callback("set_weight"),
            set_cpumask: callback("set_cpumask"),
            update_idle: callback("update_idle"),
            init_task: callback("init_task"),
            exit_task: callback("exit_task"),
            enable: callback("enable"),
            disable: callback("disable"),
            cgroup_init: callback("cgroup_init"),
            cgroup_exit: callback("cgroup_exit"),
            cgroup_set_weight: callback("cgroup_set_weight"),
            cgroup_set_bandwidth: callback("cgroup_set_bandwidth"),
            cpu_online: callback("cpu_online"),
            cpu_offline: callback("cpu_offline"),
            cpu_acquire: callback("cpu_acquire"),
            cpu_release: callback("cpu_release"),
            exit: callback("exit"),
            init_cids: callback("init_cids"),
            init: callback("init"),
            is_by_cid: ops.is_by_cid,
            shard_size: number("cid_shard_size"),
            flags,
            timeout_ns: match number("timeout_ms") {
                0 => SchedExtSettings::WATCHDOG_TIMEOUT_NS,
                timeout_ms => timeout_ms * 1_000_000,
            },
            dispatch_max_batch: match number("dispatch_max_batch") {
                0 => DEFAULT_BATCH as usize,
                batch => batch as usize,
            },
        })
    }

    pub fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    /// Whether the kernel keeps track of idle CPUs.
    pub fn builtin_idle(&self) -> bool {
        self.update_idle.is_none() || self.has(types::SCX_OPS_KEEP_BUILTIN_IDLE)
    }
}

/// The name of a callback in `sched_ext_ops_cid`, if it has another one there.
fn name_by_cid(name: &str) -> Option<String> {
    match name {
        "select_cpu" => Some("select_cid".into()),
        "set_cpumask" => Some("set_cmask".into()),
        "cpu_online" => Some("cid_online".into()),
        "cpu_offline" => Some("cid_offline".into()),
        _ => name.strip_prefix("cgroup_").map(|rest| format!("cpuctl_{rest}")),
    }
}
