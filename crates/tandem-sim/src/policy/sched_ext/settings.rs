//! A scheduler, its kernel and its settings.

use super::preparation::Preparation;
use std::fmt;
use std::sync::Arc;
use tandem_ebpf::{Code, Engine, LoadError, State};
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;

/// A scheduler for sched_ext, ready to run, and the settings that it gets before it starts.
#[derive(Clone, Debug)]
pub struct SchedExtSettings {
    /// Its name in reports.
    pub name: String,
    /// Its code, linked against [`super::environment`].
    pub code: Arc<Code>,
    /// The kernel that it was linked against.
    pub kernel: KernelVersion,
    /// Bytes to write at addresses of its global data before it is initialised.
    pub data: Vec<(u64, Vec<u8>)>,
    /// What else user space does before it starts it.
    pub preparation: Preparation,
    /// How it learns that a task prefers some CPUs; `None` if it cannot, and sees the affinity alone.
    pub preferences: Option<Preferences>,
    /// Its own counters, if it has some.
    pub counters: Option<OwnCounters>,
    /// Period of the scheduling tick, ns.
    pub tick_period_ns: u64,
    /// Longest delay of a tick, ns: 0 on real CPUs, but emulated ones take turns.
    pub tick_delay_max_ns: u64,
    /// Longest delay of a timer of the scheduler, ns.
    pub timer_delay_max_ns: u64,
    /// Time for which a runnable task may not run before the run ends with an error, ns; `None`: the
    /// scheduler's own time, or the kernel's default.
    pub watchdog_timeout_ns: Option<u64>,
    /// How often the start of a timer fails, in percent; in the callback of a timer it never does. Since
    /// Linux 7.0, with interrupts off, a later interrupt does the start, and the kernel may have no memory to
    /// note it (`kmalloc_nolock()`).
    pub timer_failure_pct: u8,
    /// How often the allocation of storage for a task or a cgroup fails, in percent.
    pub storage_failure_pct: u8,
    /// Whether the spin locks of a guest are paravirtual.
    pub paravirt_locks: bool,
    /// Time from a CPU's search for its next task until the task that ran there is in a queue again, ns. CPUs
    /// that decide meanwhile do not find that task. 0: at once. Use it only together with random delays of
    /// ticks: if all CPUs decided at the same instant, in the order of their numbers, the last ones would
    /// never give up their tasks.
    pub put_back_ns: u64,
}

impl PartialEq for SchedExtSettings {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && Arc::ptr_eq(&self.code, &other.code)
            && self.data == other.data
            && self.preparation == other.preparation
            && self.tick_period_ns == other.tick_period_ns
            && self.tick_delay_max_ns == other.tick_delay_max_ns
            && self.timer_delay_max_ns == other.timer_delay_max_ns
            && self.timer_failure_pct == other.timer_failure_pct
            && self.storage_failure_pct == other.storage_failure_pct
            && self.paravirt_locks == other.paravirt_locks
            && self.watchdog_timeout_ns == other.watchdog_timeout_ns
            && self.put_back_ns == other.put_back_ns
    }
}

impl SchedExtSettings {
    /// The tick period of distribution kernels, `CONFIG_HZ=250`, ns.
    pub const TICK_PERIOD_NS: u64 = 4_000_000;
    /// The kernel's watchdog, unless the scheduler asks for a shorter time (`SCX_WATCHDOG_MAX_TIMEOUT`), ns.
    pub const WATCHDOG_TIMEOUT_NS: u64 = 30_000_000_000;

    /// The same settings with code that counts its instructions, which is slower.
    ///
    /// # Errors
    /// If the code cannot be interpreted.
    pub fn counting(&self) -> Result<Self, LoadError> {
        let code = Code::new(self.code.image().clone(), Engine::Interpreted)?;
        Ok(Self { code: Arc::new(code), ..self.clone() })
    }
}

/// Kernels whose sched_ext is modelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum KernelVersion {
    /// 6.12: the first one, with the first names of its functions.
    V6_12,
    /// 7.3.
    #[default]
    V7_3,
}

impl KernelVersion {
    /// The release in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::V6_12 => "6.12",
            Self::V7_3 => "7.3",
        }
    }

    /// The version in the form of `LINUX_KERNEL_VERSION`.
    pub fn code(self) -> u64 {
        match self {
            Self::V6_12 => 6 << 16 | 12 << 8,
            Self::V7_3 => 7 << 16 | 3 << 8,
        }
    }
}

/// The way to set the preferred CPUs of a task: a program of the scheduler that runs with a request.
#[derive(Clone, Copy)]
pub struct Preferences {
    /// The program's name. It returns 0, or a negative error number.
    pub program: &'static str,
    /// The request for the task with a PID to prefer these CPUs from now on, or none.
    pub request: fn(pid: u64, preferred: Option<&CpuMask>, machine: &Machine) -> Vec<u8>,
}

/// Leaves out the address of the function, which differs from process to process: the hash of a scenario
/// covers this text.
impl fmt::Debug for Preferences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Preferences").field("program", &self.program).finish_non_exhaustive()
    }
}

/// The counters of a scheduler: the first element of a per-CPU array, of 64 bits each.
#[derive(Clone, Debug)]
pub struct OwnCounters {
    /// The map's name.
    pub map: &'static str,
    /// Names of the counters, in order.
    pub names: Arc<[&'static str]>,
}

impl OwnCounters {
    /// The values, summed over the CPUs.
    pub(super) fn read(&self, state: &State, cpu_count: usize) -> Vec<u64> {
        let mut sums = vec![0; self.names.len()];
        let Some(map) = state.map(self.map) else { return sums };
        for cpu in 0..cpu_count {
            let bytes = state.element(map, &0u32.to_le_bytes(), cpu).unwrap_or_default();
            for (sum, value) in sums.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *sum += u64::from_le_bytes(*value);
            }
        }
        sums
    }
}
