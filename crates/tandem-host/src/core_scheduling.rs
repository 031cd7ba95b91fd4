//! Core scheduling: which VMs have tasks with a cookie, and how they get one. The kernel's
//! `Documentation/admin-guide/hw-vuln/core-scheduling.rst`.
//!
//! **Problem.** Tasks with different cookies never run on one core at the same time. That protects a VM from
//! others that would read its secrets from what the threads of a core share. But some kernels hang when a
//! sched_ext scheduler and cookies meet, and Cloud Hypervisor gives every VM a cookie by default since its
//! release 52.
//!
//! **Approach.** `prctl(2)` asks the kernel about the threads of VMs, one at a time; it answers at once,
//! whatever the thread does. Where it does not say, because the caller lacks the right or there is no such
//! kernel below the root, the command line of a Cloud Hypervisor counts. One call gives all threads of a
//! process a new cookie; threads that they start later inherit it.
//!
//! **Limits.** Tasks outside of VMs, such as those that `coresched(1)` starts, are not checked, nor threads
//! of a VM beyond the first [`THREADS_MAX`]. A VM's cookie is assumed to be its own: nothing checks whether
//! another VM has the same. A process may drop its cookie, and lacks one until the next check.

use crate::guarded::has_cookie;
use crate::scheduler::{KernelTypes, RunningKernel, is_endangered_by_cookies};
use crate::vms::{Finder, ProcUnreadable, Thread, ThreadKind, Vm};
use std::path::Path;
use tandem_machine::Machine;

/// Threads of a VM that are checked: as many as the vCPUs of today's VMs, and more.
const THREADS_MAX: usize = 1024;

/// What isolates VMs on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// Nothing has to: cores have one thread each.
    OneThread,
    /// Core scheduling cookies.
    Cookies,
    /// Homes alone, for this reason: a clause.
    Homes(&'static str),
}

impl Means {
    /// The mechanism that this kernel offers.
    pub fn of(kernel: &RunningKernel, machine: &Machine) -> Self {
        let has_cookies =
            || KernelTypes::read(kernel).is_ok_and(|types| types.has_member("task_struct", "core_cookie"));
        match machine.has_smt() {
            false => Self::OneThread,
            true if !has_cookies() => Self::Homes("this kernel has no core scheduling (CONFIG_SCHED_CORE)"),
            true if is_endangered_by_cookies(kernel, machine) => {
                Self::Homes("this kernel hangs with core scheduling under a sched_ext scheduler")
            }
            true => Self::Cookies,
        }
    }

    /// What this mechanism does not guarantee, and why: a sentence without its full stop.
    pub fn shortcoming(self) -> Option<String> {
        let Self::Homes(why) = self else { return None };
        Some(format!(
            "{why}, so only placement isolates VMs with `cores = \"apart\"`: other VMs have their homes on other nodes, \
             as long as there are enough; others may share their cores when the machine is busy"
        ))
    }
}

/// What is known of a thread's cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cookie {
    /// It has one.
    Some,
    /// It has none.
    None,
    /// The kernel does not say.
    Unknown,
}

/// A VM that has a cookie, or seems to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CookieVm {
    /// Its process.
    pub pid: u32,
    /// Its name, which may contain any character.
    pub name: String,
    /// Whether the kernel has said so; otherwise the command line makes it likely.
    pub is_certain: bool,
}

impl CookieVm {
    /// The VM, if a thread of it has a cookie or seems to.
    pub fn of(root: &Path, vm: &Vm) -> Option<Self> {
        let is_this_machine = root == Path::new("/");
        Self::told(vm, |thread| if is_this_machine { ask(thread) } else { Cookie::Unknown })
    }

    fn told(vm: &Vm, ask: impl Fn(u32) -> Cookie) -> Option<Self> {
        let mut is_known = false;
        let mut is_certain = false;
        for thread in vm.read_threads().iter().take(THREADS_MAX) {
            match ask(thread.tid) {
                Cookie::Some => is_certain = true,
                Cookie::None => is_known = true,
                Cookie::Unknown => {}
            }
            if is_certain {
                break;
            }
        }
        let has_one = is_certain || !is_known && vm.asks_for_cookies();
        has_one.then(|| Self { pid: vm.identity.pid, name: vm.name.clone(), is_certain })
    }
}

/// The VMs of a machine that have cookies, or seem to, in ascending order of their processes.
///
/// # Errors
/// If processes cannot be listed.
pub fn vms_with_cookies(root: &Path) -> Result<Vec<CookieVm>, ProcUnreadable> {
    let mut finder = Finder::new(root);
    let mut found = finder.scan()?.appeared;
    found.sort_unstable();
    let vms = found.iter().filter_map(|identity| finder.vm(identity.pid));
    Ok(vms.filter_map(|vm| CookieVm::of(root, vm)).collect())
}

/// Whether a VM's threads lack a cookie: a vCPU has none, or another thread has none while the process as a
/// whole has one, as with threads that it had started just before it got one. Monitors that set cookies
/// themselves set them only for their vCPUs.
pub fn lacks_cookie(pid: u32, threads: &[Thread], ask: impl Fn(u32) -> Cookie) -> bool {
    let own = threads.iter().filter(|thread| thread.is_of(pid)).take(THREADS_MAX);
    let has: Vec<(&Thread, bool)> = own.map(|thread| (thread, ask(thread.tid) == Cookie::Some)).collect();
    let has_process = has.iter().any(|(thread, has)| thread.tid == pid && *has);
    has.iter().any(|(thread, has)| !has && (has_process || thread.kind == ThreadKind::Vcpu))
}

/// Asks the kernel.
pub fn ask(thread: u32) -> Cookie {
    match has_cookie(thread) {
        Some(true) => Cookie::Some,
        Some(false) => Cookie::None,
        None => Cookie::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vms::testing::{Process, Tree};

    fn cloud_hypervisor(pid: u32, cpus: &[&str]) -> Process {
        let arguments = [&["--api-socket", "/run/web.sock"][..], cpus].concat();
        Process::new(pid, "/usr/bin/cloud-hypervisor", &arguments).threads(2, |vcpu| format!("vcpu{vcpu}"))
    }

    fn vm(process: &Process) -> (tempfile::TempDir, Vm) {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::new(folder.path());
        tree.process(process);
        let vm = crate::vms::examine(folder.path(), process.pid).expect("it is a VM");
        (folder, vm)
    }

    #[test]
    fn the_kernels_word_counts() {
        for process in [Process::libvirt(700, "web", 2), cloud_hypervisor(700, &[])] {
            let (_folder, vm) = vm(&process);
            let last = *process.threads.iter().map(|thread| &thread.tid).max().unwrap();
            let of = |cookie| CookieVm::told(&vm, move |tid| if tid == last { cookie } else { Cookie::None });
            assert_eq!(of(Cookie::None), None, "{}", vm.monitor);
            let found = of(Cookie::Some).unwrap();
            assert_eq!((found.pid, found.is_certain), (700, true));
        }
    }

    #[test]
    fn without_it_the_command_line_of_cloud_hypervisor_does() {
        let cases: [(&[&str], bool); 6] = [
            (&[], true),
            (&["--cpus", "boot=2"], true),
            (&["--cpus", "boot=2,core_scheduling=vcpu"], true),
            (&["--cpus", "boot=2,core_scheduling=off"], false),
            (&["--cpus=core_scheduling=off,boot=2"], false),
            (&["--cpus", "boot=2,core_scheduling=Off"], false),
        ];
        for (arguments, seems) in cases {
            let (folder, vm) = vm(&cloud_hypervisor(700, arguments));
            let found = CookieVm::of(folder.path(), &vm);
            assert_eq!(found.is_some(), seems, "{arguments:?}");
            assert!(found.is_none_or(|found| !found.is_certain));
        }
        let (folder, vm) = vm(&Process::libvirt(700, "web", 2));
        assert_eq!(CookieVm::of(folder.path(), &vm), None, "QEMU has no such option");
    }

    #[test]
    fn vms_of_a_machine_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::new(folder.path());
        tree.process(&Process::libvirt(500, "db", 2));
        tree.process(&cloud_hypervisor(900, &[]));
        tree.process(&cloud_hypervisor(700, &[]));
        tree.process(&Process::new(42, "/bin/sh", &[]));
        let found = vms_with_cookies(folder.path()).unwrap();
        assert_eq!(found.iter().map(|vm| vm.pid).collect::<Vec<_>>(), [700, 900]);
        assert_eq!(found[0].name, "web");
    }

    #[test]
    fn the_kernel_answers_about_this_thread() {
        let tid = std::process::id();
        assert_ne!(ask(tid), Cookie::Some, "tests have no cookie");
        assert_eq!(ask(0), Cookie::Unknown);
    }
}
