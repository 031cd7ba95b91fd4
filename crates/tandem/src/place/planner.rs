//! By the planner that gives homes: beside the VMs of this host, or those of `--vm`.

use super::present::{PresentVm, wrong};
use super::{Answer, for_number, name_nodes, os_numbers};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;
use tandem_file::units::Size;
use tandem_machine::Machine;
use tandem_machine::homes::{
    CHOICES_MAX, Choice, HomeRequest, HomeSettings, Loss, Newcomer, Planner, View, VmView,
};
use tandem_machine::placement::{Occupancy, Request, Shortage};
use tandem_settings::Settings;
use tandemd::error::BadInput;
use tandemd::host_vms::HostVms;
use tandemd::observe::homes_of_agent;
use tandemd::run::gives_no_homes;

/// Candidates printed for each VM; later ones are rarely of interest.
const CHOICES_SHOWN: usize = 4;
const _: () = assert!(CHOICES_SHOWN <= CHOICES_MAX && super::CANDIDATES_SHOWN == CHOICES_MAX);

/// A machine and its VMs, as the planner is shown them.
pub struct Scene {
    pub machine: Machine,
    planner: Planner,
    free_bytes: Vec<u64>,
    vms: Vec<VmView>,
    now_ns: u64,
}

impl Scene {
    /// A machine that is described, with these VMs on it: their memory lies evenly on the nodes that they may
    /// use.
    pub fn described(machine: Machine, present: &[PresentVm]) -> Result<Self, BadInput> {
        let mut occupancy = Occupancy::empty(&machine);
        let free = |occupancy: &Occupancy| -> Vec<u64> {
            (0..machine.node_count()).map(|node| occupancy.free_memory_bytes(node.into())).collect()
        };
        let mut vms = Vec::new();
        for (number, vm) in (1..).zip(present) {
            let before = free(&occupancy);
            let mut view = view(vm, number, number as u64, &machine)?;
            occupancy.add(vm.request, &view.allowed).map_err(|error| wrong(number, error))?;
            let taken = before.iter().zip(free(&occupancy)).map(|(before, after)| before - after);
            view.resident_bytes = taken.collect();
            vms.push(view);
        }
        let free_bytes = free(&occupancy);
        Ok(Self { machine, planner: Planner::new(HomeSettings::default()), free_bytes, vms, now_ns: 0 })
    }

    /// This host with its VMs, observed for that time, and with these, which start first; and what could not
    /// be read. `root` is `/` for this machine.
    pub fn of_host(
        root: &Path,
        settings: &Settings,
        coming: &[PresentVm],
        time: Duration,
    ) -> anyhow::Result<(Self, Vec<String>)> {
        if let Some(why) = gives_no_homes(settings) {
            return Err(BadInput::new(why).into());
        }
        let mut notes = Vec::new();
        let homes = homes_of_agent(root).unwrap_or_else(|error| {
            notes.push(format!("the agent's homes cannot be read, so those used are inferred: {error}"));
            None
        });
        let mut host = HostVms::find(root, &keeping_homes(settings), homes.as_ref())?;
        host.measure(time)?;
        notes.extend(host.notes());
        let now_ns = host.elapsed().as_nanos() as u64;
        let (free_bytes, mut vms) = host.agent.seen();
        // A VM that the agent exempts has no home, and the planner must not give it one either.
        let told = homes.iter().flat_map(|file| &file.vms);
        let homeless: BTreeSet<_> = told.filter(|vm| vm.home.is_empty()).map(|vm| vm.identity).collect();
        let tracked_vms = host.agent.tracked_vms().filter(|tracked| homeless.contains(&tracked.vm.identity));
        let homeless: BTreeSet<u64> =
            tracked_vms.flat_map(|tracked| tracked.ids().take(tracked.parts.len())).collect();
        for vm in vms.iter_mut().filter(|vm| homeless.contains(&vm.id)) {
            (vm.request, vm.home) = (HomeRequest::Exempt, None);
        }
        let first = vms.iter().map(|vm| vm.id + 1).max().unwrap_or(0);
        for ((number, id), vm) in (1..).zip(first..).zip(coming) {
            vms.push(view(vm, number, id, &host.machine)?);
        }
        let planner = host.agent.planner().clone();
        Ok((Self { machine: host.machine, planner, free_bytes, vms, now_ns }, notes))
    }

    /// Places `count` equal VMs, each of which is there for the next. A VM for which there is no room is an
    /// error.
    pub fn place_all(&self, request: Request, count: u32) -> Result<Vec<Newcomer>, BadInput> {
        let Self { machine, planner, free_bytes, now_ns, .. } = self;
        let mut vms = self.vms.clone();
        let mut newcomers = Vec::new();
        for number in 1..=count {
            let view = View { machine, free_bytes, vms: &vms, now_ns: *now_ns };
            let newcomer = planner.newcomer(&view, request);
            if let Some(shortage) = newcomer.shortage {
                let error = no_room(machine, &newcomer, shortage);
                return Err(for_number(number, count, &error));
            }
            vms.push(newcomer.vm.clone());
            newcomers.push(newcomer);
        }
        Ok(newcomers)
    }
}

/// The planner's view of a VM of `--vm`, which has no memory yet.
fn view(vm: &PresentVm, number: usize, id: u64, machine: &Machine) -> Result<VmView, BadInput> {
    let mut allowed = vm.node_ids(machine, number)?;
    allowed.sort_unstable();
    let starting = VmView::starting(id, vm.request, machine.node_count());
    Ok(VmView { allowed, demand: vm.busy, ..starting })
}

/// The homes that VMs have are not the question.
fn keeping_homes(settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    settings.agent.looks_in_a_row = u32::MAX;
    settings
}

/// That there is no room, and what the planner does all the same.
fn no_room(machine: &Machine, newcomer: &Newcomer, shortage: Shortage) -> String {
    match &newcomer.vm.home {
        Some(home) => format!(
            "{shortage}; if it is started all the same, its home is {}, by CPUs alone",
            name_nodes(&os_numbers(machine, &home.nodes))
        ),
        None => shortage.to_string(),
    }
}

/// What is printed of a VM: where it goes and why, and what else there is.
pub fn describe(machine: &Machine, number: u32, newcomer: &Newcomer) -> String {
    if newcomer.choices.is_empty() {
        return format!("VM {number}: any node: {}\n", newcomer.reason.why());
    }
    let mut text = format!("VM {number}: {}\n", newcomer.reason);
    if newcomer.choices.len() > 1 {
        for choice in newcomer.choices.iter().take(CHOICES_SHOWN) {
            let Choice { nodes, pairs, lost, asked_cpus, cpus, free_bytes } = choice;
            let Loss { least, expected, most } = lost;
            let _ = write!(
                text,
                "  {}: {expected:.2} CPUs lost ({least:.2} to {most:.2}), demand {asked_cpus:.1} of {cpus} CPUs, {} free",
                name_nodes(&os_numbers(machine, nodes)),
                Size { bytes: free_bytes & !((1 << 20) - 1) }
            );
            let apart = match pairs {
                0 => String::new(),
                1 => ", 1 other that is to be apart".into(),
                _ => format!(", {pairs} others that are to be apart"),
            };
            text += &(apart + "\n");
        }
    }
    let more = newcomer.choice_count.saturating_sub(CHOICES_SHOWN);
    if more > 0 {
        let _ = writeln!(text, "  and {more} more to choose from");
    }
    text
}

/// The same for programs.
pub fn answer(machine: &Machine, newcomer: &Newcomer) -> Answer {
    let home = newcomer.vm.home.iter().flat_map(|home| &home.nodes).copied().collect::<Vec<_>>();
    Answer {
        nodes: os_numbers(machine, &home),
        reason: newcomer.reason.why(),
        candidate_count: newcomer.choice_count,
        candidates: newcomer.choices.iter().map(|choice| choice_to_json(machine, choice)).collect(),
    }
}

fn choice_to_json(machine: &Machine, choice: &Choice) -> Value {
    let Loss { least, expected, most } = choice.lost;
    json!({
        "nodes": os_numbers(machine, &choice.nodes),
        "pcpus": choice.cpus,
        "asked_cpus": choice.asked_cpus,
        "free_memory_bytes": choice.free_bytes,
        "not_apart": choice.pairs,
        "lost_cpus": { "least": least, "expected": expected, "most": most },
    })
}

#[cfg(test)]
mod tests;
