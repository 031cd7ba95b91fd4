//! The names that appear in a trace.

use std::collections::BTreeMap;
use tandem_machine::ids::{CpuId, KernelId, TaskId};
use tandem_sim::scenario::Scenario;

/// The name of a task before its first name event; a guest kernel names a task before any other event of it.
const UNNAMED: &str = "unnamed";

/// A name, by its position in [`Names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NameId(u32);

impl NameId {
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Every name so far, once, and the name of each task. Grows with the programs of a scenario and with the
/// tasks that exist at the same time.
pub(super) struct Names {
    texts: Vec<String>,
    ids: BTreeMap<String, NameId>,
    unnamed: NameId,
    /// By kernel and task.
    tasks: Vec<Vec<NameId>>,
    /// The operating system's numbers of the pCPUs.
    pcpus: Vec<u32>,
}

impl Names {
    /// The names of the scenario's vCPUs, which are the tasks of the host.
    pub fn new(scenario: &Scenario) -> Self {
        let mut names = Self {
            texts: Vec::new(),
            ids: BTreeMap::new(),
            unnamed: NameId(0),
            tasks: vec![Vec::new(); 1 + scenario.workloads.len()],
            pcpus: scenario.machine.cpus().iter().map(|cpu| cpu.os_index).collect(),
        };
        names.unnamed = names.intern(UNNAMED);
        for vm in &scenario.workloads {
            for vcpu in 0..vm.task_count() {
                let name = match vm.is_kernel() {
                    true => names.intern(&format!("{}/{vcpu}", vm.name)),
                    false => names.intern(&format!("{}/vcpu{vcpu}", vm.name)),
                };
                names.tasks[KernelId::HOST.index()].push(name);
            }
        }
        names
    }

    /// The number of a name, old or new.
    pub fn intern(&mut self, text: &str) -> NameId {
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        let id = NameId(u32::try_from(self.texts.len()).expect("fewer names than 2^32 fit into memory"));
        self.texts.push(text.to_owned());
        self.ids.insert(text.to_owned(), id);
        id
    }

    /// Gives a guest's task a name.
    pub fn set(&mut self, kernel: KernelId, task: TaskId, text: &str) {
        let name = self.intern(text);
        let tasks = &mut self.tasks[kernel.index()];
        if tasks.len() <= task.index() {
            tasks.resize(task.index() + 1, self.unnamed);
        }
        tasks[task.index()] = name;
    }

    /// The name of a task.
    pub fn of(&self, kernel: KernelId, task: TaskId) -> NameId {
        self.tasks[kernel.index()].get(task.index()).copied().unwrap_or(self.unnamed)
    }

    /// The number of a CPU that users see: the operating system's for a pCPU, its position in the VM for a
    /// vCPU.
    pub fn cpu(&self, kernel: KernelId, cpu: CpuId) -> u32 {
        if kernel == KernelId::HOST { self.pcpus[cpu.index()] } else { cpu.0 }
    }

    pub fn text(&self, id: NameId) -> &str {
        &self.texts[id.index()]
    }

    /// All names, in the order of their first use.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }
}
