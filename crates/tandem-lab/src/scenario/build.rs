//! From a scenario file to the engine's scenario.

use super::amount::{AmountForm, Count, check_time, count_in};
use super::compile::Compiler;
use super::events::events;
use super::file::VmTable;
use super::memory::MemoryKeys;
use super::pages::pages;
use super::policy::{PlacementMode, PolicyTable};
use super::{ScenarioSource, cpu_list, guest};
use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use tandem_file::file_error::FileError;
use tandem_file::located::{Located, SourceFile, quoted_list};
use tandem_file::units::Size;
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::NodeId;
use tandem_machine::placement::{self, Occupancy, PlacementOutcome, Request};
use tandem_sim::program::{Amount, Program};
use tandem_sim::scenario::{
    Affinity, Cgroup, Guest, HomeChoice, HostTask, PROCESSES_MAX, Pages, PolicySettings, Scenario, Vcpus, Vm,
    Workload, WorkloadKind,
};

/// Most vCPUs of all VMs together.
const MAX_VCPUS: usize = 65_536;
/// Most vCPUs of one table, in percent of the pCPUs.
const MAX_OVERCOMMIT_PCT: u32 = 10_000;

/// Builds the scenario from the file and the whole policy, whose host scheduler `host` replaces.
pub(super) fn build(
    scenario: &ScenarioSource,
    policy: &PolicyTable,
    host: Option<PolicySettings>,
) -> Result<Scenario, FileError> {
    let ScenarioSource { source, file, machine, .. } = scenario;
    for time in [&file.length, &file.warmup].into_iter().chain(&file.costs.idle_exit) {
        check_time(**time).map_err(|message| source.error(time.span(), message))?;
    }
    if file.length.ns == 0 {
        return Err(source.error(file.length.span(), "the length is nothing; it must be longer than \"0s\""));
    }
    if file.vms.is_empty() && file.processes.is_empty() {
        return Err(source.error_in_file("nothing runs; at least one [[vm]] or [[processes]] is needed"));
    }
    let mut builder = Builder {
        scenario,
        policy,
        placement: policy.placement.unwrap_or_default(),
        occupancy: Occupancy::empty(machine),
        cgroups: Vec::new(),
        workloads: Vec::new(),
        processes: 0,
    };
    let mut declared = Vec::new();
    for table in &file.cgroups {
        builder.add_cgroup(table, &mut declared)?;
    }
    let mut groups = HashSet::new();
    for group in
        file.vms.iter().map(|table| &table.group).chain(file.processes.iter().map(|table| &table.group))
    {
        if !groups.insert(group.as_str()) {
            let message = format!(
                "the group `{}` is there twice; each [[vm]] and [[processes]] needs its own",
                **group
            );
            return Err(source.error(group.span(), message));
        }
    }
    if let Some(unknown) = policy.group.keys().find(|name| !groups.contains(name.as_str())) {
        let known = quoted_list(
            file.vms
                .iter()
                .map(|table| table.group.as_str())
                .chain(file.processes.iter().map(|table| table.group.as_str())),
        );
        let message = format!("the policy is about a group `{unknown}`, which is not there; groups: {known}");
        return Err(source.error_in_file(message));
    }
    for table in &file.vms {
        match policy.group.get(&**table.group) {
            Some(group) => builder.add_vms(&group.of_vms(table, source)?)?,
            None => builder.add_vms(table)?,
        }
    }
    for table in &file.processes {
        match policy.group.get(&**table.group) {
            Some(group) => builder.add_processes(&group.of_processes(table, source)?)?,
            None => builder.add_processes(table)?,
        }
    }
    let stop_at_count = match &file.stop_at_count {
        None => None,
        Some(count) => {
            if let Some(vm) = builder.workloads.iter().find(|vm| vm.counters.is_empty()) {
                let message = format!("group `{}` counts nothing, so the run would not stop", vm.group);
                return Err(source.error(count.span(), message));
            }
            Some(count.0)
        }
    };
    let host = match host {
        Some(host) => host,
        None => policy.host_settings(machine, source).map_err(|message| source.error_in_file(message))?,
    };
    let mut built = Scenario {
        machine: machine.clone(),
        costs: file.costs.models(&host),
        policy: host,
        pause_loop: policy.pause_loop_settings().map_err(|message| source.error_in_file(message))?,
        halt_poll_ns: policy.halt_poll_ns().map_err(|message| source.error_in_file(message))?,
        cgroups: std::mem::take(&mut builder.cgroups),
        workloads: std::mem::take(&mut builder.workloads),
        events: Vec::new(),
        gates: 0,
        homes: policy.homes(),
        warmup_ns: file.warmup.ns,
        length_ns: file.length.ns,
        stop_at_count,
    };
    built.events = events(&file.events, &builder, &built)?;
    // Last, so that they change no number of what the file says.
    if let Some(era) = file.costs.kernel_threads(&built.policy) {
        built.workloads.extend(Workload::kernel_threads(era, machine));
    }
    // What is left for the engine to find concerns several places of the file.
    built.check().map_err(|error| source.error_in_file(error.to_string()))?;
    Ok(built)
}

/// The workloads so far, and what they leave free.
pub(super) struct Builder<'a> {
    pub scenario: &'a ScenarioSource,
    policy: &'a PolicyTable,
    pub placement: PlacementMode,
    pub occupancy: Occupancy,
    pub cgroups: Vec<Cgroup>,
    pub workloads: Vec<Workload>,
    /// Processes in the host and in all guests so far.
    processes: u64,
}

/// Where a VM runs, and the nodes of its memory (none: all of them).
#[derive(Clone)]
pub(super) struct Home {
    pub affinity: Affinity,
    pub nodes: Vec<NodeId>,
}

impl Home {
    /// Every CPU of the machine that is not isolated.
    pub fn everywhere(machine: &Machine) -> Self {
        Self { affinity: Affinity::hard(machine.housekeeping_cpus().clone()), nodes: Vec::new() }
    }

    /// What a mode of placement makes of CPUs, which are on these nodes.
    pub fn placed(mode: PlacementMode, cpus: CpuMask, nodes: Vec<NodeId>, machine: &Machine) -> Self {
        let everywhere = Self::everywhere(machine);
        match mode {
            PlacementMode::None => everywhere,
            PlacementMode::Pin => Self { affinity: Affinity::hard(cpus), nodes },
            PlacementMode::Prefer | PlacementMode::Agent => {
                Self { affinity: Affinity { soft: Some(cpus.into()), ..everywhere.affinity }, nodes }
            }
        }
    }
}

impl Builder<'_> {
    pub(super) fn source(&self) -> &SourceFile {
        &self.scenario.source
    }

    pub(super) fn machine(&self) -> &Machine {
        &self.scenario.machine
    }

    /// Adds the VMs of one table.
    fn add_vms(&mut self, table: &VmTable) -> Result<(), FileError> {
        let source = &self.scenario.source;
        let number =
            |value: &Option<Located<_>>, what, range, default| count_or(value, what, range, default, source);
        let weight = number(&table.weight, "`weight`", Workload::WEIGHTS, Workload::DEFAULT_WEIGHT)?;
        let cap_pct = number(&table.cap, "`cap`", 0..=u32::MAX, 0)?;
        let cgroup = self.cgroup_of(table.cgroup.as_ref())?;
        let vcpus = self.check_size(table)?;
        let count = match &table.overcommit_pct {
            None => number(&table.count, "`count`", 0..=MAX_VCPUS as u32, 1)?,
            Some(overcommit_pct) => self.overcommitted(table, overcommit_pct, vcpus)?,
        };
        if self.workloads.iter().map(Workload::task_count).sum::<usize>() + count as usize * vcpus > MAX_VCPUS
        {
            let message =
                format!("the VMs have more than {MAX_VCPUS} vCPUs together, which is the most allowed");
            return Err(source.error(table.vcpus.span(), message));
        }

        let mut compiler = Compiler::new(source, &self.scenario.profiles, true);
        let mut guest = match &table.guest {
            None => None,
            Some(guest) => Some(guest::build(guest, self.scenario, self.policy, vcpus, &mut compiler)?),
        };
        let programs = self.programs(table, vcpus, &mut compiler)?;
        let sources = table
            .sources
            .iter()
            .map(|table| self.interrupts(table, &mut compiler))
            .collect::<Result<Vec<_>, _>>()?;
        let used = compiler.finish()?;
        if let Some(guest) = &mut guest {
            guest.locks = used.locks;
        }
        self.count_processes(&table.group, u64::from(count).saturating_mul(processes_of(guest.as_ref())))?;

        let (start, life) = (self.amount(table.start.as_ref())?, self.amount(table.life.as_ref())?);
        if let Some(life) = table.life.as_ref().filter(|_| guest.is_some()) {
            let message = "a VM with a guest kernel cannot end during the run; leave `life` or `guest` out";
            return Err(source.error(life.span(), message));
        }
        if let (Some(table), Some(life)) = (&table.life, life)
            && life.is_nothing()
        {
            return Err(source.error(table.span(), "the life takes no time; it must be longer than \"0s\""));
        }
        // QEMU asks for them (MADV_HUGEPAGE), whatever `transparent_hugepage/enabled` is, unless that is "never".
        let pages = pages(table.huge_pages.as_ref(), Pages::Transparent(100), source)?;
        let own_home = self.own_home(table.affinity.as_ref())?;
        let own_affinities = self.vcpu_affinities(table, vcpus, own_home.as_ref())?;
        let own_home = own_affinities.as_deref().map(|all| self.home_of(all)).or(own_home);
        // Homes that are chosen once, before the run, are chosen here: an error names the line of the file.
        let is_chosen_later = own_home.is_none()
            && match self.placement {
                PlacementMode::None => false,
                PlacementMode::Pin | PlacementMode::Prefer => start.is_some(),
                PlacementMode::Agent => true,
            };
        let home_choice = match (is_chosen_later, &table.memory_policy) {
            (false, _) => HomeChoice::Own,
            (true, Some(_)) => HomeChoice::Chosen,
            (true, None) => HomeChoice::ChosenWithMemory,
        };
        let affinity_changes = self.affinity_changes(&table.affinity_changes, Some(vcpus))?;
        for position in 0..count {
            let home = match is_chosen_later {
                true => Home::everywhere(&self.scenario.machine),
                false => self.home(table, vcpus, own_home.as_ref())?,
            };
            let keys = MemoryKeys {
                size: &table.memory,
                policy: table.memory_policy.as_ref(),
                home_nodes: &[],
                is_there: start.is_none(),
            };
            let memory = self.lay_memory(keys, vcpus as u32, &home)?;
            let affinities = own_affinities.clone().unwrap_or_else(|| vec![home.affinity; vcpus]);
            let vcpus = match &guest {
                Some(guest) => Vcpus::Guest { vcpus: affinities, guest: guest.clone().into() },
                None => {
                    let vcpu =
                        |(program, affinity): (&Arc<Program>, _)| HostTask::new(program.clone(), affinity);
                    Vcpus::Programs { vcpus: programs.iter().zip(affinities).map(vcpu).collect(), life }
                }
            };
            let kind = WorkloadKind::Vm(Vm { vcpus, cap_pct, start, home: home_choice });
            self.workloads.push(Workload {
                group: (*table.group).clone(),
                cgroup,
                memory_bytes: table.memory.bytes,
                first_touch: memory.first_touch,
                memory_policy: memory.policy,
                pages,
                weight,
                channels: used.channels,
                counters: used.counters.clone(),
                sources: sources.clone(),
                affinity_changes: affinity_changes.clone(),
                has_past: table.has_past,
                ..Workload::new(format!("{}-{position}", *table.group), kind, memory.shares)
            });
        }
        Ok(())
    }

    /// How many VMs with so many vCPUs fill the machine's pCPUs to that percentage.
    fn overcommitted(
        &self,
        table: &VmTable,
        overcommit_pct: &Located<Count>,
        vcpus: usize,
    ) -> Result<u32, FileError> {
        if table.count.is_some() {
            let message = "`overcommit_pct` says how many VMs there are, and so does `count`; leave one out";
            return Err(self.source().error(overcommit_pct.span(), message));
        }
        let pct = count_in(overcommit_pct, "`overcommit_pct`", 1..=MAX_OVERCOMMIT_PCT, self.source())?;
        let pcpus = self.machine().cpu_count();
        let (filled_pct, of_one_vm_pct) = (u64::from(pct) * pcpus as u64, 100 * vcpus as u64);
        if !filled_pct.is_multiple_of(of_one_vm_pct) {
            let message =
                format!("no number of VMs with {vcpus} vCPUs each comes to {pct}% of the {pcpus} pCPUs");
            return Err(self.source().error(overcommit_pct.span(), message));
        }
        Ok((filled_pct / of_one_vm_pct) as u32)
    }

    /// The vCPUs of a VM, which must not be larger than the machine.
    fn check_size(&self, table: &VmTable) -> Result<usize, FileError> {
        let pcpus = self.machine().cpu_count();
        let vcpus = table.vcpus.0;
        if vcpus == 0 || vcpus > pcpus as u64 {
            let message = format!(
                "a VM with {vcpus} vCPUs does not fit the machine `{}`; allowed are 1 to {pcpus}, its pCPUs",
                self.machine().name(),
            );
            return Err(self.source().error(table.vcpus.span(), message));
        }
        let bytes = self.machine().nodes().iter().map(|node| node.memory_bytes).sum();
        if table.memory.bytes == 0 || table.memory.bytes > bytes {
            let message = format!(
                "a VM with {} of memory does not fit the machine `{}`; more than nothing and at most {} is allowed",
                *table.memory,
                self.machine().name(),
                Size { bytes },
            );
            return Err(self.source().error(table.memory.span(), message));
        }
        Ok(vcpus as usize)
    }

    /// Adds to the number of processes, which must not become too large.
    pub(super) fn count_processes(
        &mut self,
        group: &Located<String>,
        processes: u64,
    ) -> Result<(), FileError> {
        self.processes = self.processes.saturating_add(processes);
        if self.processes > PROCESSES_MAX {
            let message = format!(
                "host and guests have more than {PROCESSES_MAX} processes together, which is the most allowed"
            );
            return Err(self.source().error(group.span(), message));
        }
        Ok(())
    }

    /// The program of each vCPU; with a guest kernel, an empty one.
    fn programs(
        &self,
        table: &VmTable,
        vcpus: usize,
        compiler: &mut Compiler,
    ) -> Result<Vec<Arc<Program>>, FileError> {
        let names = match (&table.programs, &table.guest) {
            (Some(names), None) => names,
            (None, Some(_)) => return Ok(vec![Arc::default(); vcpus]),
            (Some(names), Some(_)) => {
                let message = "a VM with a guest kernel runs no programs by itself; name them under [[vm.guest.process]]";
                return Err(self.source().error(names.span(), message));
            }
            (None, None) => {
                let message = "the VM does nothing; it needs `programs`, or a [vm.guest] with processes";
                return Err(self.source().error(table.group.span(), message));
            }
        };
        let mut programs = Vec::new();
        for name in names.iter() {
            programs.push(Arc::new(compiler.program(self.scenario.program(name)?)?));
        }
        match programs.len() {
            1 => Ok(vec![programs[0].clone(); vcpus]),
            count if count == vcpus => Ok(programs),
            count => {
                let message = format!(
                    "there are {count} programs for {vcpus} vCPUs; allowed are one for all, or one for each"
                );
                Err(self.source().error(names.span(), message))
            }
        }
    }

    /// An amount, if there is one.
    fn amount(&self, form: Option<&Located<AmountForm>>) -> Result<Option<Amount>, FileError> {
        let checked = |form: &Located<AmountForm>| {
            form.amount().map_err(|message| self.source().error(form.span(), message))
        };
        form.map(checked).transpose()
    }

    /// The CPUs of a list.
    pub(super) fn cpus(&self, list: &Located<String>) -> Result<CpuMask, FileError> {
        cpu_list::parse(list, self.machine()).map_err(|message| self.source().error(list.span(), message))
    }

    /// The home of the next VM of the table.
    fn home(&self, table: &VmTable, vcpus: usize, own: Option<&Home>) -> Result<Home, FileError> {
        let request = Request { vcpus: vcpus as u32, memory_bytes: table.memory.bytes };
        let source = &self.scenario.source;
        let machine = &self.scenario.machine;
        let no_room = |reason: String| source.error(table.memory.span(), reason);
        let home = match (own, self.placement) {
            (Some(own), _) => own.clone(),
            (None, PlacementMode::None | PlacementMode::Agent) => Home::everywhere(machine),
            (None, mode) => match placement::place(machine, &self.occupancy, request) {
                PlacementOutcome::Skipped(_) => Home::everywhere(machine),
                PlacementOutcome::NoCandidate(shortage) => return Err(no_room(shortage.to_string())),
                PlacementOutcome::Placed(placement) => {
                    let nodes = placement.best().nodes.clone();
                    Home::placed(mode, placement::home_cpus(&nodes, machine), nodes, machine)
                }
            },
        };
        Ok(home)
    }
}

/// The number that a table gives, which must be in the range, or this one.
pub(super) fn count_or(
    value: &Option<Located<Count>>,
    what: &str,
    range: RangeInclusive<u32>,
    default: u32,
    source: &SourceFile,
) -> Result<u32, FileError> {
    value.as_ref().map_or(Ok(default), |value| count_in(value, what, range, source))
}

/// Processes of a guest.
fn processes_of(guest: Option<&Guest>) -> u64 {
    guest.map_or(0, Guest::started)
}

/// The nodes that have some of the CPUs.
pub(super) fn nodes_of(cpus: &CpuMask, machine: &Machine) -> Vec<NodeId> {
    (0..machine.node_count())
        .map(NodeId::from)
        .filter(|&node| machine.node_cpus(node).intersects(cpus))
        .collect()
}
