//! Traces as JSON lines, to be read by programs: one object a line.
//!
//! The first line describes the run, the last one its end. In between is a line for each scheduling event,
//! and one for each name that a guest's task gets. An object without `guest` belongs to the host's kernel.

use super::names::Names;
use super::output::Output;
use super::selection::{Filter, Selection};
use super::{TraceError, TracedRun};
use crate::summary::scenario_hash;
use serde::Serialize;
use std::io::{self, Write};
use tandem_machine::ids::{CpuId, KernelId, TaskId};
use tandem_sim::trace::{Event, EventKind, Observer};

/// The first line.
#[derive(Serialize)]
struct Header<'a> {
    version: &'static str,
    scenario: &'a str,
    scenario_hash: String,
    seed: u64,
    machine: &'a str,
    pcpus: usize,
    vms: Vec<VmHeader<'a>>,
    /// Absent if the whole run is traced.
    #[serde(skip_serializing_if = "Option::is_none")]
    selection: Option<&'a Selection>,
}

#[derive(Serialize)]
struct VmHeader<'a> {
    name: &'a str,
    group: &'a str,
    vcpus: usize,
    has_guest_kernel: bool,
}

/// Any other line.
#[derive(Serialize)]
struct Line<'a> {
    at_ns: u64,
    kind: &'static str,
    /// The VM of the kernel; absent for the host's.
    #[serde(skip_serializing_if = "Option::is_none")]
    guest: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<u32>,
    #[serde(flatten)]
    task: Option<TaskFields<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<Waker<'a>>,
}

#[derive(Serialize)]
struct TaskFields<'a> {
    task: &'a str,
    task_id: u32,
}

#[derive(Serialize)]
struct Waker<'a> {
    cpu: u32,
    #[serde(flatten)]
    task: Option<TaskFields<'a>>,
}

/// An observer that writes JSON lines. Its memory does not grow with the length of the run.
pub struct JsonLines<W> {
    names: Names,
    filter: Filter,
    vms: Vec<String>,
    out: Output<W>,
    /// Kept, so that events need no allocation.
    line: Vec<u8>,
}

impl<W: Write> JsonLines<W> {
    /// Begins the trace of a run.
    ///
    /// # Errors
    /// If the run has no such part as is to be traced.
    pub fn new(out: W, run: TracedRun) -> Result<Self, TraceError> {
        let filter = run.selection.filter(run.scenario).map_err(TraceError::Selection)?;
        let scenario = run.scenario;
        let vms = scenario.workloads.iter();
        let mut lines = Self {
            names: Names::new(scenario),
            filter,
            vms: vms.clone().map(|vm| vm.name.clone()).collect(),
            out: Output::new(out),
            line: Vec::new(),
        };
        let header = Header {
            version: env!("CARGO_PKG_VERSION"),
            scenario: run.scenario_name,
            scenario_hash: format!("{:016x}", scenario_hash(scenario)),
            seed: run.seed,
            machine: scenario.machine.name(),
            pcpus: scenario.machine.cpu_count(),
            vms: vms
                .map(|vm| VmHeader {
                    name: &vm.name,
                    group: &vm.group,
                    vcpus: vm.task_count(),
                    has_guest_kernel: vm.guest().is_some(),
                })
                .collect(),
            selection: Some(run.selection).filter(|selection| !selection.is_all()),
        };
        write_line(&mut lines.out, &mut lines.line, &header);
        Ok(lines)
    }

    /// Ends the trace at the end of the run, and returns the writer.
    ///
    /// # Errors
    /// The first error of the writer.
    pub fn finish(mut self, end_ns: u64) -> io::Result<W> {
        let end = Line { at_ns: end_ns, kind: "end", guest: None, cpu: None, task: None, by: None };
        write_line(&mut self.out, &mut self.line, &end);
        self.out.finish()
    }
}

impl<W: Write> Observer for JsonLines<W> {
    fn observe(&mut self, event: Event) {
        if !self.filter.shows(event) {
            return;
        }
        let Self { names, vms, out, line, .. } = self;
        let kernel = event.kernel;
        let task = |task: TaskId| TaskFields { task: names.text(names.of(kernel, task)), task_id: task.0 };
        let waker =
            |(cpu, by): (CpuId, Option<TaskId>)| Waker { cpu: names.cpu(kernel, cpu), task: by.map(task) };
        let object = Line {
            at_ns: event.at_ns,
            kind: kind_name(event.kind),
            guest: guest(vms, kernel),
            cpu: Some(names.cpu(kernel, event.cpu)),
            task: Some(task(event.task)),
            by: event.by.map(waker),
        };
        write_line(out, line, &object);
    }

    fn named(&mut self, at_ns: u64, kernel: KernelId, task: TaskId, name: &str) {
        let Self { names, filter, vms, out, line } = self;
        let Some(guest) = guest(vms, kernel) else { return };
        names.set(kernel, task, name);
        if !filter.shows_name(at_ns, kernel) {
            return;
        }
        let task = Some(TaskFields { task: name, task_id: task.0 });
        write_line(out, line, &Line { at_ns, kind: "name", guest: Some(guest), cpu: None, task, by: None });
    }
}

/// The name of the VM whose kernel it is; none for the host's.
fn guest(vms: &[String], kernel: KernelId) -> Option<&str> {
    kernel.index().checked_sub(1).map(|vm| vms[vm].as_str())
}

fn kind_name(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Wake => "wake",
        EventKind::Start => "start",
        EventKind::Continue => "continue",
        EventKind::Preempt => "preempt",
        EventKind::Yield => "yield",
        EventKind::Block => "block",
        EventKind::Exit => "exit",
    }
}

fn write_line(out: &mut Output<impl Write>, line: &mut Vec<u8>, object: &impl Serialize) {
    line.clear();
    serde_json::to_writer(&mut *line, object).expect("memory takes every object of strings and numbers");
    line.push(b'\n');
    out.write(line);
}
