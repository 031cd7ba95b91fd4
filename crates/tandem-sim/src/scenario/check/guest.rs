//! Whether a guest fits its VM.

use super::check_linux;
use super::program::{Limits, check_program};
use crate::scenario::{Guest, PolicySettings, Process, TIME_MAX_NS};

pub(super) fn check(guest: &Guest, vcpus: usize, limits: &Limits) -> Result<(), String> {
    let reported = guest.topology.cpu_count();
    if reported != vcpus {
        return Err(format!("its guest sees {reported} CPUs, but it has {vcpus} vCPUs"));
    }
    match &guest.policy {
        PolicySettings::Linux(settings) => check_linux(settings)?,
        PolicySettings::SchedExt(_) => {}
        PolicySettings::Credit(_) | PolicySettings::Credit2(_) => {
            return Err("credit is no policy for a guest; Linux is".into());
        }
    }
    let switch =
        guest.context_switch.map_or([0; 3], |cost| [cost.decision_ns, cost.switch_ns, cost.peer_scan_ns]);
    let interrupt_ns = guest.interrupt.map_or(0, |cost| cost.handling_ns);
    if switch.into_iter().chain([interrupt_ns]).any(|ns| ns > TIME_MAX_NS) {
        return Err("scheduling or an interrupt costs its guest more than a day".into());
    }
    guest.processes.iter().try_for_each(|process| check_process(process, guest))?;
    guest.programs.iter().try_for_each(|program| {
        check_program(&program.program, limits)
            .map_err(|problem| format!("program '{}' of its guest: {problem}", program.name))
    })
}

fn check_process(process: &Process, guest: &Guest) -> Result<(), String> {
    if process.program >= guest.programs.len() {
        return Err(format!("a process runs program {}, but there are fewer", process.program));
    }
    if !Process::NICE.contains(&process.nice) {
        return Err(format!("a process has the nice value {}; -20 to 19 are allowed", process.nice));
    }
    match &process.affinity {
        Some(cpus) if cpus.is_empty() || cpus.iter().any(|cpu| cpu.index() >= guest.topology.cpu_count()) => {
            Err("a process may run on no vCPU, or on vCPUs that there are not".into())
        }
        _ => Ok(()),
    }
}
