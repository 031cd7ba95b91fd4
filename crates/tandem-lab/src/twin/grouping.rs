//! In which groups the tasks of a recording are measured.

use tandem_recording::Recording;

/// The group of kernel threads.
pub const KERNEL: &str = "kernel";

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

impl GroupBy {
    /// The name of a task's group.
    pub fn name(self, recording: &Recording, task: usize) -> String {
        let about = &recording.about;
        let facts = &about.tasks[task];
        let process = || match (facts.is_kernel, facts.process.as_str(), facts.name.as_str()) {
            (true, ..) => KERNEL.into(),
            (_, "", "") => format!("task {}", facts.tid),
            (_, "", name) | (_, name, _) => name.to_owned(),
        };
        let vm = || facts.vm.and_then(|vm| about.vms.get(vm)).map(|vm| vm.name.clone());
        let cgroup = || facts.cgroup.and_then(|cgroup| about.cgroups.get(cgroup)).map(|it| it.path.clone());
        match self {
            Self::Vm => vm().unwrap_or_else(process),
            Self::Process => process(),
            Self::Cgroup => cgroup().unwrap_or_else(process),
            Self::Thread if !facts.name.is_empty() => facts.name.clone(),
            Self::Thread => process(),
        }
    }
}
