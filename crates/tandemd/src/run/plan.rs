//! `tandem run --plan`: what the agent would do now, and why, without doing it.

use crate::host_vms::{HostVms, OBSERVED};
use crate::out::out;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use tandem_host::agent::TrackedVm;
use tandem_host::vms::homes_file::HomesFile;
use tandem_machine::homes::Home;
use tandem_settings::Settings;

/// Observes the VMs of this host for a moment, and prints a line for each, then what could not be read.
///
/// # Errors
/// If the machine or its processes cannot be read, or nothing can be printed.
pub fn run(settings: &Settings) -> anyhow::Result<()> {
    let mut out = out();
    if let Some(why) = gives_no_homes(settings) {
        writeln!(out, "{why}.")?;
        return Ok(());
    }
    let root = Path::new("/");
    // An unusable file counts as no file.
    let file = HomesFile::read(root).ok().flatten().filter(|file| !file.are_planned);
    let mut vms = HostVms::find(root, &eager(settings), file.as_ref())?;
    let homes = |tracked: &TrackedVm| {
        tracked.ids().zip(&tracked.parts).map(|(id, part)| (id, part.home.clone())).collect::<Vec<_>>()
    };
    let before: BTreeMap<u64, Option<Home>> = vms.agent.tracked_vms().flat_map(homes).collect();
    vms.measure(OBSERVED)?;
    let mut tracked_vms: Vec<_> = vms.agent.tracked_vms().collect();
    tracked_vms.sort_by(|a, b| (&a.vm.name, a.id).cmp(&(&b.vm.name, b.id)));
    if tracked_vms.is_empty() {
        writeln!(out, "There are no VMs on this host.")?;
    }
    let parts = tracked_vms
        .iter()
        .flat_map(|tracked| tracked.ids().zip(&tracked.parts).map(move |(id, part)| (*tracked, id, part)));
    for (tracked, id, part) in parts {
        let nodes = |home: &Option<Home>| home.as_ref().map(|home| home.nodes.clone());
        let had = before.get(&id).and_then(nodes);
        let verb = match had {
            Some(had) if Some(&had) == nodes(&part.home).as_ref() => "stays: ",
            Some(_) => "would move: ",
            None => "",
        };
        writeln!(
            out,
            "{} (process {}){}: {verb}{}",
            tracked.vm.name,
            tracked.vm.identity.pid,
            tracked.part_name(part),
            part.home_and_why(&vms.machine)
        )?;
    }
    for note in vms.notes() {
        writeln!(out, "{note}")?;
    }
    Ok(())
}

/// That VMs get no homes, and by which settings, if so: a sentence without its full stop.
pub fn gives_no_homes(settings: &Settings) -> Option<String> {
    if settings.gives_homes() {
        return None;
    }
    let (mode, homes, agent) = (settings.mode.name(), settings.numa_homes.enabled, settings.agent.enabled);
    Some(format!(
        "VMs get no homes with these settings: mode is {mode}, enabled of [numa_homes] {homes}, of [agent] {agent}"
    ))
}

/// The same settings, but with homes that move at once when that pays.
fn eager(settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    settings.agent.looks_in_a_row = 1;
    settings.agent.rest = tandem_file::units::Duration { ns: 0 };
    settings
}
