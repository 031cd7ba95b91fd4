//! `tandem prefer show`: a line for each task and cgroup.

use super::target::Target;
use std::fmt;
use std::io::Write;
use std::path::Path;
use tandem_host::cgroups::{Cgroup, Hierarchy};
use tandem_host::tasks::{self, Task};
use tandem_host::untrusted::Untrusted;
use tandem_machine::format_cpulist;
use tandem_settings::{Held, Place, Preference};
use tandemd::access::{Access, AccessError, Who};
use tandemd::out::out;

/// Prints the preference of one task or cgroup; without a target, all preferences.
///
/// # Errors
/// If the scheduler does not answer, or nothing can be printed.
pub fn print(access: &Access, target: Option<Target>) -> anyhow::Result<()> {
    let mut out = out();
    match target {
        Some(Target::Process(process)) => {
            for task in threads(process.pid) {
                print_one(access, &Shown::Task(task), true, &mut out)?;
            }
        }
        Some(Target::Thread(task)) => print_one(access, &Shown::Task(task), true, &mut out)?,
        Some(Target::Cgroup(cgroup)) => print_one(access, &Shown::Cgroup(cgroup), true, &mut out)?,
        None => {
            let root = Path::new("/");
            let hierarchy = Hierarchy::find(root).ok();
            let mut cgroups: Vec<_> = hierarchy.iter().flat_map(Hierarchy::all).collect();
            cgroups.sort_unstable_by(|one, other| one.path.cmp(&other.path));
            let tasks = tasks::processes(root).into_iter().flat_map(threads);
            for shown in cgroups.into_iter().map(Shown::Cgroup).chain(tasks.map(Shown::Task)) {
                print_one(access, &shown, false, &mut out)?;
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
            Self::Cgroup(cgroup) => {
                write!(f, "cgroup {}", Untrusted::new(cgroup.path.to_string_lossy()).shown())
            }
        }
    }
}

fn print_one(access: &Access, shown: &Shown, even_without: bool, out: &mut impl Write) -> anyhow::Result<()> {
    let who = match shown {
        Shown::Task(task) => Who::Task(task.tid),
        Shown::Cgroup(cgroup) => Who::Cgroup(cgroup),
    };
    match access.preference_of(who) {
        Ok(Some(held)) => writeln!(out, "{shown}: {}{}", describe(&held.preference), history(&held))?,
        Ok(None) if even_without => writeln!(out, "{shown}: no preference of its own")?,
        Ok(None) | Err(AccessError::Gone) => {}
        // Of all, a user is shown own ones.
        Err(AccessError::Other(_)) if !even_without && matches!(access, Access::Service(_)) => {}
        Err(AccessError::Other(error)) => return Err(error),
    }
    Ok(())
}

/// Who chose it, and what came of it so far.
fn history(held: &Held) -> String {
    let by = if held.by_agent { ", chosen by the agent" } else { "" };
    match held.home_ns + held.away_ns {
        0 => by.into(),
        ran_ns => format!("{by}; {:.0}% of its time there", 100.0 * held.home_ns as f64 / ran_ns as f64),
    }
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
    fn what_came_of_it_is_told_once_the_task_has_run() {
        let preference = Preference { place: None, latency_critical: true };
        let mut held = Held { preference, by_agent: false, home_ns: 0, away_ns: 0 };
        assert_eq!(history(&held), "");
        (held.by_agent, held.home_ns, held.away_ns) = (true, 900, 100);
        assert_eq!(history(&held), ", chosen by the agent; 90% of its time there");
    }

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
