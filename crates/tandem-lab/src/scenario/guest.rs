//! From a guest of a scenario file to the engine's.

use super::amount::{check_time, count_in};
use super::compile::{Compiler, GuestNames, takes_time};
use super::events::nice;
use super::file::{
    ContextSwitchTable, GuestTable, ProcessTable, RegularTopology, TopologyForm, TopologyName,
};
use super::policy::PolicyTable;
use super::program::{OpForm, ProgramTable, each_op};
use super::{ScenarioSource, cpu_list};
use std::sync::Arc;
use tandem_file::file_error::FileError;
use tandem_file::located::{Located, SourceFile};
use tandem_file::units::Duration;
use tandem_machine::{Machine, MachineBuilder};
use tandem_sim::cost::ContextSwitch;
use tandem_sim::program::Op;
use tandem_sim::scenario::{Guest, GuestProgram, PROCESSES_MAX, Process, TaskPolicy};

/// The guest kernel of a VM with so many vCPUs. Its programs go through the VM's compiler.
pub(super) fn build<'a>(
    table: &'a GuestTable,
    scenario: &'a ScenarioSource,
    policy: &PolicyTable,
    vcpus: usize,
    compiler: &mut Compiler<'a>,
) -> Result<Guest, FileError> {
    let source = &scenario.source;
    let topology = reported_topology(table, vcpus, &scenario.machine, source)?;
    let (names, tables): (Vec<_>, Vec<_>) = programs_of(table, scenario)?.into_iter().unzip();
    let family_channels: Vec<_> = table.family_channels.iter().map(|name| name.as_str()).collect();
    compiler.enter_guest(GuestNames { programs: names.clone(), family_channels }, &tables);
    let mut programs = Vec::new();
    for (name, table) in names.iter().zip(&tables) {
        let program = Arc::new(compiler.program(table)?);
        programs.push(GuestProgram::new(*name, program));
    }
    if let Some(at) = starts_itself_at_once(&programs) {
        let message = format!(
            "the program `{}` starts itself before any time has passed; put a `compute` before that",
            names[at],
        );
        return Err(source.error(tables[at].ops.span(), message));
    }
    for name in &table.family_channels {
        if !scenario.file.programs.values().any(|program| program.uses_channel(name)) {
            let message = format!("no program uses a channel `{}`; leave it out", **name);
            return Err(source.error(name.span(), message));
        }
    }
    let process = |table: &ProcessTable| {
        let program = names.iter().position(|name| *name == table.program.as_str());
        let program = program.expect("the programs of the processes are among the guest's");
        process(table, program, &topology, source)
    };
    let processes = table.processes.iter().map(process).collect::<Result<_, _>>()?;
    let policy = policy.guest_settings(&topology, source).map_err(|message| source.error_in_file(message))?;
    let costs = scenario.file.costs.models(&policy);
    let kernel_threads = scenario.file.costs.kernel_threads(&policy);
    let mut guest = Guest {
        policy,
        topology: Arc::new(topology),
        context_switch: match costs.context_switch {
            None => None,
            Some(default) => Some(context_switch(&table.context_switch, default, source)?),
        },
        interrupt: costs.interrupt,
        programs,
        processes,
        // Counted once all programs of the VM are compiled.
        locks: 0,
        family_channels: table.family_channels.len(),
    };
    if let Some(era) = kernel_threads {
        guest.add_kernel_threads(era);
    }
    Ok(guest)
}

/// The topology that the guest sees.
fn reported_topology(
    table: &GuestTable,
    vcpus: usize,
    machine: &Machine,
    source: &SourceFile,
) -> Result<Machine, FileError> {
    let numa = table.numa.as_deref() == Some(&true);
    let flat = RegularTopology { packages: 1, cores: vcpus as u32, threads: 1 };
    let fits_host = vcpus == machine.cpu_count();
    let (regular, place) = match &table.topology {
        None if fits_host => return Ok(machine.reported(numa)),
        None => (flat, None),
        Some(form) => match &**form {
            TopologyForm::Named(TopologyName::Host) if fits_host => return Ok(machine.reported(numa)),
            TopologyForm::Named(TopologyName::Host) => {
                let message = format!(
                    "topology \"host\" needs as many vCPUs as machine `{}` has pCPUs, {}, but the VM has {vcpus}",
                    machine.name(),
                    machine.cpu_count(),
                );
                return Err(source.error(form.span(), message));
            }
            TopologyForm::Named(TopologyName::Flat) => (flat, None),
            TopologyForm::Regular(regular) => (*regular, Some(form.span())),
        },
    };
    if let Some(numa) = table.numa.as_ref().filter(|numa| ***numa) {
        return Err(source.error(numa.span(), "only topology \"host\" can show NUMA nodes; leave `numa` out"));
    }
    let RegularTopology { packages, cores, threads } = regular;
    let cpus = [packages, cores, threads].map(u64::from).into_iter().fold(1, u64::saturating_mul);
    let place = place.unwrap_or_default();
    if cpus != vcpus as u64 {
        let message = format!("the topology has {cpus} CPUs, but the VM {vcpus} vCPUs; they must be equal");
        return Err(source.error(place, message));
    }
    let machine = MachineBuilder::symmetric(packages, cores, threads).build();
    Ok(machine.map_err(|error| source.error(place, error.to_string()))?.reported(false))
}

/// The programs that the processes run, and those that these come to start, with their names.
fn programs_of<'a>(
    table: &'a GuestTable,
    scenario: &'a ScenarioSource,
) -> Result<Vec<(&'a str, &'a ProgramTable)>, FileError> {
    let mut programs: Vec<(&str, &ProgramTable)> = Vec::new();
    let mut names: Vec<_> = table.processes.iter().map(|process| &process.program).collect();
    let mut looked_at = 0;
    while let Some(&name) = names.get(looked_at) {
        looked_at += 1;
        if programs.iter().any(|(known, _)| *known == name.as_str()) {
            continue;
        }
        let program = scenario.program(name)?;
        each_op(&program.ops, &mut |op| {
            if let OpForm::Fork(started) | OpForm::Exec(started) = op {
                names.push(started);
            }
        });
        programs.push((name.as_str(), program));
    }
    Ok(programs)
}

/// A program that forks or execs itself before any time passes: the clock would not advance.
fn starts_itself_at_once(programs: &[GuestProgram]) -> Option<usize> {
    let started: Vec<Vec<usize>> = programs
        .iter()
        .map(|program| {
            let mut started = Vec::new();
            started_at_once(&program.program.ops, &mut started);
            started
        })
        .collect();
    (0..programs.len()).find(|&from| {
        let mut reached = vec![false; programs.len()];
        let mut left = started[from].clone();
        while let Some(at) = left.pop() {
            if !std::mem::replace(&mut reached[at], true) {
                left.extend(&started[at]);
            }
        }
        reached[from]
    })
}

/// Adds the programs that the operations start before any time has passed; returns whether none has at their
/// end.
fn started_at_once(ops: &[Op], started: &mut Vec<usize>) -> bool {
    for op in ops {
        match op {
            Op::Fork { program } => started.push(*program),
            Op::Exec { program } => {
                started.push(*program);
                return false;
            }
            Op::Repeat { times: Some(0), .. } => {}
            Op::Repeat { body, .. } if !started_at_once(body, started) => return false,
            op if takes_time(op) => return false,
            _ => {}
        }
    }
    true
}

/// Processes that run from the start.
fn process(
    table: &ProcessTable,
    program: usize,
    topology: &Machine,
    source: &SourceFile,
) -> Result<Process, FileError> {
    let copies = match &table.copies {
        None => 1,
        Some(copies) => count_in(copies, "`copies`", 0..=PROCESSES_MAX as u32, source)?,
    };
    let nice = nice(&table.nice, source)?;
    let affinity = match &table.cpus {
        None => None,
        Some(list) => {
            let cpus =
                cpu_list::parse(list, topology).map_err(|message| source.error(list.span(), message))?;
            Some(Arc::new(cpus))
        }
    };
    let policy = table.policy.map_or(TaskPolicy::Normal, |word| word.0);
    Ok(Process { program, copies, nice, policy, affinity })
}

/// The costs of the table, with defaults for what it leaves out.
fn context_switch(
    table: &ContextSwitchTable,
    default: ContextSwitch,
    source: &SourceFile,
) -> Result<ContextSwitch, FileError> {
    let time = |time: &Option<Located<Duration>>, default_ns| match time {
        None => Ok(default_ns),
        Some(time) => {
            check_time(**time).map_err(|message| source.error(time.span(), message))?;
            Ok(time.ns)
        }
    };
    Ok(ContextSwitch {
        decision_ns: time(&table.decision, default.decision_ns)?,
        switch_ns: time(&table.switch, default.switch_ns)?,
        peer_scan_ns: time(&table.peer_scan, default.peer_scan_ns)?,
        ..default
    })
}
