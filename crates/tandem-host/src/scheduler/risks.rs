//! Reasons not to load the scheduler on this machine in its present state.
//!
//! Each is something that works under the kernel's own scheduler, and would silently fail, or do worse, under
//! this one. The operator decides: `tandem run` refuses to load, unless the settings say to
//! [ignore](tandem_settings::Ignore) the risk.

use super::RunningKernel;
use super::faults::Fault;
use super::kernel_types::KernelTypes;
use super::load::enforces_limits;
use crate::cgroups::{CpuLimits, Hierarchy, cpu_limits};
use crate::core_scheduling::{CookieVm, vms_with_cookies};
use crate::untrusted::Untrusted;
use std::fmt;
use std::path::{Path, PathBuf};
use tandem_machine::Machine;
use tandem_settings::{Ignore, Partial};

/// Most VMs that are named; the rest are counted.
const NAMED_MAX: usize = 3;

/// A reason not to load the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Risk {
    /// Cgroups have CPU limits that the scheduler would not enforce.
    Limits(CpuLimits),
    /// Tasks of these VMs have core scheduling cookies, with which the kernel of this release hangs.
    Cookies {
        /// The VMs.
        vms: Vec<CookieVm>,
        /// The kernel's release.
        release: String,
    },
    /// The kernel's own tasks run first on CPUs that they share with tasks of these cgroups, and this release
    /// has no remedy.
    Starvation {
        /// The cgroups.
        cgroups: Vec<PathBuf>,
        /// The kernel's release.
        release: String,
    },
}

impl Risk {
    /// The name by which the settings ignore it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Limits(_) => "limits",
            Self::Cookies { .. } => "cookies",
            Self::Starvation { .. } => "starvation",
        }
    }

    /// What the operator can do about it.
    pub fn cure(&self) -> &'static str {
        match self {
            Self::Limits(_) => "remove the limits, or run it with --ignore limits",
            Self::Cookies { .. } => {
                "boot another kernel, start the VMs without core scheduling, or run it with --ignore cookies"
            }
            Self::Starvation { .. } => {
                "give them CPUs of their own (`root` in cpuset.cpus.partition), name no exceptions in them, or run it with --ignore starvation"
            }
        }
    }

    /// Whether the settings ignore it.
    pub fn is_ignored(&self, ignore: &Ignore) -> bool {
        match self {
            Self::Limits(_) => ignore.limits,
            Self::Cookies { .. } => ignore.cookies,
            Self::Starvation { .. } => ignore.starvation,
        }
    }
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limits(CpuLimits { count: 0, .. }) => {
                write!(
                    f,
                    "cgroups are too many, too deep or too hidden to check for CPU limits (cpu.max), which would not be enforced"
                )
            }
            Self::Limits(CpuLimits { count, first, is_complete }) => {
                let names = first.iter().map(|path| shown(path));
                let many = if *is_complete { "" } else { " at least" };
                let named = listed(names.collect(), *count);
                write!(f, "the CPU limits (cpu.max) of cgroups would not be enforced:{many} {named}")
            }
            Self::Cookies { vms, release } => {
                let names = vms.iter().take(NAMED_MAX).map(name);
                let named = listed(names.collect(), vms.len());
                write!(
                    f,
                    "Linux {release} hangs with a sched_ext scheduler and core scheduling (fixed in 7.2.4 and 7.3), which {named} \
                     {}",
                    if vms.len() == 1 { "uses" } else { "use" }
                )
            }
            Self::Starvation { cgroups, release } => {
                let names = cgroups.iter().take(NAMED_MAX).map(|path| shown(path));
                let named = listed(names.collect(), cgroups.len());
                write!(
                    f,
                    "Linux {release} runs tasks of its own scheduler before those of a sched_ext scheduler, however long these wait, and \
                     {named} would share CPUs with such tasks"
                )
            }
        }
    }
}

/// A VM with its process, for messages.
fn name(vm: &CookieVm) -> String {
    let seems = if vm.is_certain { "" } else { ", according to its command line" };
    format!("VM {} (process {}{seems})", vm.name, vm.pid)
}

fn shown(path: &Path) -> String {
    Untrusted::new(path.to_string_lossy()).shown()
}

/// Some of `count` things: `/a, /b, /c and 4 more`.
fn listed(names: Vec<String>, count: usize) -> String {
    match count.saturating_sub(names.len()) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// The risks of loading a scheduler for this part of the machine now. A risk that cannot be checked counts as
/// absent.
pub fn risks(kernel: &RunningKernel, machine: &Machine, partial: &Partial) -> Vec<Risk> {
    let types = KernelTypes::read(kernel).ok();
    let limits = limits(kernel, types.as_ref()).map(Risk::Limits);
    let cookies = hangs_with_cookies(kernel, types.as_ref(), machine).then(|| cookies(kernel)).flatten();
    let starvation = starvation(kernel, types.as_ref(), partial);
    limits.into_iter().chain(cookies).chain(starvation).collect()
}

/// Limits that the scheduler would not enforce. Those of cgroups outside of a part count as well: any task
/// can join the part for a while.
fn limits(kernel: &RunningKernel, types: Option<&KernelTypes>) -> Option<CpuLimits> {
    let are_enforced = types.is_some_and(|types| enforces_limits(types).unwrap_or(false));
    let limits = if are_enforced { None } else { cpu_limits(kernel.root()).ok() };
    limits.filter(|limits| limits.count > 0 || !limits.is_complete)
}

/// Whether a kernel with these types gives tasks of a sched_ext scheduler a twentieth of a CPU that other
/// tasks keep busy, through a server on each run queue: `ext_server_init()` in `kernel/sched/ext.c`.
pub fn keeps_parts_from_starving(types: &KernelTypes) -> bool {
    types.has_member("rq", "ext_server")
}

/// Cgroups whose tasks would starve.
fn starvation(kernel: &RunningKernel, types: Option<&KernelTypes>, partial: &Partial) -> Option<Risk> {
    if !partial.is_on() || types.is_some_and(keeps_parts_from_starving) {
        return None;
    }
    let hierarchy = Hierarchy::find(kernel.root()).ok();
    let is_shared = |cgroup: &&Path| {
        let is_partition = hierarchy.as_ref().is_some_and(|hierarchy| hierarchy.is_partition(cgroup));
        !is_partition || partial.except.iter().any(|inner| inner.starts_with(cgroup))
    };
    let cgroups: Vec<PathBuf> = partial.beginnings().filter(is_shared).map(Path::to_owned).collect();
    (!cgroups.is_empty()).then(|| Risk::Starvation { cgroups, release: kernel.release() })
}

/// Whether a cookie would hang this machine.
pub fn is_endangered_by_cookies(kernel: &RunningKernel, machine: &Machine) -> bool {
    hangs_with_cookies(kernel, KernelTypes::read(kernel).ok().as_ref(), machine)
}

fn hangs_with_cookies(kernel: &RunningKernel, types: Option<&KernelTypes>, machine: &Machine) -> bool {
    machine.has_smt() && Fault::CoreScheduling.is_in(&kernel.release(), types)
}

fn cookies(kernel: &RunningKernel) -> Option<Risk> {
    let vms = vms_with_cookies(kernel.root()).unwrap_or_default();
    (!vms.is_empty()).then(|| Risk::Cookies { vms, release: kernel.release() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::kernel_types::OPS;
    use crate::scheduler::kernel_types::testing::btf;
    use crate::topology::read_sysfs;
    use crate::vms::testing::{Cgroups, Process, Tree};
    use std::fs;

    /// A host of this release with two threads on each core.
    struct Host {
        folder: tempfile::TempDir,
        tree: Tree,
        partial: Partial,
    }

    impl Host {
        fn new(release: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let tree = Tree::new(folder.path());
            tree.machine(1, 4);
            tree.cgroups(Cgroups::Unified);
            tree.write("proc/sys/kernel/osrelease", &format!("{release}\n"));
            for cpu in 0..4 {
                let core = ["0-1", "2-3"][cpu / 2];
                tree.write(&format!("sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list"), core);
            }
            Self { folder, tree, partial: Partial::default() }
        }

        fn types(&self, structures: &[(&str, &[&str])]) {
            let file = self.folder.path().join("sys/kernel/btf/vmlinux");
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, btf(structures, &[])).unwrap();
        }

        fn risks(&self) -> Vec<String> {
            let machine = read_sysfs(self.folder.path()).unwrap();
            let found = risks(&RunningKernel::new(self.folder.path()), &machine, &self.partial);
            found.iter().map(Risk::to_string).collect()
        }
    }

    fn cloud_hypervisor(pid: u32, name: &str, options: &[&str]) -> Process {
        let socket = format!("/run/{name}.sock");
        let arguments = [&["--api-socket", &socket][..], options].concat();
        Process::new(pid, "/usr/bin/cloud-hypervisor", &arguments).thread("vcpu0")
    }

    #[test]
    fn limits_are_named_and_counted() {
        let host = Host::new("7.3.4");
        assert_eq!(host.risks(), [""; 0]);
        host.tree.cgroup("/a", "cpu.max", "max 100000\n");
        host.tree.cgroup("/a/b\u{1b}[31m", "cpu.max", "50000 100000\n");
        let expected = "the CPU limits (cpu.max) of cgroups would not be enforced: /a/b\\u{1b}[31m";
        assert_eq!(host.risks(), [expected]);
        for number in 0..4 {
            host.tree.cgroup(&format!("/{number}"), "cpu.max", "50000 100000\n");
        }
        let expected = "the CPU limits (cpu.max) of cgroups would not be enforced: /0, /1, /2 and 2 more";
        assert_eq!(host.risks(), [expected]);
    }

    #[test]
    fn limits_are_enforced_if_the_kernel_passes_them_on_and_the_object_has_the_callback() {
        let host = Host::new("7.3.4");
        host.tree.cgroup("/a", "cpu.max", "50000 100000\n");
        host.types(&[(OPS, &["init"])]);
        assert_eq!(host.risks().len(), 1, "the kernel does not pass limits on");
        host.types(&[(OPS, &["init", "cgroup_set_bandwidth"])]);
        let storage = &mut std::mem::MaybeUninit::uninit();
        let builder = tandem_bpf::TandemSkelBuilder::default();
        let skel = libbpf_rs::skel::SkelBuilder::open(builder, storage).unwrap();
        let listens = !skel.struct_ops.tandem().cgroup_set_bandwidth.is_null();
        assert_eq!(host.risks().is_empty(), listens);
    }

    #[test]
    fn a_cookie_is_a_risk_on_kernels_that_hang_with_it() {
        let host = Host::new("7.1.3");
        host.tree.process(&Process::libvirt(500, "db", 2));
        host.tree.process(&cloud_hypervisor(600, "off", &["--cpus", "boot=1,core_scheduling=off"]));
        assert_eq!(host.risks(), [""; 0]);
        host.tree.process(&cloud_hypervisor(700, "web", &[]));
        let expected = "Linux 7.1.3 hangs with a sched_ext scheduler and core scheduling (fixed in 7.2.4 and 7.3), which VM web \
            (process 700, according to its command line) uses";
        assert_eq!(host.risks(), [expected]);
        host.types(&[("scx_rq", &["lock_drop_seq"])]);
        assert_eq!(host.risks(), [""; 0], "the fix is present");

        for (release, hang) in [("6.12.41-amd64", 1), ("7.2.4", 0), ("7.3.0", 0)] {
            let host = Host::new(release);
            host.tree.process(&cloud_hypervisor(700, "web", &[]));
            assert_eq!(host.risks().len(), hang, "{release}");
        }
    }

    #[test]
    fn a_part_starves_beside_others_unless_the_kernel_or_its_own_cpus_keep_it_from_that() {
        let mut host = Host::new("6.12.41-amd64");
        host.partial.cgroups = vec!["/machine.slice".into()];
        let expected = "Linux 6.12.41-amd64 runs tasks of its own scheduler before those of a sched_ext scheduler, however long these \
            wait, and /machine.slice would share CPUs with such tasks";
        assert_eq!(host.risks(), [expected]);
        host.tree.cgroup("/machine.slice", "cpuset.cpus.partition", "root\n");
        assert_eq!(host.risks(), [""; 0], "it has CPUs of its own");
        host.partial.except = vec!["/machine.slice/a".into()];
        assert_eq!(host.risks(), [expected], "an exception is on the same CPUs");
        host.types(&[("rq", &["lock", "ext_server"])]);
        assert_eq!(host.risks(), [""; 0], "the kernel's server prevents it");
    }

    #[test]
    fn cookies_do_nothing_where_cores_have_one_thread() {
        let host = Host::new("7.1.3");
        host.tree.machine(1, 4);
        host.tree.process(&cloud_hypervisor(700, "web", &[]));
        assert_eq!(host.risks(), [""; 0]);
    }

    #[test]
    fn each_is_ignored_by_its_name() {
        let release = || "7.1.3".to_owned();
        let risks = [
            Risk::Limits(CpuLimits::default()),
            Risk::Cookies { vms: Vec::new(), release: release() },
            Risk::Starvation { cgroups: Vec::new(), release: release() },
        ];
        let ignored = |ignore: Ignore| risks.each_ref().map(|risk| risk.is_ignored(&ignore));
        let none = Ignore::default();
        assert_eq!(ignored(none.clone()), [false; 3]);
        assert_eq!(ignored(Ignore { limits: true, ..none.clone() }), [true, false, false]);
        assert_eq!(ignored(Ignore { cookies: true, ..none.clone() }), [false, true, false]);
        assert_eq!(ignored(Ignore { starvation: true, ..none }), [false, false, true]);
    }
}
