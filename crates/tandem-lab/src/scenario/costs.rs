//! Switches for the cost models.

use schemars::JsonSchema;
use serde::Deserialize;
use tandem_file::located::Located;
use tandem_file::units::Duration;
use tandem_sim::cost::{ContextSwitch, CostModels, Idle};
use tandem_sim::policy::linux::LinuxEra;
use tandem_sim::scenario::PolicySettings;

/// Which costs count, in the host and in guests. All do; to switch one off, set it to false. `all = false`
/// switches off those that are not set to true.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CostSwitches {
    /// All those that are not named.
    pub all: Option<bool>,
    /// Putting another task on a CPU.
    pub context_switch: Option<bool>,
    /// Filling the caches again after another task used them.
    pub cache: Option<bool>,
    /// Sharing a core with its other hardware threads.
    pub smt: Option<bool>,
    /// Latency of memory on other nodes, and the bandwidth of nodes.
    pub memory: Option<bool>,
    /// Fetching cache lines that tasks on other cores wrote: messages, and data that programs share.
    pub coherence: Option<bool>,
    /// Interrupts from CPU to CPU.
    pub ipi: Option<bool>,
    /// Leaving a VM and entering it again.
    pub vm_exit: Option<bool>,
    /// Waiting for the locks of the host.
    pub spin_lock: Option<bool>,
    /// Hinting faults of NUMA balancing, and the pages that they move.
    pub numa_fault: Option<bool>,
    /// Handling of interrupts.
    pub interrupt: Option<bool>,
    /// Ticks of each kernel at times of its own, and a little late, as the seed says; if not, at multiples of
    /// their period, all together.
    pub timer: Option<bool>,
    /// The threads of Linux kernels that wake up now and then, a few times a second on each CPU.
    pub housekeeping: Option<bool>,
    /// How long an idle pCPU takes to wake up, such as "5us"; it depends on the firmware and its settings, so
    /// that it is nothing if absent.
    pub idle_exit: Option<Located<Duration>>,
}

impl CostSwitches {
    /// The release whose kernel threads run in a kernel with this policy; `None`: none do.
    pub fn kernel_threads(&self, policy: &PolicySettings) -> Option<LinuxEra> {
        let era = match policy {
            PolicySettings::Credit(_) | PolicySettings::Credit2(_) => None,
            PolicySettings::Linux(settings) => Some(settings.era),
            PolicySettings::SchedExt(_) => Some(LinuxEra::LATEST),
        };
        era.filter(|_| self.is_on(self.housekeeping))
    }

    fn is_on(&self, switch: Option<bool>) -> bool {
        switch.or(self.all).unwrap_or(true)
    }

    /// The cost models that are switched on, for a kernel with this policy.
    pub fn models(&self, policy: &PolicySettings) -> CostModels {
        let on = |switch| self.is_on(switch);
        let models = CostModels::all();
        let context_switch = match policy {
            PolicySettings::Credit(_) | PolicySettings::Credit2(_) => ContextSwitch::default(),
            PolicySettings::Linux(_) | PolicySettings::SchedExt(_) => ContextSwitch::linux(),
        };
        CostModels {
            context_switch: on(self.context_switch).then_some(context_switch),
            cache: models.cache.filter(|_| on(self.cache)),
            smt: models.smt.filter(|_| on(self.smt)),
            memory: models.memory.filter(|_| on(self.memory)),
            coherence: models.coherence.filter(|_| on(self.coherence)),
            ipi: models.ipi.filter(|_| on(self.ipi)),
            vm_exit: models.vm_exit.filter(|_| on(self.vm_exit)),
            spin_lock: models.spin_lock.filter(|_| on(self.spin_lock)),
            numa_fault: models.numa_fault.filter(|_| on(self.numa_fault)),
            interrupt: models.interrupt.filter(|_| on(self.interrupt)),
            timer: models.timer.filter(|_| on(self.timer)),
            idle: self.idle_exit.as_ref().map(|exit| Idle::Fixed(exit.ns)),
        }
    }
}
