//! Where the vCPUs of a VM, or the processes of a set, may and prefer to run.

use super::build::{Builder, Home, nodes_of};
use super::file::{AffinityChangeTable, AffinityTable, VmTable};
use tandem_file::file_error::FileError;
use tandem_file::located::{Located, SourceFile};
use tandem_file::units::Duration;
use tandem_machine::parse_cpulist;
use tandem_sim::scenario::{Affinity, AffinityChange, Which};

impl Builder<'_> {
    /// The home that an affinity of a table's own gives.
    pub(super) fn own_home(&self, affinity: Option<&AffinityTable>) -> Result<Option<Home>, FileError> {
        let Some(affinity) = affinity else {
            return Ok(None);
        };
        let affinity = self.affinity(affinity.hard.as_ref(), affinity.soft.as_ref())?;
        let nodes = nodes_of(affinity.soft.as_ref().unwrap_or(&affinity.hard), self.machine());
        Ok(Some(Home { affinity, nodes }))
    }

    /// The affinity of each of so many vCPUs, if some have their own; the others have that of the home.
    pub(super) fn vcpu_affinities(
        &self,
        table: &VmTable,
        vcpus: usize,
        home: Option<&Home>,
    ) -> Result<Option<Vec<Affinity>>, FileError> {
        if table.vcpu_affinity.is_empty() {
            return Ok(None);
        }
        let of_vm = home.map_or_else(|| Home::everywhere(self.machine()).affinity, |it| it.affinity.clone());
        let mut affinities = vec![None; vcpus];
        for own in &table.vcpu_affinity {
            let affinity = self.affinity(own.hard.as_ref(), own.soft.as_ref())?;
            for vcpu in numbers(&own.vcpus, vcpus, self.source())? {
                if affinities[vcpu].replace(affinity.clone()).is_some() {
                    let message = format!("vCPU {vcpu} has an affinity already; name it once");
                    return Err(self.source().error(own.vcpus.span(), message));
                }
            }
        }
        Ok(Some(affinities.into_iter().map(|own| own.unwrap_or_else(|| of_vm.clone())).collect()))
    }

    /// The home that vCPUs have together, each of which has an affinity of its own.
    pub(super) fn home_of(&self, affinities: &[Affinity]) -> Home {
        let everywhere = Home::everywhere(self.machine());
        let mut nodes: Vec<_> = affinities
            .iter()
            .flat_map(|it| nodes_of(it.soft.as_ref().unwrap_or(&it.hard), self.machine()))
            .collect();
        nodes.sort_unstable();
        nodes.dedup();
        Home { nodes, ..everywhere }
    }

    /// What changes during the run, for a VM with so many vCPUs; `None`: for processes.
    pub(super) fn affinity_changes(
        &self,
        tables: &[AffinityChangeTable],
        vcpus: Option<usize>,
    ) -> Result<Vec<AffinityChange>, FileError> {
        let file = &self.scenario.file;
        let end = Duration { ns: file.warmup.ns + file.length.ns };
        let mut previous = Duration::default();
        let mut changes = Vec::new();
        for table in tables {
            let at = *table.at;
            if at < previous || at >= end {
                let message = format!(
                    "the change comes at {at}; allowed are times from {previous} (the list is in the order of time) \
                     to before {end} (the end of the run)"
                );
                return Err(self.source().error(table.at.span(), message));
            }
            previous = at;
            let affinity = self.affinity(table.hard.as_ref(), table.soft.as_ref())?;
            let tasks = which(table.vcpus.as_ref(), vcpus, self.source())?;
            changes.push(AffinityChange { at_ns: at.ns, tasks, affinity });
        }
        Ok(changes)
    }

    /// The CPUs of a hard affinity, all that are not isolated if there is none, and of a soft one.
    fn affinity(
        &self,
        hard: Option<&Located<String>>,
        soft: Option<&Located<String>>,
    ) -> Result<Affinity, FileError> {
        let hard =
            hard.map_or_else(|| Ok(self.machine().housekeeping_cpus().clone()), |list| self.cpus(list))?;
        let Some(list) = soft else {
            return Ok(Affinity::hard(hard));
        };
        let soft = self.cpus(list)?;
        if !soft.is_subset(&hard) {
            let message = format!(
                "the soft affinity has CPUs outside the hard one; allowed are CPUs of \"{}\"",
                self.machine().os_list(&hard),
            );
            return Err(self.source().error(list.span(), message));
        }
        Ok(Affinity { hard: hard.into(), soft: Some(soft.into()) })
    }
}

/// The vCPUs of a list, for a VM with so many; `None`: for processes, which have none. All if there is no list.
pub(super) fn which(
    list: Option<&Located<String>>,
    vcpus: Option<usize>,
    source: &SourceFile,
) -> Result<Which, FileError> {
    match (list, vcpus) {
        (None, _) => Ok(Which::All),
        (Some(list), Some(vcpus)) => numbers(list, vcpus, source).map(Which::These),
        (Some(list), None) => {
            let message = "processes have no vCPUs; leave `vcpus` out";
            Err(source.error(list.span(), message))
        }
    }
}

/// The numbers of a list of vCPUs of a VM with so many.
fn numbers(list: &Located<String>, vcpus: usize, source: &SourceFile) -> Result<Vec<usize>, FileError> {
    let numbers: Vec<usize> =
        parse_cpulist(list).unwrap_or_default().into_iter().map(|number| number as usize).collect();
    if numbers.is_empty() || numbers.iter().any(|number| *number >= vcpus) {
        let last = vcpus - 1;
        let message = format!(
            "`{}` names no vCPUs of the VM; allowed are numbers and ranges within 0 to {last}",
            **list
        );
        return Err(source.error(list.span(), message));
    }
    Ok(numbers)
}
