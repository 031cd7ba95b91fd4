//! Which scheduler runs, on which kernel, with which settings.

use std::fmt;
use std::sync::Arc;
use tandem_ebpf::{Code, Engine, LoadError, State};
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;

/// A scheduler for sched_ext, ready to run, and what it is told before it starts.
#[derive(Clone, Debug)]
pub struct SchedExtSettings {
    /// What it is called in reports.
    pub name: String,
    /// Its code, linked against [`super::environment`].
    pub code: Arc<Code>,
    /// The kernel that it was linked against.
    pub kernel: KernelVersion,
    /// Settings: bytes to be written at addresses of its global data before it is initialised.
    pub data: Vec<(u64, Vec<u8>)>,
    /// How it is told that a task prefers some CPUs; `None`: it cannot be told, and affinity is all that it sees.
    pub preferences: Option<Preferences>,
    /// What it counts itself, if it does.
    pub counters: Option<OwnCounters>,
    /// Period of the scheduling tick, ns.
    pub tick_period_ns: u64,
    /// Longest time by which a tick comes late, ns: nothing on real CPUs, but emulated ones take turns.
    pub tick_delay_max_ns: u64,
    /// Longest time by which a timer of the scheduler's expires late, ns.
    pub timer_delay_max_ns: u64,
    /// After which time a task that can run and does not ends the run, ns; `None`: as the scheduler says, or as the kernel has
    /// it.
    pub watchdog_timeout_ns: Option<u64>,
    /// How often a timer cannot be started, in percent; in the callback of a timer it always can. Since Linux 7.0, with
    /// interrupts off, a start is left to a later interrupt, and there may be no memory to remember it (`kmalloc_nolock()`).
    pub timer_failure_pct: u8,
    /// How often storage for a task or a cgroup cannot be made, in percent.
    pub storage_failure_pct: u8,
    /// From when a CPU looks for its next task to when the one that ran there is in a queue again, ns. CPUs that decide
    /// meanwhile do not find it there. 0: at once. Only together with ticks that are late by chance: with all CPUs deciding at
    /// the same instant, in the order of their numbers, the last ones would never give their tasks up.
    pub put_back_ns: u64,
}

impl PartialEq for SchedExtSettings {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && Arc::ptr_eq(&self.code, &other.code)
            && self.data == other.data
            && self.tick_period_ns == other.tick_period_ns
            && self.tick_delay_max_ns == other.tick_delay_max_ns
            && self.timer_delay_max_ns == other.timer_delay_max_ns
            && self.timer_failure_pct == other.timer_failure_pct
            && self.storage_failure_pct == other.storage_failure_pct
            && self.watchdog_timeout_ns == other.watchdog_timeout_ns
            && self.put_back_ns == other.put_back_ns
    }
}

impl SchedExtSettings {
    /// The tick of distributions' kernels, `CONFIG_HZ=250`, ns.
    pub const TICK_PERIOD_NS: u64 = 4_000_000;
    /// The kernel's watchdog, unless the scheduler asks for a shorter time (`SCX_WATCHDOG_MAX_TIMEOUT`), ns.
    pub const WATCHDOG_TIMEOUT_NS: u64 = 30_000_000_000;

    /// The same with code that counts its instructions, and takes longer for that.
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
    /// As `LINUX_KERNEL_VERSION` has it.
    pub fn code(self) -> u64 {
        match self {
            Self::V6_12 => 6 << 16 | 12 << 8,
            Self::V7_3 => 7 << 16 | 3 << 8,
        }
    }
}

/// How a scheduler is told that a task prefers some CPUs: by a program of its own that is run with a request.
#[derive(Clone, Copy)]
pub struct Preferences {
    /// The program's name. It returns 0, or a negative error number.
    pub program: &'static str,
    /// The request for the task with a number, which prefers these CPUs from now on, or none.
    pub request: fn(pid: u64, preferred: Option<&CpuMask>, machine: &Machine) -> Vec<u8>,
}

/// Without the address of a function, which differs from process to process: the hash of a scenario is that of this text.
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
    /// In order.
    pub names: Arc<[&'static str]>,
}

impl OwnCounters {
    /// What has been counted, summed over the CPUs.
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
