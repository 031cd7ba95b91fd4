//! What makes it unwise to load the scheduler on this machine as it is now.
//!
//! Each is something that works under the kernel's own scheduler, and would silently end, or end worse, under this one. The
//! operator decides: `tandem run` refuses, unless the settings say to [ignore](super::Ignore) it.

use super::faults::Fault;
use super::kernel_types::KernelTypes;
use super::load::enforces_limits;
use super::{Ignore, Kernel};
use crate::cgroups::{CpuLimits, cpu_limits};
use crate::core_scheduling::{CookieVm, vms_with_cookies};
use crate::untrusted::Untrusted;
use std::fmt;
use tandem_sim::machine::Machine;

/// VMs that are named; the others are counted.
const NAMED_MAX: usize = 3;

/// Something that makes it unwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Risk {
    /// Cgroups have CPU limits, and nobody would enforce them.
    Limits(CpuLimits),
    /// Tasks of these VMs have cookies of core scheduling, with which the kernel of this release hangs.
    Cookies {
        /// The VMs.
        vms: Vec<CookieVm>,
        /// The kernel's release.
        release: String,
    },
}

impl Risk {
    /// The name by which the operator ignores it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Limits(_) => "limits",
            Self::Cookies { .. } => "cookies",
        }
    }

    /// What the operator can do.
    pub fn cure(&self) -> &'static str {
        match self {
            Self::Limits(_) => "remove the limits, or run it with --ignore limits",
            Self::Cookies { .. } => {
                "boot another kernel, start the VMs without core scheduling, or run it with --ignore cookies"
            }
        }
    }

    /// Whether the operator does.
    pub fn is_ignored(&self, ignore: &Ignore) -> bool {
        match self {
            Self::Limits(_) => ignore.limits,
            Self::Cookies { .. } => ignore.cookies,
        }
    }
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limits(CpuLimits { count, first, is_complete }) => {
                let names = first.iter().map(|path| Untrusted::new(path.to_string_lossy()).shown());
                let many = if *is_complete { "" } else { " at least" };
                let named = listed(names.collect(), *count);
                write!(f, "the CPU limits (cpu.max) of cgroups would not be enforced:{many} {named}")
            }
            Self::Cookies { vms, release } => {
                let names = vms.iter().take(NAMED_MAX).map(name);
                let named = listed(names.collect(), vms.len());
                write!(
                    f,
                    "Linux {release} hangs with a sched_ext scheduler and core scheduling (mended in 7.2.4 and 7.3), which {named} \
                     {}",
                    if vms.len() == 1 { "uses" } else { "use" }
                )
            }
        }
    }
}

/// A VM with its process, for people.
fn name(vm: &CookieVm) -> String {
    let seems = if vm.is_certain { "" } else { ", by its command line" };
    format!("VM {} (process {}{seems})", vm.name, vm.pid)
}

/// Some of `count` things: `/a, /b, /c and 4 more`.
fn listed(names: Vec<String>, count: usize) -> String {
    match count.saturating_sub(names.len()) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// What is risky on this machine now. What cannot be looked at is taken not to be there.
pub fn risks(kernel: &Kernel, machine: &Machine) -> Vec<Risk> {
    let types = KernelTypes::read(kernel).ok();
    let limits = limits(kernel, types.as_ref()).map(Risk::Limits);
    let cookies = hangs_with_cookies(kernel, types.as_ref(), machine).then(|| cookies(kernel)).flatten();
    limits.into_iter().chain(cookies).collect()
}

/// Limits that nobody would enforce.
fn limits(kernel: &Kernel, types: Option<&KernelTypes>) -> Option<CpuLimits> {
    let are_enforced = types.is_some_and(|types| enforces_limits(types).unwrap_or(false));
    let limits = if are_enforced { None } else { cpu_limits(kernel.root()).ok() };
    limits.filter(|limits| limits.count > 0)
}

/// Whether a cookie would hang this machine.
pub fn is_endangered_by_cookies(kernel: &Kernel, machine: &Machine) -> bool {
    hangs_with_cookies(kernel, KernelTypes::read(kernel).ok().as_ref(), machine)
}

fn hangs_with_cookies(kernel: &Kernel, types: Option<&KernelTypes>, machine: &Machine) -> bool {
    machine.has_smt() && Fault::CoreScheduling.is_in(&kernel.release(), types)
}

fn cookies(kernel: &Kernel) -> Option<Risk> {
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

    /// A host of that release with two threads on each core.
    struct Host {
        folder: tempfile::TempDir,
        tree: Tree,
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
            Self { folder, tree }
        }

        fn types(&self, structures: &[(&str, &[&str])]) {
            let file = self.folder.path().join("sys/kernel/btf/vmlinux");
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, btf(structures, &[])).unwrap();
        }

        fn risks(&self) -> Vec<String> {
            let machine = read_sysfs(self.folder.path()).unwrap();
            let found = risks(&Kernel::new(self.folder.path()), &machine);
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
    fn limits_are_enforced_if_the_kernel_tells_them_and_the_object_listens() {
        let host = Host::new("7.3.4");
        host.tree.cgroup("/a", "cpu.max", "50000 100000\n");
        host.types(&[(OPS, &["init"])]);
        assert_eq!(host.risks().len(), 1, "the kernel does not tell them");
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
        let expected = "Linux 7.1.3 hangs with a sched_ext scheduler and core scheduling (mended in 7.2.4 and 7.3), which VM web \
            (process 700, by its command line) uses";
        assert_eq!(host.risks(), [expected]);
        host.types(&[("scx_rq", &["lock_drop_seq"])]);
        assert_eq!(host.risks(), [""; 0], "the mending change is there");

        for (release, hang) in [("6.12.41-amd64", 1), ("7.2.4", 0), ("7.3.0", 0)] {
            let host = Host::new(release);
            host.tree.process(&cloud_hypervisor(700, "web", &[]));
            assert_eq!(host.risks().len(), hang, "{release}");
        }
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
        let limits = Risk::Limits(CpuLimits::default());
        let cookies = Risk::Cookies { vms: Vec::new(), release: "7.1.3".into() };
        let none = Ignore::default();
        assert!(!limits.is_ignored(&none) && !cookies.is_ignored(&none));
        let ignore = Ignore { limits: true, ..none };
        assert!(limits.is_ignored(&ignore) && !cookies.is_ignored(&ignore));
        let ignore = Ignore { cookies: true, ..Ignore::default() };
        assert!(!limits.is_ignored(&ignore) && cookies.is_ignored(&ignore));
    }
}
