//! Properties of every scenario with guest kernels, under any programs and any policy of the host.

use crate::common::random::some_cases;
use crate::common::random_guests::scenario_with_guests;
use crate::common::stacked::Stacked;
use proptest::prelude::*;
use tandem_sim::cost::CostModels;
use tandem_sim::{run, run_observed};

proptest! {
    #![proptest_config(some_cases())]

    /// Each pCPU is busy, idle, or in the host's code at every instant; each vCPU is in a task, in its
    /// kernel's code, idle, or without a pCPU.
    #[test]
    fn time_is_conserved_at_both_levels(scenario in scenario_with_guests(), seed: u64) {
        let metrics = run(&scenario, seed).unwrap();
        let host = &metrics.host;
        prop_assert_eq!(host.busy_ns + host.idle_ns + host.overhead_ns, host.pcpus as u64 * metrics.length_ns);
        let vcpus = metrics.vms.iter().flat_map(|vm| &vm.vcpus);
        prop_assert_eq!(vcpus.map(|vcpu| vcpu.run_ns).sum::<u64>(), host.busy_ns);
        for vm in &metrics.vms {
            let Some(guest) = &vm.guest else { continue };
            for (cpu, vcpu) in guest.cpus.iter().zip(&vm.vcpus) {
                prop_assert_eq!(cpu.busy_ns + cpu.kernel_ns + cpu.polled_ns, vcpu.run_ns);
                prop_assert_eq!(cpu.total_ns(), metrics.length_ns);
                prop_assert!(cpu.kernel_ns == 0 || scenario.costs != CostModels::off());
            }
            let in_tasks: u64 = guest.programs.iter().map(|program| program.total.run_ns).sum();
            prop_assert_eq!(in_tasks, guest.cpus.iter().map(|cpu| cpu.busy_ns).sum::<u64>());
        }
    }

    /// Time never goes back, events of each kernel can follow each other, no CPU of any kernel has two tasks,
    /// and nothing happens on a vCPU that has no pCPU.
    #[test]
    fn guests_live_by_the_rules(scenario in scenario_with_guests(), seed: u64) {
        let mut stacked = Stacked::new(&scenario);
        let observed = run_observed(&scenario, seed, &mut stacked).unwrap();
        prop_assert_eq!(stacked.wrong, None);
        prop_assert_eq!(observed, run(&scenario, seed).unwrap(), "equal seeds give equal runs, watched or not");
    }
}
