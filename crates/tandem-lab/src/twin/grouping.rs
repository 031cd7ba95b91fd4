//! In which groups the tasks of a recording are measured, and how these are named.
//!
//! Names are what strangers chose, and say which group a change is for, so that no two groups may have the same
//! one, nor one that means all groups. A group whose own name is not enough has words behind it that say what
//! it is.

use super::plan::ALL;
use std::collections::{HashMap, HashSet};
use tandem_recording::{About, Recording};

/// The name of all tasks, in tables and objectives.
pub const TOTAL: &str = "total";

/// What tasks of a group have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupBy {
    /// A virtual machine; tasks of none, the name of their process.
    #[default]
    Vm,
    /// The name of their process.
    Process,
    /// Their cgroup.
    Cgroup,
    /// Their own name.
    Thread,
}

/// What makes a group.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// The virtual machine at this position.
    Vm(usize),
    /// Processes of this name.
    Process(String),
    /// Threads of the kernel.
    Kernel,
    /// The task of this number, of which nothing else is known.
    Task(u32),
    /// The cgroup of this path.
    Cgroup(String),
    /// Threads of this name.
    Thread(String),
}

impl GroupBy {
    /// The group of a task.
    pub fn group(self, recording: &Recording, task: usize) -> Group {
        let about = &recording.about;
        let facts = &about.tasks[task];
        let process = || match (facts.is_kernel, facts.process.as_str(), facts.name.as_str()) {
            (true, ..) => Group::Kernel,
            (_, "", "") => Group::Task(facts.tid),
            (_, "", name) | (_, name, _) => Group::Process(name.to_owned()),
        };
        let vm = || facts.vm.filter(|vm| *vm < about.vms.len()).map(Group::Vm);
        let cgroup = || facts.cgroup.and_then(|cgroup| about.cgroups.get(cgroup));
        match self {
            Self::Vm => vm().unwrap_or_else(process),
            Self::Process => process(),
            Self::Cgroup => cgroup().map_or_else(process, |cgroup| Group::Cgroup(cgroup.path.clone())),
            Self::Thread if !facts.name.is_empty() => Group::Thread(facts.name.clone()),
            Self::Thread => process(),
        }
    }
}

impl Group {
    fn own_name(&self, about: &About) -> String {
        match self {
            Self::Vm(vm) => about.vms[*vm].name.clone(),
            Self::Process(name) | Self::Thread(name) | Self::Cgroup(name) => name.clone(),
            Self::Kernel => "kernel".into(),
            Self::Task(tid) => format!("task {tid}"),
        }
    }

    fn what(&self, about: &About) -> String {
        match self {
            Self::Vm(vm) => format!("VM of process {}", about.vms[*vm].pid),
            Self::Process(_) => "process".into(),
            Self::Kernel => "threads of the kernel".into(),
            Self::Task(_) => "of an unknown process".into(),
            Self::Cgroup(_) => "cgroup".into(),
            Self::Thread(_) => "thread".into(),
        }
    }
}

/// The groups of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Grouped<'a> {
    /// The name of the VM whose guest it is; `None`: it is the host.
    pub guest: Option<&'a str>,
    /// What makes each group.
    pub groups: &'a [Group],
    /// What they are about.
    pub about: &'a About,
}

impl Grouped<'_> {
    /// The own name of each group, and what it is. In a guest, names begin with that of the VM and a slash.
    fn labels(&self) -> impl Iterator<Item = (String, String)> {
        self.groups.iter().map(|group| {
            let (own, what) = (group.own_name(self.about), group.what(self.about));
            match self.guest {
                None => (own, what),
                Some(vm) => (format!("{vm}/{own}"), format!("{what} in the guest")),
            }
        })
    }
}

/// A name for each group of these kernels, one after the other, of which no two are the same.
pub fn names(kernels: &[Grouped<'_>]) -> Vec<String> {
    let labels: Vec<(String, String)> = kernels.iter().flat_map(Grouped::labels).collect();
    let mut counts: HashMap<&str, usize> = HashMap::new();
    labels.iter().for_each(|(own, _)| *counts.entry(own).or_default() += 1);
    let is_enough = |name: &str| counts[name] == 1 && ![TOTAL, ALL, ""].contains(&name);
    let own = labels.iter().map(|(own, _)| own);
    let mut taken: HashSet<String> = own.filter(|name| is_enough(name)).cloned().collect();
    // How many have the same words behind their name.
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let with_words = |(own, what): &(String, String)| {
        if is_enough(own) {
            return own.clone();
        }
        let full = format!("{own} ({what})").trim_start().to_owned();
        let number = numbers.entry(full.clone()).or_insert(0);
        loop {
            *number += 1;
            let name = if *number == 1 { full.clone() } else { format!("{full} #{number}") };
            if taken.insert(name.clone()) {
                return name;
            }
        }
    };
    labels.iter().map(with_words).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_recording::Vm;

    #[test]
    fn no_two_groups_have_one_name_and_none_that_of_all() {
        let vm = |name: &str, pid| Vm { name: name.into(), pid, ..Vm::default() };
        let vms = vec![vm("web", 7), vm("web", 8), vm("db", 9), vm("total", 10), vm("", 11), vm("web", 7)];
        let about = About { vms, ..About::default() };
        let process = |name: &str| Group::Process(name.into());
        let mut groups: Vec<Group> = (0..6).map(Group::Vm).collect();
        groups.extend(["db", "*", "kernel", "web (VM of process 7)", "task 5", "gzip"].map(process));
        groups.extend([Group::Kernel, Group::Task(5)]);
        let names = names(&[Grouped { guest: None, groups: &groups, about: &about }]);
        assert_eq!(
            names,
            [
                "web (VM of process 7) #2",
                "web (VM of process 8)",
                "db (VM of process 9)",
                "total (VM of process 10)",
                "(VM of process 11)",
                "web (VM of process 7) #3",
                "db (process)",
                "* (process)",
                "kernel (process)",
                "web (VM of process 7)",
                "task 5 (process)",
                "gzip",
                "kernel (threads of the kernel)",
                "task 5 (of an unknown process)",
            ]
        );
    }

    #[test]
    fn groups_of_guests_have_names_of_their_own() {
        let about = About { vms: vec![Vm { name: "web".into(), ..Vm::default() }], ..About::default() };
        let process = |name: &str| Group::Process(name.into());
        let host = [Group::Vm(0), process("web/nginx"), process("web/total")];
        let guest = ["nginx", "web", "*", "db/sh"].map(process);
        let (none, other) = (About::default(), [process("sh"), Group::Kernel]);
        let names = names(&[
            Grouped { guest: None, groups: &host, about: &about },
            Grouped { guest: Some("web"), groups: &guest, about: &none },
            Grouped { guest: Some("web/db"), groups: &other, about: &none },
        ]);
        assert_eq!(
            names,
            [
                "web",
                "web/nginx (process)",
                "web/total",
                "web/nginx (process in the guest)",
                "web/web",
                "web/*",
                "web/db/sh (process in the guest)",
                "web/db/sh (process in the guest) #2",
                "web/db/kernel",
            ]
        );
    }
}
