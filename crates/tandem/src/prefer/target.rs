//! Whom a preference is for, found and checked before anything is changed.

use std::path::{Path, PathBuf};
use tandem_host::cgroups::{Cgroup, Hierarchy};
use tandem_host::tasks::{self, Task};
use tandem_machine::format_cpulist;
use tandemd::error::BadInput;

/// Options that name somebody.
#[derive(Clone, clap::Args)]
#[group(multiple = false)]
pub struct TargetArgs {
    /// A process, with all its threads
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
    /// One thread
    #[arg(short, long, value_name = "TID", value_parser = clap::value_parser!(u32).range(1..))]
    tid: Option<u32>,
    /// A cgroup and all below it: its directory, or the path from where cgroups are mounted
    #[arg(short, long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
}

/// A task or cgroup that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A process, by the number of its first thread.
    Process(Task),
    /// A thread.
    Thread(Task),
    /// A cgroup.
    Cgroup(Cgroup),
}

impl TargetArgs {
    /// Finds the task or cgroup that the arguments name, if any.
    ///
    /// # Errors
    /// If there is none such.
    pub fn find(&self) -> Result<Option<Target>, BadInput> {
        Ok(match (self.pid, self.tid, &self.cgroup) {
            (Some(pid), ..) => Some(Target::Process(process(pid)?)),
            (_, Some(tid), _) => Some(Target::Thread(thread(tid)?)),
            (_, _, Some(path)) => {
                let hierarchy = Hierarchy::find(Path::new("/")).map_err(BadInput::new)?;
                Some(Target::Cgroup(hierarchy.cgroup(path).map_err(BadInput::new)?))
            }
            (None, None, None) => None,
        })
    }
}

fn process(pid: u32) -> Result<Task, BadInput> {
    match tasks::task(Path::new("/"), pid) {
        Some(task) if task.pid == pid => Ok(task),
        Some(task) => {
            Err(BadInput::new(format!("{pid} is a thread of process {}; use --tid {pid}", task.pid)))
        }
        None => Err(BadInput::new(format!("there is no process {pid}"))),
    }
}

/// The thread of that number.
///
/// # Errors
/// If there is none.
pub fn thread(tid: u32) -> Result<Task, BadInput> {
    tasks::task(Path::new("/"), tid).ok_or_else(|| BadInput::new(format!("there is no thread {tid}")))
}

impl Target {
    /// Checks that it may use at least one of the CPUs: each of its threads, if it is a process.
    ///
    /// # Errors
    /// If it may not: such a preference could never have an effect.
    pub fn check_allowed(&self, cpus: &[u32]) -> Result<(), BadInput> {
        match self {
            Self::Thread(task) => check_task(task, cpus),
            Self::Process(task) => {
                let root = Path::new("/");
                let threads = tasks::threads(root, task.pid);
                threads
                    .into_iter()
                    .filter_map(|tid| tasks::task(root, tid))
                    .try_for_each(|task| check_task(&task, cpus))
            }
            Self::Cgroup(Cgroup { path, allowed: Some(allowed), .. }) => {
                check(&format!("cgroup {}", path.display()), allowed, cpus)
            }
            Self::Cgroup(_) => Ok(()),
        }
    }
}

fn check_task(task: &Task, cpus: &[u32]) -> Result<(), BadInput> {
    check(&format!("thread {} ({})", task.tid, task.name), &task.allowed, cpus)
}

fn check(who: &str, allowed: &[u32], cpus: &[u32]) -> Result<(), BadInput> {
    if cpus.iter().any(|cpu| allowed.contains(cpu)) {
        return Ok(());
    }
    let (allowed, cpus) = [allowed, cpus].map(|list| format_cpulist(list.iter().copied())).into();
    Err(BadInput::new(format!("{who} may use CPUs {allowed} alone, and none of {cpus}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::mpsc;
    use std::thread;

    fn task(allowed: &[u32]) -> Task {
        Task {
            tid: 42,
            pid: 42,
            user: 0,
            name: "qemu".into(),
            allowed: allowed.to_vec(),
            allowed_nodes: vec![0],
        }
    }

    #[test]
    fn one_allowed_cpu_is_enough() {
        let target = Target::Thread(task(&[0, 1]));
        assert!(target.check_allowed(&[1, 2]).is_ok());
        assert_eq!(
            target.check_allowed(&[2, 3]).unwrap_err().to_string(),
            "thread 42 (qemu) may use CPUs 0-1 alone, and none of 2-3"
        );
    }

    #[test]
    fn a_cgroup_without_cpuset_may_use_all() {
        let cgroup = |allowed| Target::Cgroup(Cgroup { path: "/vm".into(), id: 1, owner: 0, allowed });
        assert!(cgroup(None).check_allowed(&[7]).is_ok());
        let error = cgroup(Some(vec![0])).check_allowed(&[7]).unwrap_err();
        assert_eq!(error.to_string(), "cgroup /vm may use CPUs 0 alone, and none of 7");
    }

    #[test]
    fn who_is_not_there_is_told() {
        // Above the largest number that Linux gives, 2^22.
        let none = TargetArgs { pid: Some(u32::MAX >> 1), tid: None, cgroup: None };
        assert_eq!(none.find().unwrap_err().to_string(), "there is no process 2147483647");
        let none = TargetArgs { pid: None, tid: Some(u32::MAX >> 1), cgroup: None };
        assert_eq!(none.find().unwrap_err().to_string(), "there is no thread 2147483647");
    }

    #[test]
    fn a_thread_is_not_taken_for_a_process() {
        // A thread of this test's own: those of other tests come and go.
        let (end, until) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel::<u32>();
        let thread = thread::spawn(move || {
            let myself = fs::read_link("/proc/thread-self").unwrap();
            tell.send(myself.file_name().unwrap().to_str().unwrap().parse().unwrap()).unwrap();
            until.recv()
        });
        let pid = std::process::id();
        let other = told.recv().unwrap();
        let error = process(other).unwrap_err().to_string();
        assert_eq!(error, format!("{other} is a thread of process {pid}; use --tid {other}"));
        drop(end);
        thread.join().unwrap().unwrap_err();
    }
}
