//! `tandem run --plan`: what the agent would do now, and why, without doing it.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};
use tandem_host::agent::{Agent, NoHands};
use tandem_host::scheduler::Settings;
use tandem_host::topology::read_sysfs;
use tandem_host::vms::homes_file::HomesFile;
use tandem_sim::homes::Home;

/// How long VMs are looked at, so that it is known which of them work.
const OBSERVED: Duration = Duration::from_secs(2);

/// Looks at the VMs of this host for a moment, and prints a line for each.
///
/// # Errors
/// If the machine or its processes cannot be read, or nothing can be printed.
pub fn run(settings: &Settings) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if let Some(why) = gives_no_homes(settings) {
        writeln!(out, "{why}.")?;
        return Ok(());
    }
    let root = Path::new("/");
    let machine = read_sysfs(root)?;
    let mut agent = Agent::new(root, machine.clone(), &eager(settings), NoHands);
    let begin = Instant::now();
    // A file that cannot be used says as little as none.
    let file = HomesFile::read(root).ok().flatten().filter(|file| !file.are_planned);
    agent.observe(begin.elapsed(), file.as_ref())?;
    let before: BTreeMap<u64, Option<Home>> =
        agent.residents().map(|resident| (resident.id, resident.home.clone())).collect();
    sleep(OBSERVED);
    agent.look(begin.elapsed())?;
    let mut residents: Vec<_> = agent.residents().collect();
    residents.sort_by(|a, b| (&a.vm.name, a.id).cmp(&(&b.vm.name, b.id)));
    if residents.is_empty() {
        writeln!(out, "There are no VMs on this host.")?;
    }
    for resident in residents {
        let nodes = |home: &Option<Home>| home.as_ref().map(|home| home.nodes.clone());
        let had = before.get(&resident.id).and_then(nodes);
        let verb = match had {
            Some(had) if Some(&had) == nodes(&resident.home).as_ref() => "stays: ",
            Some(_) => "would move: ",
            None => "",
        };
        writeln!(
            out,
            "{} (process {}): {verb}{}",
            resident.vm.name,
            resident.vm.identity.pid,
            resident.home_and_why(&machine)
        )?;
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

/// What is worth it now is shown at once.
fn eager(settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    settings.agent.looks_in_a_row = 1;
    settings.agent.rest = tandem_file::units::Duration { ns: 0 };
    settings
}
