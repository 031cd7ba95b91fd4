//! Where the VMs or processes of one group run, and where their memory lies, as a policy says it: instead of
//! their own tables.

use super::super::file::{AffinityTable, ProcessesTable, VcpuAffinityTable, VmTable};
use super::super::memory::MemoryPolicyForm;
use super::super::pages::HugePagesForm;
use schemars::JsonSchema;
use serde::Deserialize;
use std::ops::Range;
use tandem_file::file_error::FileError;
use tandem_file::located::{Located, SourceFile};

/// What an administrator decides about the VMs or processes of a group. Each key takes the place of that key in
/// their own table.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupPolicyTable {
    /// Where their memory lies at the start.
    pub memory_policy: Option<MemoryPolicyForm>,
    /// The huge pages of their memory.
    pub huge_pages: Option<HugePagesForm>,
    /// Where they may and prefer to run, whatever the policy's placement says; processes have no homes then.
    pub affinity: Option<AffinityTable>,
    /// Where single vCPUs of each VM may and prefer to run.
    pub vcpu_affinity: Option<Vec<VcpuAffinityTable>>,
    /// CPUs such as "node:0" that each set of processes calls its home, in turn; they have no affinity then.
    pub homes: Option<Vec<Located<String>>>,
}

impl GroupPolicyTable {
    /// This table, with what it leaves out taken from `base`.
    pub(super) fn over(self, base: Self) -> Self {
        laid_over!(self, base: memory_policy, huge_pages, affinity, vcpu_affinity, homes)
    }

    /// The table of VMs that this policy makes of one.
    ///
    /// # Errors
    /// If it has what only processes have.
    pub(in super::super) fn of_vms(
        &self,
        table: &VmTable,
        source: &SourceFile,
    ) -> Result<VmTable, FileError> {
        let (mut table, at) = (table.clone(), table.group.span());
        if self.homes.is_some() {
            let message = format!(
                "the policy gives homes to the VMs of group `{}`, but `homes` are for [[processes]]; use `affinity` or \
                 `placement`",
                *table.group
            );
            return Err(source.error(at, message));
        }
        replace(&mut table.memory_policy, self.memory_policy.as_ref(), &at);
        replace(&mut table.huge_pages, self.huge_pages.as_ref(), &at);
        if let Some(affinity) = &self.affinity {
            table.affinity = Some(relocated_affinity(affinity, &at));
        }
        if let Some(own) = &self.vcpu_affinity {
            table.vcpu_affinity = (own.iter())
                .map(|it| VcpuAffinityTable {
                    vcpus: relocated(&it.vcpus, &at),
                    hard: it.hard.as_ref().map(|list| relocated(list, &at)),
                    soft: it.soft.as_ref().map(|list| relocated(list, &at)),
                })
                .collect();
        }
        Ok(table)
    }

    /// The table of processes that this policy makes of one.
    ///
    /// # Errors
    /// If it has what only VMs have.
    pub(in super::super) fn of_processes(
        &self,
        table: &ProcessesTable,
        source: &SourceFile,
    ) -> Result<ProcessesTable, FileError> {
        let (mut table, at) = (table.clone(), table.group.span());
        if self.vcpu_affinity.is_some() {
            let message = format!(
                "the policy has a `vcpu_affinity` for the processes of group `{}`, which have no vCPUs; use `affinity`",
                *table.group
            );
            return Err(source.error(at, message));
        }
        replace(&mut table.memory_policy, self.memory_policy.as_ref(), &at);
        replace(&mut table.huge_pages, self.huge_pages.as_ref(), &at);
        if let Some(affinity) = &self.affinity {
            table.affinity = Some(relocated_affinity(affinity, &at));
            table.homes.clear();
        }
        if let Some(homes) = &self.homes {
            table.homes = homes.iter().map(|home| relocated(home, &at)).collect();
            table.affinity = self.affinity.as_ref().map(|affinity| relocated_affinity(affinity, &at));
        }
        Ok(table)
    }
}

// A policy may stand in another file than the table: what it says gets the place of the table's group, which is
// where errors about it point to.

fn relocated(text: &Located<String>, at: &Range<usize>) -> Located<String> {
    Located::at(at.clone(), (**text).clone())
}

fn relocated_affinity(affinity: &AffinityTable, at: &Range<usize>) -> AffinityTable {
    AffinityTable {
        hard: affinity.hard.as_ref().map(|list| relocated(list, at)),
        soft: affinity.soft.as_ref().map(|list| relocated(list, at)),
    }
}

fn replace<T: Clone>(own: &mut Option<Located<T>>, value: Option<&T>, at: &Range<usize>) {
    if let Some(value) = value {
        *own = Some(Located::at(at.clone(), value.clone()));
    }
}
