//! Whether gates, and tasks that other tasks start, fit together over the whole scenario.

use crate::program::Op;
use crate::scenario::Scenario;
use std::collections::HashSet;

/// What programs have used so far.
struct Used {
    /// For each gate: the kernel of the programs that use it, 0 for the host's, once one does.
    gates: Vec<Option<usize>>,
    /// For each gate: an operation passes it.
    passed: Vec<bool>,
    /// For each workload and task of the host: an operation starts it.
    started: Vec<Vec<bool>>,
    /// Tasks of guests that operations start: the workload, and the number.
    started_in_guests: HashSet<(usize, usize)>,
}

pub(super) fn check(scenario: &Scenario) -> Result<(), String> {
    let mut used = Used {
        gates: vec![None; scenario.gates],
        passed: vec![false; scenario.gates],
        started: scenario.workloads.iter().map(|workload| vec![false; workload.task_count()]).collect(),
        started_in_guests: HashSet::new(),
    };
    for (at, workload) in scenario.workloads.iter().enumerate() {
        for task in workload.programs() {
            used.check_list(scenario, 0, &task.program.ops, false)?;
        }
        for program in workload.guest().iter().flat_map(|guest| &guest.programs) {
            used.check_list(scenario, at + 1, &program.program.ops, false)?;
        }
    }
    for (workload, started) in scenario.workloads.iter().zip(&used.started) {
        if let Some(task) = (0..started.len()).find(|&task| workload.is_forked(task) && !started[task]) {
            return Err(format!("no program starts task {task} of '{}'", workload.name));
        }
    }
    Ok(())
}

impl Used {
    fn check_list(
        &mut self,
        scenario: &Scenario,
        kernel: usize,
        ops: &[Op],
        repeats: bool,
    ) -> Result<(), String> {
        for op in ops {
            match *op {
                Op::Pass { gate } => {
                    self.use_gate(gate, kernel)?;
                    if repeats || std::mem::replace(&mut self.passed[gate], true) {
                        return Err(format!("gate {gate} is passed more than once"));
                    }
                }
                Op::Open { gate, .. } => self.use_gate(gate, kernel)?,
                Op::StartTask { workload, task } => {
                    let is_new = match kernel {
                        0 => self.starts_in_host(scenario, workload, task)?,
                        _ => self.starts_in_guest(scenario, kernel - 1, workload, task)?,
                    };
                    if repeats || !is_new {
                        return Err(format!("task {task} of a workload is started more than once"));
                    }
                }
                Op::Repeat { ref body, .. } => self.check_list(scenario, kernel, body, true)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// A task of the host is started; whether it is the first time.
    fn starts_in_host(&mut self, scenario: &Scenario, workload: usize, task: usize) -> Result<bool, String> {
        match scenario.workloads.get(workload).is_some_and(|workload| workload.is_forked(task)) {
            true => Ok(!std::mem::replace(&mut self.started[workload][task], true)),
            false => Err("a program starts a task of the host that it cannot start".into()),
        }
    }

    /// A task of the guest of workload `own` is started by another of its tasks; whether it is the first time.
    fn starts_in_guest(
        &mut self,
        scenario: &Scenario,
        own: usize,
        workload: usize,
        task: usize,
    ) -> Result<bool, String> {
        let processes = scenario.workloads[own].guest().map_or(&[][..], |guest| &guest.processes);
        let tasks: u64 = processes.iter().map(|process| u64::from(process.copies)).sum();
        match workload == own && (task as u64) < tasks {
            true => Ok(self.started_in_guests.insert((own, task))),
            false => Err("a program starts a task of a guest that is not there".into()),
        }
    }

    fn use_gate(&mut self, gate: usize, kernel: usize) -> Result<(), String> {
        let count = self.gates.len();
        let known = self.gates.get_mut(gate).ok_or(format!("gate {gate} is used, but there are {count}"))?;
        match known.replace(kernel) {
            Some(other) if other != kernel => Err(format!("gate {gate} is used by two kernels")),
            _ => Ok(()),
        }
    }
}
