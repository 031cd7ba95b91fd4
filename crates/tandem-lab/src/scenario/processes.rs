//! From the processes of a scenario file, which run on the host outside of VMs, to the engine's.

use super::build::{Builder, Home, count_or, nodes_of};
use super::compile::{Compiler, Used};
use super::events::nice;
use super::file::ProcessesTable;
use super::hackbench;
use super::memory::MemoryKeys;
use super::pages::pages;
use std::sync::Arc;
use tandem_file::file_error::FileError;
use tandem_machine::ids::NodeId;
use tandem_sim::program::Program;
use tandem_sim::scenario::{HostTask, PROCESSES_MAX, Pages, TaskPolicy, Workload, WorkloadKind};

/// Most sets of one table.
const SETS_MAX: u32 = 10_000;

/// What a process does, its nice value and its policy.
type ProcessProgram = (Arc<Program>, i8, TaskPolicy);

impl Builder<'_> {
    /// Adds the sets of processes of one table.
    pub(super) fn add_processes(&mut self, table: &ProcessesTable) -> Result<(), FileError> {
        let source = &self.scenario.source;
        let sets = count_or(&table.count, "`count`", 0..=SETS_MAX, 1, source)?;
        let weight =
            count_or(&table.weight, "`weight`", Workload::WEIGHTS, Workload::DEFAULT_WEIGHT, source)?;
        let cgroup = self.cgroup_of(table.cgroup.as_ref())?;
        let (programs, used) = self.programs_of_set(table)?;
        self.count_processes(&table.group, u64::from(sets) * programs.len() as u64)?;
        let pages = pages(table.huge_pages.as_ref(), Pages::Small, source)?;
        let homes = self.homes(table)?;
        let affinity_changes = self.affinity_changes(&table.affinity_changes, None)?;
        for set in 0..sets as usize {
            let (home, home_nodes) = &homes[set % homes.len()];
            let keys = MemoryKeys {
                size: &table.memory,
                policy: table.memory_policy.as_ref(),
                home_nodes,
                is_there: true,
            };
            let memory = self.lay_memory(keys, programs.len() as u32, home)?;
            let task = |(program, nice, policy): &ProcessProgram| HostTask {
                nice: *nice,
                policy: *policy,
                ..HostTask::new(program.clone(), home.affinity.clone())
            };
            let tasks = programs.iter().map(task).collect();
            let kind = match table.threads {
                true => WorkloadKind::Threads(tasks),
                false => WorkloadKind::Processes(tasks),
            };
            self.workloads.push(Workload {
                group: (*table.group).clone(),
                cgroup,
                weight,
                channels: used.channels,
                counters: used.counters.clone(),
                affinity_changes: affinity_changes.clone(),
                has_past: table.has_past,
                memory_bytes: table.memory.bytes,
                first_touch: memory.first_touch,
                memory_policy: memory.policy,
                pages,
                ..Workload::new(format!("{}-{set}", *table.group), kind, memory.shares)
            });
        }
        Ok(())
    }

    /// The program of each process of a set, and what the programs use.
    fn programs_of_set(&self, table: &ProcessesTable) -> Result<(Vec<ProcessProgram>, Used), FileError> {
        let source = self.source();
        if table.hackbench.is_some() != table.processes.is_empty() {
            let message =
                "the processes need either `hackbench` or a `process` list, which says what they do";
            return Err(source.error(table.group.span(), message));
        }
        if let Some(hackbench) = &table.hackbench {
            let (programs, used) = hackbench::build(hackbench, source)?;
            let usual = |program| (program, 0, TaskPolicy::Normal);
            return Ok((programs.into_iter().map(usual).collect(), used));
        }
        let mut compiler = Compiler::new(source, &self.scenario.profiles, false);
        let mut programs = Vec::new();
        for process in &table.processes {
            let copies = count_or(&process.copies, "`copies`", 0..=PROCESSES_MAX as u32, 1, source)?;
            let program = Arc::new(compiler.program(self.scenario.program(&process.program)?)?);
            let nice = nice(&process.nice, source)?;
            let policy = process.policy.map_or(TaskPolicy::Normal, |word| word.0);
            programs.extend(std::iter::repeat_n((program, nice, policy), copies as usize));
        }
        if programs.is_empty() {
            return Err(source.error(table.group.span(), "there is no process; at least one is needed"));
        }
        Ok((programs, compiler.finish()?))
    }

    /// Where the sets run, in turn, with the nodes that they call home, whatever the placement makes of them.
    fn homes(&self, table: &ProcessesTable) -> Result<Vec<(Home, Vec<NodeId>)>, FileError> {
        if let Some(own) = self.own_home(table.affinity.as_ref())? {
            return match table.homes.first() {
                None => Ok(vec![(own, Vec::new())]),
                Some(home) => {
                    let message = "`affinity` says where they run, and so do `homes`; leave one out";
                    Err(self.source().error(home.span(), message))
                }
            };
        }
        if table.homes.is_empty() {
            return Ok(vec![(Home::everywhere(self.machine()), Vec::new())]);
        }
        let home = |list| {
            let cpus = self.cpus(list)?;
            let nodes = nodes_of(&cpus, self.machine());
            Ok((Home::placed(self.placement, cpus, nodes.clone(), self.machine()), nodes))
        };
        table.homes.iter().map(home).collect()
    }
}
