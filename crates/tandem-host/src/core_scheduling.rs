//! Core scheduling: which VMs have tasks with a cookie. The kernel's `Documentation/admin-guide/hw-vuln/core-scheduling.rst`.
//!
//! **Problem.** Tasks with different cookies never run on one core at the same time. Some kernels hang when a sched_ext scheduler
//! and cookies come together, and Cloud Hypervisor gives every VM one by default since its release 52.
//!
//! **Approach.** The kernel is asked about threads of VMs, one at a time, with `prctl(2)`; it answers at once, whatever the thread
//! does. Where it does not tell, because the caller may not know or there is no such kernel below the root, the command line of a
//! Cloud Hypervisor counts.
//!
//! **Limits.** Tasks outside of VMs, as `coresched(1)` starts them, are not looked at. Of a VM, the first [`THREADS_MAX`] threads
//! are.

use crate::vms::{Finder, ProcUnreadable, Vm};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CoreSchedulingScope, core_scheduling_cookie};
use std::path::Path;

/// Threads of a VM that are looked at: as many vCPUs as VMs of today have, and more.
const THREADS_MAX: usize = 1024;

/// What is known of a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cookie {
    Some,
    None,
    /// The kernel does not tell.
    Unknown,
}

/// A VM that has a cookie, or seems to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CookieVm {
    /// Its process.
    pub pid: u32,
    /// Its name, which may hold any character.
    pub name: String,
    /// The kernel has said so; otherwise the command line makes it likely.
    pub is_certain: bool,
}

impl CookieVm {
    /// The VM, if a thread of it has a cookie or it seems so.
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

/// Asks the kernel.
fn ask(thread: u32) -> Cookie {
    let Some(pid) = i32::try_from(thread).ok().and_then(Pid::from_raw) else { return Cookie::Unknown };
    match core_scheduling_cookie(pid, CoreSchedulingScope::Thread) {
        Ok(0) => Cookie::None,
        Ok(_) => Cookie::Some,
        // A kernel without core scheduling, or cores of one thread each: there are no cookies. A thread that is gone has none.
        Err(Errno::INVAL | Errno::NODEV | Errno::SRCH) => Cookie::None,
        Err(_) => Cookie::Unknown,
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
