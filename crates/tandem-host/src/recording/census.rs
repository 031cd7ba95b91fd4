//! The tasks of the machine with what the scheduler knows of them, their cgroups, and the VMs that they
//! belong to.
//!
//! **Problem.** Events name a task by its number and name alone. Which process, policy, CPUs, weight and VM
//! it has is in `/proc` and in the cgroups, as long as it exists.
//!
//! **Approach.** A census before the recording and one after it. A number that several tasks had, one after
//! the other, means the first of them in the census before, and the last in the one after. A task that
//! neither has seen, because it began and ended in between, has the cgroup, CPUs and policy of the task that
//! forked it, as the kernel gives them.
//!
//! **Limits.** What changes during the recording is unknown; so is the process of a task that neither census
//! has seen. There is a limit for the number of cgroups and the length of their paths, which users choose.

use crate::cgroups::{Hierarchies, Membership};
use crate::scheduler::slice_ns;
use crate::tasks::{TaskWalk, Tid};
use crate::vms::{Finder, ThreadKind};
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use tandem_recording::{Cgroup, NO_TASK, Task, Vm};

/// Most cgroups that a recording names: as many as the kernel's memory controller can number
/// (`MEM_CGROUP_ID_MAX`).
const CGROUPS_MAX: usize = 65_535;
/// Longest path of a cgroup that a recording has, bytes.
const PATH_MAX: usize = 4096;
/// Most bytes that are read of a file of `/proc` or a cgroup.
const FILE_MAX: u64 = 1 << 14;
/// Longest list of CPUs, bytes: 8192 CPUs, every other one.
const LIST_MAX: usize = 1 << 14;
/// `PF_KTHREAD` of the kernel's `include/linux/sched.h`.
const KERNEL_THREAD: u64 = 0x0020_0000;
/// The kernel's `MAX_RT_PRIO`: `stat` has priorities less this.
const MAX_RT_PRIO: i32 = 100;
/// How often the finder of VMs may ask for more time: see its [`Changes`](crate::vms::Changes).
const ROUNDS_MAX: u32 = 5;

/// Tasks by number.
pub type Tasks = HashMap<u32, Task>;

/// Counts tasks, and remembers cgroups and VMs.
#[derive(Debug)]
pub struct Census {
    root: PathBuf,
    hierarchies: Hierarchies,
    finder: Finder,
    positions: HashMap<PathBuf, Option<usize>>,
    /// All cgroups that tasks were in, and those around them.
    pub cgroups: Vec<Cgroup>,
    /// All VMs.
    pub vms: Vec<Vm>,
}

impl Census {
    /// One that has counted nothing. The root is `/` for this machine.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            hierarchies: Hierarchies::find(root),
            finder: Finder::new(root),
            positions: HashMap::new(),
            cgroups: Vec::new(),
            vms: Vec::new(),
        }
    }

    /// All tasks that there are now.
    pub fn count(&mut self) -> Tasks {
        let root = self.root.clone();
        let mut tasks: Tasks = TaskWalk::begin(&root)
            .filter_map(|(tid, directory)| Some((tid.get(), self.task(tid, &directory)?)))
            .collect();
        let names: HashMap<u32, String> = tasks
            .values()
            .filter(|task| task.tid == task.pid)
            .map(|task| (task.pid, task.name.clone()))
            .collect();
        for task in tasks.values_mut() {
            task.process = names.get(&task.pid).cloned().unwrap_or_default();
        }
        forget_default_slice(&mut tasks);
        self.mark_vms(&mut tasks);
        tasks
    }

    fn task(&mut self, tid: Tid, directory: &Path) -> Option<Task> {
        let stat = Stat::parse(&read(&directory.join("stat"))?)?;
        let status = read(&directory.join("status"))?;
        let value = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            line.map(str::trim)
        };
        Some(Task {
            tid: tid.get(),
            pid: value("Tgid")?.parse().ok()?,
            name: stat.name,
            process: String::new(),
            is_kernel: stat.is_kernel,
            policy: stat.policy,
            priority: stat.priority,
            // Another root's tasks have numbers of their own.
            slice_ns: (self.root == Path::new("/")).then(|| slice_ns(tid)).flatten(),
            cpus: value("Cpus_allowed_list").filter(|list| list.len() <= LIST_MAX).map(str::to_owned),
            cgroup: self.hierarchies.of_process(tid.get(), "cpu").and_then(|found| self.cgroup(&found)),
            vm: None,
            vcpu: None,
        })
    }

    /// The position of a cgroup; those around it get one as well, because their weights matter, too.
    fn cgroup(&mut self, found: &Membership) -> Option<usize> {
        if let Some(&position) = self.positions.get(&found.path) {
            return position;
        }
        if let Some(around) = found.parent() {
            self.cgroup(&around);
        }
        let path = found.path.to_string_lossy();
        let position = (self.cgroups.len() < CGROUPS_MAX && path.len() <= PATH_MAX).then(|| {
            self.cgroups.push(settings_of(found, path.into_owned()));
            self.cgroups.len() - 1
        });
        // Longer ones are as many as there are tasks, at most.
        self.positions.insert(found.path.clone(), position);
        position
    }

    fn mark_vms(&mut self, tasks: &mut Tasks) {
        for _ in 0..ROUNDS_MAX {
            if self.finder.scan().map_or(0, |changes| changes.postponed) == 0 {
                break;
            }
        }
        for vm in self.finder.vms() {
            let pid = vm.identity.pid;
            let position = self.vms.iter().position(|known| known.pid == pid).unwrap_or_else(|| {
                self.vms.push(Vm { name: vm.name.clone(), pid, memory_bytes: vm.memory_bytes });
                self.vms.len() - 1
            });
            for thread in vm.read_threads() {
                if let Some(task) = tasks.get_mut(&thread.tid) {
                    task.vm = Some(position);
                    task.vcpu = thread.vcpu.filter(|_| thread.kind == ThreadKind::Vcpu);
                }
            }
        }
    }
}

/// Adds to the tasks of a recording, in the order in which it met them, what is known of them. `forked_by`
/// has for each of them the task that forked it, or [`NO_TASK`]. Where `knows_threads`, one that has been
/// forked and has no process is a thread of its parent's.
pub fn complete(
    tasks: &mut [Task],
    forked_by: &[u32],
    knows_threads: bool,
    mut before: Tasks,
    mut after: Tasks,
) {
    let mut last: HashMap<u32, usize> = HashMap::new();
    for (position, task) in tasks.iter().enumerate() {
        last.insert(task.tid, position);
    }
    for position in 0..tasks.len() {
        let tid = tasks[position].tid;
        let parent = forked_by.get(position).copied().filter(|&parent| parent != NO_TASK);
        // One that the recording has seen begin was not there before.
        let earlier = before.remove(&tid).filter(|_| parent.is_none());
        let later = if last.get(&tid) == Some(&position) { after.remove(&tid) } else { None };
        // A parent comes before its children.
        let parent = parent.map(|parent| parent as usize).filter(|&parent| parent < position);
        let inherited = parent.map(|parent| Task { vm: None, vcpu: None, ..tasks[parent].clone() });
        let is_known = earlier.is_some() || later.is_some();
        // The latest program of its process counts, as the latest name of a task does.
        let process = later.as_ref().or(earlier.as_ref()).map(|task| task.process.clone());
        let Some(known) = earlier.or(later).or(inherited) else { continue };
        let task = &mut tasks[position];
        if task.pid == 0 && knows_threads {
            task.pid = known.pid;
        }
        if is_known {
            task.pid = known.pid;
            task.process = process.unwrap_or_default();
            task.is_kernel = known.is_kernel;
            (task.vm, task.vcpu) = (known.vm, known.vcpu);
        }
        if task.name.is_empty() {
            task.name = known.name;
        }
        task.policy = task.policy.or(known.policy);
        task.priority = task.priority.or(known.priority);
        task.slice_ns = task.slice_ns.or(known.slice_ns);
        task.cpus = task.cpus.take().or(known.cpus);
        task.cgroup = task.cgroup.or(known.cgroup);
    }
    name_processes(tasks);
}

/// Gives processes that no census has seen the names of their first threads, which come before the others.
fn name_processes(tasks: &mut [Task]) {
    let mut names: HashMap<u32, String> = HashMap::new();
    for task in tasks {
        if task.tid == task.pid {
            names.insert(task.pid, task.name.clone());
        } else if !task.process.is_empty() {
            names.entry(task.pid).or_insert_with(|| task.process.clone());
        }
        if task.process.is_empty() {
            task.process = names.get(&task.pid).cloned().unwrap_or_default();
        }
    }
}

/// The kernel gives the slice of any task of the fair class: one that nearly all have is nobody's wish.
fn forget_default_slice(tasks: &mut Tasks) {
    let mut counts: HashMap<u64, usize> = HashMap::new();
    for slice_ns in tasks.values().filter_map(|task| task.slice_ns) {
        *counts.entry(slice_ns).or_default() += 1;
    }
    let default = counts.into_iter().max_by_key(|&(slice_ns, count)| (count, slice_ns));
    let default = default.map(|(slice_ns, _)| slice_ns);
    for task in tasks.values_mut() {
        task.slice_ns = task.slice_ns.filter(|&slice_ns| Some(slice_ns) != default);
    }
}

/// What the CPU controller has for a cgroup, in either version.
fn settings_of(found: &Membership, path: String) -> Cgroup {
    let number = |file: &str| read(&found.directory.join(file))?.trim().parse::<u64>().ok();
    if found.is_unified {
        let max = read(&found.directory.join("cpu.max")).unwrap_or_default();
        let mut numbers = max.split_whitespace().map(|number| number.parse().ok());
        let quota_us = numbers.next().flatten();
        let period_us = numbers.next().flatten();
        Cgroup { path, weight: number("cpu.weight"), quota_us, period_us }
    } else {
        // As `sched_weight_to_cgroup()` of the kernel converts them. A quota of -1 is none.
        let weight = number("cpu.shares").map(|shares| ((shares * 100 + 512) / 1024).max(1));
        let quota_us = number("cpu.cfs_quota_us");
        Cgroup { path, weight, quota_us, period_us: number("cpu.cfs_period_us") }
    }
}

/// The start of a file, as text.
pub fn read(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(FILE_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The fields of `/proc/TID/stat` that matter here.
struct Stat {
    name: String,
    is_kernel: bool,
    priority: Option<i32>,
    policy: Option<u32>,
}

impl Stat {
    fn parse(line: &str) -> Option<Self> {
        // The name may contain blanks and parentheses; nothing after it does.
        let (start, rest) = line.rsplit_once(')')?;
        let (_, name) = start.split_once('(')?;
        // Fields have the numbers of the manual; the first one after the name is 3.
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).copied();
        Some(Self {
            name: name.to_owned(),
            is_kernel: field(9)?.parse::<u64>().ok()? & KERNEL_THREAD != 0,
            priority: field(18).and_then(|text| text.parse::<i32>().ok()?.checked_add(MAX_RT_PRIO)),
            policy: field(41).and_then(|text| text.parse().ok()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "31 30 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

    fn stat(tid: u32, name: &str, flags: u64, priority: i32, policy: u32) -> String {
        let zeros = |count| vec!["0"; count].join(" ");
        format!(
            "{tid} ({name}) S {} {flags} {} {priority} {} {policy} {}\n",
            zeros(5),
            zeros(8),
            zeros(22),
            zeros(11)
        )
    }

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn add(root: &Path, pid: u32, tid: u32, stat: &str, cgroup: &str) {
        let status = format!("Tgid:\t{pid}\nUid:\t0\t0\t0\t0\nCpus_allowed_list:\t0-3\n");
        for folder in [format!("proc/{pid}/task/{tid}"), format!("proc/{tid}")] {
            write(root, &format!("{folder}/stat"), stat);
            write(root, &format!("{folder}/status"), &status);
            write(root, &format!("{folder}/cgroup"), &format!("0::{cgroup}\n"));
        }
    }

    #[test]
    fn tasks_have_their_settings_and_cgroups_those_around_them() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "proc/self/mountinfo", MOUNTS);
        write(root, "sys/fs/cgroup/a/cpu.weight", "200\n");
        write(root, "sys/fs/cgroup/a/b/cpu.weight", "50\n");
        write(root, "sys/fs/cgroup/a/b/cpu.max", "30000 100000\n");
        add(root, 7, 7, &stat(7, "a ) (b", 0, 25, 3), "/a/b");
        add(root, 7, 8, &stat(8, "worker", 0, -51, 1), "/a/b");
        add(root, 9, 9, &stat(9, "kworker", KERNEL_THREAD, 0, 0), "/");
        let mut census = Census::new(root);
        let tasks = census.count();
        assert_eq!(tasks.len(), 3);
        let (first, worker) = (&tasks[&7], &tasks[&8]);
        assert_eq!((first.name.as_str(), first.pid, first.nice()), ("a ) (b", 7, Some(5)));
        assert_eq!((first.policy, first.cpus.as_deref(), first.is_kernel), (Some(3), Some("0-3"), false));
        assert_eq!((worker.pid, worker.process.as_str()), (7, "a ) (b"));
        assert_eq!((worker.policy, worker.priority, worker.nice()), (Some(1), Some(49), None));
        assert!(tasks[&9].is_kernel);
        let of = |path: &str| census.cgroups.iter().find(|cgroup| cgroup.path == path).unwrap();
        assert_eq!(&census.cgroups[first.cgroup.unwrap()], of("/a/b"));
        assert_eq!((of("/a").weight, of("/a").quota_us), (Some(200), None));
        assert_eq!((of("/a/b").weight, of("/a/b").quota_us, of("/a/b").period_us), {
            (Some(50), Some(30_000), Some(100_000))
        });
        assert_eq!(of("/").weight, None);
    }

    #[test]
    fn weights_of_version_1_are_those_of_version_2() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "proc/self/mountinfo", "32 30 0:28 / /cg/cpu rw - cgroup cgroup rw,cpu\n");
        write(root, "cg/cpu/x/cpu.shares", "2048\n");
        write(root, "cg/cpu/x/cpu.cfs_quota_us", "-1\n");
        add(root, 7, 7, &stat(7, "a", 0, 20, 0), "/");
        write(root, "proc/7/cgroup", "3:cpu:/x\n0::/\n");
        let mut census = Census::new(root);
        let position = census.count()[&7].cgroup.unwrap();
        let cgroup = &census.cgroups[position];
        assert_eq!((cgroup.path.as_str(), cgroup.weight, cgroup.quota_us), ("/x", Some(200), None));
    }

    #[test]
    fn a_number_is_first_one_task_and_then_another() {
        let known = |tid, process: &str, policy| {
            let task =
                Task { tid, pid: tid, process: process.into(), policy: Some(policy), ..Task::default() };
            (tid, task)
        };
        let before = Tasks::from([known(5, "old", 1), known(6, "stays", 2)]);
        let after = Tasks::from([known(5, "new", 3), known(6, "stays", 2)]);
        let met = |tid| Task { tid, ..Task::default() };
        // 5 ends, 6 forks a task that ends as well, and one that stays, with the same number.
        let mut tasks = vec![met(5), met(6), met(5), met(5)];
        complete(&mut tasks, &[NO_TASK, NO_TASK, 1, 1], false, before, after);
        let found: Vec<_> = tasks.iter().map(|task| (task.process.as_str(), task.policy)).collect();
        assert_eq!(found, [("old", Some(1)), ("stays", Some(2)), ("", Some(2)), ("new", Some(3))]);
    }

    #[test]
    fn a_short_task_is_of_its_parents_process_or_of_its_own() {
        let known = Task { tid: 5, pid: 4, process: "server".into(), cgroup: Some(0), ..Task::default() };
        let met = |tid, pid, name: &str| Task { tid, pid, name: name.into(), ..Task::default() };
        // A thread of the server's forks a process, which starts a thread.
        let mut tasks = vec![met(5, 0, "pool"), met(6, 0, "pool"), met(7, 7, "sh"), met(8, 0, "sh-2")];
        complete(&mut tasks, &[NO_TASK, 0, 1, 2], true, Tasks::from([(5, known)]), Tasks::new());
        let found: Vec<_> = tasks.iter().map(|task| (task.pid, task.process.as_str(), task.cgroup)).collect();
        let expected = [(4, "server"), (4, "server"), (7, "sh"), (7, "sh")];
        assert_eq!(found, expected.map(|(pid, process)| (pid, process, Some(0))));
    }

    #[test]
    fn only_other_slices_were_asked_for() {
        let with = |tid, slice_ns| (tid, Task { tid, slice_ns, ..Task::default() });
        let mut tasks = Tasks::from([with(1, Some(3)), with(2, Some(3)), with(3, Some(9)), with(4, None)]);
        forget_default_slice(&mut tasks);
        let slices: Vec<_> = [1, 2, 3, 4].map(|tid| tasks[&tid].slice_ns).into();
        assert_eq!(slices, [None, None, Some(9), None]);
    }
}
