//! Walks over tasks and cgroups that a test creates.

use super::*;
use crate::cgroups::DEPTH_MAX;
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs;
use std::rc::Rc;

const MOUNTS: &str = "31 30 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

/// A task: its cgroup and policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Task {
    cgroup: &'static str,
    policy: Policy,
    is_reset_on_fork: bool,
}

fn task(cgroup: &'static str, policy: Policy) -> Task {
    Task { cgroup, policy, is_reset_on_fork: false }
}

/// Flags of a task, in `/proc/PID/stat`.
const USUAL: u32 = 0x0040_0100;
const OF_THE_KERNEL: u32 = 0x0020_8040;

/// A machine with tasks of the test's choice.
#[derive(Clone, Debug)]
struct World {
    folder: Rc<tempfile::TempDir>,
    tasks: Rc<RefCell<BTreeMap<u32, Task>>>,
    /// How many children tasks get just before their policy changes.
    births: Rc<Cell<u32>>,
    refuses: Option<u32>,
}

impl World {
    fn new(tasks: impl IntoIterator<Item = (u32, Task)>) -> Self {
        let folder = Rc::new(tempfile::tempdir().unwrap());
        let tasks = Rc::new(RefCell::new(tasks.into_iter().collect()));
        let world = Self { folder, tasks, births: Rc::default(), refuses: None };
        world.write();
        world
    }

    fn cgroup(&self, path: &str) -> PathBuf {
        self.folder.path().join("sys/fs/cgroup").join(path.trim_start_matches('/'))
    }

    /// Writes the tasks, and the members of each cgroup.
    fn write(&self) {
        let root = self.folder.path();
        for path in ["proc", "sys"] {
            let _ = fs::remove_dir_all(root.join(path));
        }
        fs::create_dir_all(root.join("proc/self")).unwrap();
        fs::write(root.join("proc/self/mountinfo"), MOUNTS).unwrap();
        let mut of_cgroups = BTreeMap::from([("/", "0\n".to_owned())]);
        for (tid, task) in &*self.tasks.borrow() {
            *of_cgroups.entry(task.cgroup).or_default() += &format!("{tid}\n");
            self.write_stat(*tid, "S", USUAL, 5);
        }
        for (cgroup, threads) in of_cgroups {
            fs::create_dir_all(self.cgroup(cgroup)).unwrap();
            fs::write(self.cgroup(cgroup).join("cgroup.threads"), threads).unwrap();
        }
    }

    fn write_stat(&self, tid: u32, state: &str, flags: u32, start_ticks: u64) {
        let stat =
            format!("{tid} (a) {state} 1 0 0 0 -1 {flags} 0 0 0 0 1 1 0 0 20 0 1 0 {start_ticks} 0 0\n");
        let directory = self.folder.path().join(format!("proc/{tid}/task/{tid}"));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("stat"), &stat).unwrap();
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<u32, Task>)) {
        change(&mut self.tasks.borrow_mut());
        self.write();
    }

    fn members(&self, partial: Partial) -> Members<Self> {
        Members::with(self.folder.path(), partial, self.clone())
    }

    fn policies(&self) -> Vec<Policy> {
        self.tasks.borrow().values().map(|task| task.policy).collect()
    }

    fn task(&self, tid: Tid) -> Result<Task, Errno> {
        self.tasks.borrow().get(&tid.get()).copied().ok_or(Errno::SRCH)
    }
}

impl Policies for World {
    fn policy(&self, tid: Tid) -> Result<TaskPolicy, Errno> {
        let Task { policy, is_reset_on_fork, .. } = self.task(tid)?;
        Ok(TaskPolicy { policy, is_reset_on_fork })
    }

    fn set_policy(&self, tid: Tid, to: TaskPolicy) -> Result<(), Errno> {
        if self.refuses == Some(tid.get()) {
            return Err(Errno::PERM);
        }
        let before = self.task(tid)?;
        if self.births.get() > 0 {
            self.births.set(self.births.get() - 1);
            let child = self.tasks.borrow().keys().max().unwrap() + 1;
            self.change(|tasks| {
                tasks.insert(child, before);
            });
        }
        let TaskPolicy { policy, is_reset_on_fork } = to;
        self.tasks.borrow_mut().insert(tid.get(), Task { policy, is_reset_on_fork, ..before });
        Ok(())
    }
}

fn partial(cgroups: &[&str], except: &[&str]) -> Partial {
    let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect();
    Partial { cgroups: paths(cgroups), except: paths(except) }
}

use Policy::{Batch, Ext, Higher, Idle, Other};

#[test]
fn tasks_are_taken_as_they_come_and_given_back_as_they_go() {
    let reset = Task { is_reset_on_fork: true, ..task("/a", Other) };
    let world = World::new([
        (1, task("/", Other)),
        (2, reset),
        (3, task("/a/b", Other)),
        (4, task("/a", Higher)),
        (5, task("/c", Ext)),
    ]);
    let mut members = world.members(partial(&["/a"], &[]));
    let result = members.walk().unwrap();
    assert_eq!(result, WalkResult { tasks: 2, taken: 2, given_back: 1, refused: None, hidden: None });
    assert_eq!(world.policies(), [Other, Ext, Ext, Higher, Other], "5 had joined on its own");
    assert!(world.tasks.borrow()[&2].is_reset_on_fork, "that stays");

    world.change(|tasks| {
        tasks.get_mut(&1).unwrap().cgroup = "/a";
        tasks.get_mut(&3).unwrap().cgroup = "/c";
        tasks.insert(6, task("/c", Ext));
    });
    let result = members.walk().unwrap();
    assert_eq!(result, WalkResult { tasks: 2, taken: 1, given_back: 2, refused: None, hidden: None });
    assert_eq!(world.policies(), [Ext, Ext, Other, Higher, Other, Other], "6 was born in the part");

    members.set(partial(&["/c"], &[]));
    let result = members.walk().unwrap();
    assert_eq!(result, WalkResult { tasks: 3, taken: 3, given_back: 2, refused: None, hidden: None });
    assert_eq!(members.step().unwrap(), None, "not yet");
    drop(members);
    assert_eq!(world.policies(), [Other, Other, Other, Higher, Other, Other]);
}

#[test]
fn tasks_that_would_run_before_the_part_are_taken_and_restored_afterwards() {
    let tasks =
        [(1, task("/a", Batch)), (2, task("/a", Idle)), (3, task("/b", Batch)), (4, task("/b", Idle))];
    let world = World::new(tasks);
    let mut members = world.members(partial(&["/a"], &[]));
    assert_eq!(members.walk().unwrap().taken, 2);
    assert_eq!(members.walk().unwrap().taken, 0);
    assert_eq!(world.policies(), [Ext, Ext, Batch, Idle]);
    drop(members);
    assert_eq!(world.tasks.borrow().clone().into_iter().collect::<Vec<_>>(), tasks);
}

#[test]
fn children_that_come_meanwhile_are_taken_and_given_back() {
    let world = World::new([(1, task("/a", Other)), (2, task("/a/b", Other))]);
    let mut members = world.members(partial(&["/a"], &[]));
    world.births.set(2);
    assert_eq!(members.walk().unwrap().tasks, 4);
    assert_eq!(world.policies(), [Ext; 4]);
    world.births.set(2);
    drop(members);
    assert_eq!(world.policies(), [Other; 6]);
}

#[test]
fn constant_forking_does_not_prolong_a_walk() {
    let world = World::new([(1, task("/a", Other))]);
    let mut members = world.members(partial(&["/a"], &[]));
    world.births.set(u32::MAX);
    members.walk().unwrap();
    assert_eq!(world.policies(), [Ext, Ext, Ext, Other], "as many walks as there may be in a row");
    world.births.set(0);
}

#[test]
fn a_task_gets_back_its_last_choice() {
    let world = World::new([(1, task("/a", Idle)), (2, task("/a", Idle))]);
    let mut members = world.members(partial(&["/a"], &[]));
    members.walk().unwrap();
    world.tasks.borrow_mut().get_mut(&1).unwrap().policy = Other;
    members.walk().unwrap();
    assert_eq!(world.policies(), [Ext; 2]);
    // Another task has the second one's number meanwhile.
    world.write_stat(2, "S", USUAL, 6);
    drop(members);
    assert_eq!(world.policies(), [Other; 2]);
}

#[test]
fn a_task_born_meanwhile_is_left_to_the_next_walk() {
    let world = World::new([(1, task("/a", Other)), (2, task("/b", Ext)), (3, task("/b", Ext))]);
    world.write_stat(3, "S", USUAL, now_ticks() + 1000);
    let mut members = world.members(partial(&["/a"], &[]));
    assert_eq!(members.walk().unwrap().given_back, 1);
    assert_eq!(world.policies(), [Ext, Other, Ext]);
    drop(members);
    assert_eq!(world.policies(), [Other; 3], "in the end all are");
}

#[test]
fn a_task_that_moves_within_the_part_stays_with_it() {
    let world = World::new([(1, task("/a", Other)), (2, task("/a", Other))]);
    let mut members = world.members(partial(&["/a"], &[]));
    members.walk().unwrap();
    // The task moved to a cgroup whose list had been read: it is on no list.
    fs::write(world.cgroup("/a").join("cgroup.threads"), "1\n").unwrap();
    members.due = Instant::now();
    assert_eq!(members.step().unwrap().map(|result| result.given_back), Some(0));
    fs::write(world.cgroup("/a").join("cgroup.threads"), "1\n2\n").unwrap();
    assert_eq!(members.step().unwrap().map(|result| result.tasks), Some(2), "at once");
    // But a task that is on no list twice has left.
    fs::write(world.cgroup("/a").join("cgroup.threads"), "1\n").unwrap();
    members.due = Instant::now();
    let given_back: usize = (0..2).map(|_| members.step().unwrap().unwrap().given_back).sum();
    assert_eq!((given_back, world.policies()), (1, vec![Ext, Other]));
}

#[test]
fn a_long_walk_is_taken_in_steps() {
    let world = World::new((1..).zip(["/a", "/b", "/b", "/d"].map(|cgroup| task(cgroup, Other))));
    let mut members = world.members(partial(&["/a", "/b"], &[]));
    members.step_max = Duration::ZERO;
    let results: Vec<_> = std::iter::repeat_with(|| members.step().unwrap()).take(13).collect();
    let result = WalkResult { tasks: 3, taken: 3, given_back: 0, refused: None, hidden: None };
    // Two cgroups, each with its beginning and its end, their three tasks, and the end of the lists; all four
    // tasks, and the end.
    assert_eq!(results.iter().position(Option::is_some), Some(2 * 2 + 3 + 1 + 4));
    assert_eq!(results.last(), Some(&Some(result)));
    assert_eq!(world.policies(), [Ext, Ext, Ext, Other]);
}

#[test]
fn kernel_threads_and_the_dead_stay_as_they_are() {
    let world = World::new([
        (2, task("/", Other)),
        (3, task("/", Other)),
        (4, task("/x/vm", Other)),
        (5, task("/", Other)),
        (6, task("/y", Ext)),
    ]);
    for (tid, state, flags) in
        [(2, "S", OF_THE_KERNEL), (4, "S", OF_THE_KERNEL), (5, "Z", USUAL), (6, "Z", USUAL)]
    {
        world.write_stat(tid, state, flags, 5);
    }
    let mut members = world.members(partial(&["/"], &["/y"]));
    let result = members.walk().unwrap();
    assert_eq!((result.taken, result.given_back), (1, 0));
    assert_eq!(world.policies(), [Other, Ext, Other, Other, Ext]);
}

#[test]
fn a_refusal_is_reported_and_ends_nothing() {
    let mut world = World::new([(1, task("/a", Other)), (2, task("/a", Other)), (3, task("/a", Ext))]);
    world.refuses = Some(1);
    let mut members = world.members(partial(&["/a"], &[]));
    let refused = Some((Tid::new(1).unwrap(), Errno::PERM));
    assert_eq!(
        members.walk().unwrap(),
        WalkResult { tasks: 2, taken: 1, given_back: 0, refused, hidden: None }
    );
}

#[test]
fn a_hidden_cgroup_is_outside_and_reported() {
    let world = World::new([(1, task("/a", Other)), (2, task("/a/b", Ext)), (3, task("/a/c", Ext))]);
    let file = world.cgroup("/a/b/cgroup.threads");
    fs::remove_file(&file).unwrap();
    // No user, not even root, can read a folder as a file.
    fs::create_dir(&file).unwrap();
    let result = world.members(partial(&["/a"], &[])).walk().unwrap();
    assert_eq!((result.tasks, result.given_back), (2, 1));
    assert!(result.hidden.is_some_and(|hidden| hidden.starts_with("/a/b: ")), "the first that is met");
}

#[test]
fn endless_levels_are_outside_and_reported() {
    let deep = "/a".repeat(DEPTH_MAX + 2);
    let world = World::new([(1, task("/a", Other)), (2, task(deep.leak(), Ext))]);
    let result = world.members(partial(&["/a"], &[])).walk().unwrap();
    assert_eq!((result.tasks, result.given_back), (1, 1));
    assert!(result.hidden.is_some_and(|hidden| hidden.ends_with("more than 64 levels down")));
}

#[test]
fn without_the_hierarchy_or_the_cgroup() {
    let world = World::new([(1, task("/a", Other))]);
    let mut members = world.members(partial(&["/none"], &[]));
    assert_eq!(members.walk().unwrap(), WalkResult::default(), "it may come");
    fs::write(world.folder.path().join("proc/self/mountinfo"), "").unwrap();
    assert!(matches!(members.walk(), Err(CgroupError::NotMounted)));
}

const CGROUPS: [&str; 6] = ["/", "/a", "/a/a", "/a/b", "/b", "/b/a"];
const POLICIES: [Policy; 5] = [Other, Batch, Idle, Ext, Higher];

/// Some cgroups, by their index in the list.
fn some() -> impl Strategy<Value = BTreeSet<usize>> {
    prop::collection::btree_set(0..CGROUPS.len(), 0..3)
}

/// The cgroups and policies of tasks, first and later.
fn life() -> impl Strategy<Value = Vec<[(usize, usize); 2]>> {
    let at = || (0..CGROUPS.len(), 0..POLICIES.len());
    prop::collection::vec((at(), at()).prop_map(|(before, after)| [before, after]), 1..12)
}

proptest! {
    /// After a walk the scheduler has exactly the tasks of the part, whatever their policies and cgroups were
    /// before.
    #[test]
    fn a_walk_makes_it_so(cgroups in some(), except in some(), other in some(), life in life()) {
        let names = |set: &BTreeSet<usize>| set.iter().map(|&at| CGROUPS[at]).collect::<Vec<_>>();
        let except: BTreeSet<usize> = except.difference(&cgroups).copied().collect();
        let settings = [partial(&names(&cgroups), &names(&except)), partial(&names(&other), &[])];
        let tasks = |time: usize| {
            let at = move |both: &[(usize, usize); 2]| task(CGROUPS[both[time].0], POLICIES[both[time].1]);
            (1u32..).zip(life.iter().map(at).collect::<Vec<_>>())
        };
        let world = World::new(tasks(0));
        let mut members = world.members(settings[0].clone());
        for (time, partial) in settings.iter().enumerate() {
            world.change(|all| *all = tasks(time).collect());
            members.set(partial.clone());
            let is_idle = !members.is_at_work;
            members.walk().unwrap();
            for ((_, before), after) in tasks(time).zip(world.tasks.borrow().values()) {
                let is_covered = partial.is_on() && partial.covers(Path::new(before.cgroup));
                match before.policy {
                    Higher => prop_assert_eq!(after.policy, Higher),
                    _ if is_covered => prop_assert_eq!(after.policy, Ext),
                    // It has the usual policy, or the one that it had when it was taken.
                    Ext if !is_idle => prop_assert_ne!(after.policy, Ext),
                    policy => prop_assert_eq!(after.policy, policy),
                }
            }
        }
        let was_on = members.is_at_work;
        drop(members);
        prop_assert!(!was_on || !world.policies().contains(&Ext));
    }
}
