//! `tandem prefer show`: a line for each task and cgroup.

use super::target::Target;
use super::{Preferences, Subject, about};
use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use tandem_host::cgroups::{Cgroup, Hierarchy};
use tandem_host::scheduler::{Place, Preference, PreferenceError};
use tandem_host::tasks::{self, Task};
use tandem_sim::machine::format_cpulist;

/// Prints what one prefers; or, without a target, what all do who prefer anything.
///
/// # Errors
/// If the scheduler does not tell, or nothing can be printed.
pub fn print(preferences: &Preferences, target: Option<Target>) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match target {
        Some(Target::Process(process)) => {
            for task in threads(process.pid) {
                print_one(preferences, &Shown::Task(task), true, &mut out)?;
            }
        }
        Some(Target::Thread(task)) => print_one(preferences, &Shown::Task(task), true, &mut out)?,
        Some(Target::Cgroup(cgroup)) => print_one(preferences, &Shown::Cgroup(cgroup), true, &mut out)?,
        None => {
            let root = Path::new("/");
            let cgroups = Hierarchy::find(root).map(|hierarchy| hierarchy.all()).unwrap_or_default();
            let tasks = tasks::processes(root).into_iter().flat_map(threads);
            for shown in cgroups.into_iter().map(Shown::Cgroup).chain(tasks.map(Shown::Task)) {
                print_one(preferences, &shown, false, &mut out)?;
            }
        }
    }
    Ok(())
}

fn threads(pid: u32) -> impl Iterator<Item = Task> {
    let root = Path::new("/");
    tasks::threads(root, pid).into_iter().filter_map(|tid| tasks::task(root, tid))
}

/// Who is shown.
enum Shown {
    Task(Task),
    Cgroup(Cgroup),
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Task(task) => write!(f, "thread {} ({})", task.tid, task.name),
            Self::Cgroup(cgroup) => write!(f, "cgroup {}", cgroup.path.display()),
        }
    }
}

fn print_one(
    preferences: &Preferences,
    shown: &Shown,
    even_without: bool,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let subject = match shown {
        Shown::Task(task) => Subject::Task(task.tid),
        Shown::Cgroup(cgroup) => Subject::Cgroup(cgroup.id),
    };
    match preferences.get(subject) {
        Ok(Some(preference)) => writeln!(out, "{shown}: {}", describe(&preference))?,
        Ok(None) if even_without => writeln!(out, "{shown}: no preference of its own")?,
        Ok(None) | Err(PreferenceError::Gone) => {}
        Err(error) => return Err(about(&shown.to_string(), error)),
    }
    Ok(())
}

fn describe(preference: &Preference) -> String {
    let list = |numbers: &[u32]| format_cpulist(numbers.iter().copied());
    let place = match &preference.place {
        Some(Place::Cpus(cpus)) => Some(format!("CPUs {}", list(cpus))),
        Some(Place::Nodes { nodes, cpus }) => Some(format!("nodes {} (CPUs {})", list(nodes), list(cpus))),
        None => None,
    };
    let mark = preference.latency_critical.then(|| "latency-critical".to_owned());
    let parts: Vec<_> = place.into_iter().chain(mark).collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preference_is_told_in_few_words() {
        let cpus = Place::Cpus(vec![0, 1, 2, 8]);
        let nodes = Place::Nodes { nodes: vec![1], cpus: vec![4, 5] };
        let cases = [
            (Some(cpus), false, "CPUs 0-2,8"),
            (Some(nodes), true, "nodes 1 (CPUs 4-5), latency-critical"),
            (None, true, "latency-critical"),
        ];
        for (place, latency_critical, expected) in cases {
            assert_eq!(describe(&Preference { place, latency_critical }), expected);
        }
    }
}
