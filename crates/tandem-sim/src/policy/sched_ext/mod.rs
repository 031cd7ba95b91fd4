//! Compiled schedulers for Linux's sched_ext, as policies.
//!
//! Problem: what is simulated should be what is deployed, so the object file that the kernel loads has to run here, and the
//! kernel around it (`kernel/sched/ext.c`) has to behave as it does there.
//!
//! Approach: [`tandem_ebpf`] runs the object. This module is the kernel: structures that programs look into ([`types`]), the
//! functions that they call ([`functions`], [`calls`]), dispatch queues ([`queue`], [`insert`]), idle CPUs ([`idle`]), tasks
//! that run at once or are enqueued again ([`immediate`]), and the cycle of callbacks ([`cycle`], [`questions`]): `select_cpu`, `runnable` and `enqueue` where a task wakes; where a CPU decides, the
//! running task first, if it has slice left, then its local queue, the global one, `dispatch`, and the task that ran, in
//! that order; `stopping` and `running` around a switch; `tick`, where slices end. The task that ran comes into a queue a
//! moment after the choice of the next one, so that CPUs which decide at the same tick do not find each other's.
//! Each kernel of a scenario has an instance of its own, with memory and maps of its own.
//!
//! What a scheduler does wrong (an access outside of its memory, a task sent where it may not run, a call of
//! `scx_bpf_error()`) ends the run with a message: the kernel would unload it.
//!
//! What happens around the scheduler comes from the scenario: settings of cgroups and tasks change, higher classes take CPUs,
//! CPUs go offline and come back ([`world`]), and it is loaded again ([`reload`]). [`cgroups`] has the tree of those, [`cost`]
//! what decisions cost.
//!
//! Limits: decisions cost what Linux's cost, whatever the scheduler computes; its queues' locks cost nothing. The tasks of a
//! guest are all in the root cgroup. The kernel enforces no CPU bandwidth, and no core scheduling. A running task whose affinity
//! changes is not stopped and started for that. The CPUs run at one frequency.

mod calls;
mod cgroups;
mod cost;
mod cycle;
mod functions;
mod idle;
mod immediate;
mod insert;
mod iteration;
mod kernel;
mod masks;
mod number_map;
mod questions;
mod queue;
mod reload;
mod settings;
mod start;
mod types;
mod world;

pub use functions::environment;
pub(crate) use reload::Ending;
pub use settings::{KernelVersion, OwnCounters, Preferences, SchedExtSettings};

pub(crate) use world::Taker;

use cost::Costs;
use kernel::{Purpose, ScxKernel};
use tandem_ebpf::{FunctionId, Instance};

/// A scheduler for sched_ext.
#[derive(Debug)]
pub struct SchedExt {
    settings: SchedExtSettings,
    /// None if it could not even be made; there is a failure then.
    instance: Option<Instance>,
    kernel: ScxKernel,
    failure: Option<String>,
    /// Counters.
    wakeups: u64,
    kicks: u64,
    decisions: u64,
    costs: Costs,
    /// [`ScxKernel::visited`] when the present decision began.
    visited_before: u64,
    /// What the scheduler's own counters were when counting began.
    counted_before: Vec<u64>,
}

impl SchedExt {
    /// Calls a callback, if there is one and nothing has gone wrong yet; its result, or 0.
    fn call<const COUNT: usize>(
        &mut self,
        callback: Option<FunctionId>,
        purpose: Purpose,
        arguments: &[u64; COUNT],
    ) -> u64 {
        let (Some(callback), Some(instance), None) = (callback, &mut self.instance, &self.failure) else {
            return 0;
        };
        self.kernel.purpose = purpose;
        let before = Self::spent(&self.kernel, instance);
        let result = instance.call_back(&mut self.kernel, callback, arguments);
        self.kernel.purpose = Purpose::Other;
        self.costs.called(callback, before, Self::spent(&self.kernel, instance));
        match result {
            Ok(result) => result,
            Err(fault) => {
                self.fail(fault.to_string());
                0
            }
        }
    }

    /// The scheduler's own counters, summed over the CPUs.
    fn own_counters(&self) -> Vec<u64> {
        let (Some(own), Some(instance)) = (&self.settings.counters, &self.instance) else {
            return Vec::new();
        };
        let state = instance.state();
        let mut sums = vec![0; own.names.len()];
        let Some(map) = state.map(own.map) else { return sums };
        for cpu in 0..self.kernel.cpu_count {
            let bytes = state.element(map, &0u32.to_le_bytes(), cpu).unwrap_or_default();
            for (sum, value) in sums.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *sum += u64::from_le_bytes(*value);
            }
        }
        sums
    }

    fn fail(&mut self, message: String) {
        self.failure.get_or_insert(message);
    }
}
