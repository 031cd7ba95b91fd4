//! Updates home nodes after CPUs came or went: the CPUs of a set of nodes have changed then.

use super::{Instance, PreferenceError, Preferences, SchedulerError};
use crate::cgroups::Hierarchy;
use crate::tasks;
use tandem_machine::{Cpu, Machine};
use tandem_settings::{Asker, Place, Preference, Subject};

/// Updates the CPUs of every task and cgroup that prefers nodes to those that the nodes have now. Nodes that
/// have lost all their CPUs stay in the preference, so that they are preferred again when CPUs come back.
///
/// # Errors
/// If the scheduler is gone or refuses.
pub fn rehome(instance: &Instance, machine: &Machine) -> Result<(), SchedulerError> {
    let preferences = Preferences::open(instance.directory())?;
    let root = instance.kernel().root();
    let threads = tasks::processes(root).into_iter().flat_map(|pid| tasks::threads(root, pid));
    let hierarchy = Hierarchy::find(root).ok();
    let cgroups = hierarchy.iter().flat_map(Hierarchy::all).map(|cgroup| Subject::Cgroup(cgroup.id));
    let subjects = threads.map(Subject::Task).chain(cgroups);
    for subject in subjects {
        match rehome_one(&preferences, subject, machine) {
            Ok(()) | Err(PreferenceError::Gone) => {}
            Err(PreferenceError::Scheduler(error)) => return Err(error),
            Err(error) => {
                let cause = error.to_string();
                return Err(SchedulerError::Refused { action: "move homes to other CPUs".into(), cause });
            }
        }
    }
    Ok(())
}

fn rehome_one(preferences: &Preferences, subject: Subject, machine: &Machine) -> Result<(), PreferenceError> {
    let Some(held) = preferences.get(subject, Asker::Root)? else { return Ok(()) };
    let Preference { place: Some(Place::Nodes { nodes, cpus: old }), latency_critical } = held.preference
    else {
        return Ok(());
    };
    let cpus = cpus_of_nodes(machine, &nodes);
    if cpus.is_empty() || cpus == old {
        return Ok(());
    }
    let place = Some(Place::Nodes { nodes, cpus });
    let asker = if held.by_agent { Asker::Agent } else { Asker::Root };
    preferences.set(subject, &Preference { place, latency_critical }, asker)
}

/// The CPUs of these nodes that are not isolated, in ascending order. Both are the kernel's numbers.
pub fn cpus_of_nodes(machine: &Machine, nodes: &[u32]) -> Vec<u32> {
    let cpus = machine.housekeeping_cpus().iter().map(|cpu| machine.cpu(cpu));
    let is_in = |cpu: &&Cpu| nodes.contains(&machine.nodes()[cpu.node.index()].os_index);
    cpus.filter(is_in).map(|cpu| cpu.os_index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_machine::{MachineBuilder, preset};

    #[test]
    fn nodes_have_the_cpus_of_the_machine() {
        let machine = preset("westmere-ex-4s").unwrap();
        assert_eq!(cpus_of_nodes(&machine, &[3]), (60..80).collect::<Vec<_>>());
        assert_eq!(cpus_of_nodes(&machine, &[0, 9]), (0..20).collect::<Vec<_>>());
        assert_eq!(cpus_of_nodes(&machine, &[9]), [0; 0]);
    }

    #[test]
    fn isolated_cpus_are_no_part_of_a_home() {
        let machine = MachineBuilder::symmetric(2, 4, 1).isolated([2, 3, 4, 5, 6, 7]).build().unwrap();
        assert_eq!(cpus_of_nodes(&machine, &[0, 1]), [0, 1]);
        assert_eq!(cpus_of_nodes(&machine, &[1]), [0; 0]);
    }
}
