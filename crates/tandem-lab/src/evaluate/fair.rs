//! What is fair: the CPU time that each VM of a case is due, whoever schedules it.
//!
//! **Problem.** A floor below which no VM may be sold must not depend on a scheduler that is itself unfair to some: under Linux, a
//! guest whose tasks spin for locks may get a tenth of its share.
//!
//! **Approach.** What a VM could use is what it takes when it runs alone on the machine, or what it got, if that is more: work takes
//! longer beside a busy thread of the same core. Among these demands the CPUs are shared in the ratio of the weights,
//! nobody getting more than its demand (weighted max-min, [`fair_rates`]). Some schedulers share between VMs, others between their
//! vCPUs; a VM is due the smaller of the two.
//!
//! **Limits.** CPU time, not work: that a VM does little with what it gets shows in its work.

use crate::check::oracle::{Claim, fair_rates};
use serde::{Deserialize, Serialize};
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::CpuId;
use tandem_sim::RunError;
use tandem_sim::metrics::TaskMetrics;
use tandem_sim::scenario::Scenario;

/// A case as far as shares are concerned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    /// CPUs of the machine.
    pub cpus: usize,
    /// Measured time, ns.
    pub length_ns: u64,
    /// VMs, or sets of processes.
    pub all: Vec<Sharer>,
}

/// Who has a share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sharer {
    /// Its weight against others.
    pub weight: u32,
    /// Its tasks.
    pub tasks: usize,
    /// CPU time that it takes when it has the machine to itself, ns.
    pub alone_ns: u64,
}

impl Shares {
    /// Those of a scenario, under the policy that it has.
    ///
    /// # Errors
    /// By a mistake of the suite alone.
    pub fn new(scenario: &Scenario, seed: u64) -> Result<Self, RunError> {
        let sharer = |(at, workload): (usize, &tandem_sim::scenario::Workload)| {
            Ok(Sharer {
                weight: workload.weight,
                tasks: workload.task_count(),
                alone_ns: alone_ns(scenario, at, seed)?,
            })
        };
        Ok(Self {
            cpus: scenario.machine.cpu_count(),
            length_ns: scenario.length_ns,
            all: scenario.measured().enumerate().map(sharer).collect::<Result<_, RunError>>()?,
        })
    }

    /// CPU time that each is due in a run in which they got so much, ns.
    pub fn fair_ns(&self, got_ns: &[u64]) -> Vec<f64> {
        let (by_vm, by_task) = (self.shares_ns(got_ns, |_| 1), self.shares_ns(got_ns, |sharer| sharer.tasks));
        by_vm.into_iter().zip(by_task).map(|(a, b)| a.min(b)).collect()
    }

    /// The same if the CPUs are shared between so many equal parts of each.
    fn shares_ns(&self, got_ns: &[u64], parts: impl Fn(&Sharer) -> usize) -> Vec<f64> {
        let mask = CpuMask::from_cpus(self.cpus, (0..self.cpus).map(CpuId::from));
        let length_ns = self.length_ns.max(1) as f64;
        let claim = |(sharer, &got_ns): (&Sharer, &u64)| {
            let count = parts(sharer).max(1);
            // What has no demand would have no level at which it has enough.
            let demand_ns = sharer.alone_ns.max(got_ns).max(1) as f64;
            let at_most = demand_ns / length_ns / count as f64;
            Claim { mask: 0, weight: f64::from(sharer.weight), at_most, count }
        };
        let claims: Vec<Claim> = self.all.iter().zip(got_ns).map(claim).collect();
        let rates = fair_rates(&[mask], &[0.0], &claims);
        rates.iter().zip(&claims).map(|(rate, claim)| rate * claim.count as f64 * length_ns).collect()
    }
}

/// CPU time of a workload that has the machine to itself, ns.
fn alone_ns(scenario: &Scenario, at: usize, seed: u64) -> Result<u64, RunError> {
    let mut alone = scenario.clone();
    alone.workloads = scenario.measured().skip(at).take(1).cloned().collect();
    let metrics = tandem_sim::run(&alone, seed)?;
    Ok(metrics.vms.iter().map(|vm| TaskMetrics::sum(&vm.vcpus).run_ns).sum())
}
