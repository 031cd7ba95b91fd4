//! Isolates VMs from others on their cores, where the settings ask for that.
//!
//! **Problem.** The threads of a core share its caches and units, from which a guest can learn what another
//! one computes.
//!
//! **Approach.** Such a VM gets a core scheduling cookie, once, unless it has one already. If some of its
//! threads lack the cookie, as those that it has just started may, all threads get a new one. Where the
//! kernel has no core scheduling, or hangs with it, the planner keeps the homes of other VMs off the VM's
//! nodes. That protects less: the log says so.
//!
//! **Limits.** Those of [core scheduling](crate::core_scheduling). Cookies stay when the agent ends, and when
//! the settings change.

use super::actuator::Actuator;
use super::log_quota::Line;
use super::tracked_vm::{Apart, TrackedVm};
use crate::core_scheduling::{Means, lacks_cookie};
use crate::log_entry::{Level, LogEntry};
use crate::scheduler::RunningKernel;
use rustix::io::Errno;
use tandem_machine::Machine;
use tandem_settings::VmRule;

/// Isolates the VMs whose rules ask for it.
pub(super) struct Keeper {
    means: Means,
    /// A warning about the mechanism that is not logged yet.
    untold: Option<String>,
}

impl Keeper {
    /// `None` if no rule asks for isolation.
    pub fn new(kernel: &RunningKernel, machine: &Machine, rules: &[VmRule]) -> Option<Self> {
        rules.iter().any(VmRule::keeps_apart).then(|| {
            let means = Means::of(kernel, machine);
            Self { means, untold: means.shortcoming() }
        })
    }

    /// Checks the VMs that are to be isolated. Returns whether the mechanism of one has changed, and what to
    /// log.
    pub fn check<'a>(
        &mut self,
        tracked_vms: impl Iterator<Item = &'a mut TrackedVm>,
        actuator: &impl Actuator,
    ) -> (bool, Vec<Line>) {
        let entry = |text| LogEntry::new(Level::Warning, "core-scheduling", text);
        let untold = self.untold.take().map(|text| Line { user: 0, entry: entry(text) });
        let mut told: Vec<Line> = untold.into_iter().collect();
        let mut is_changed = false;
        for tracked in tracked_vms.filter(|tracked| tracked.is_to_be_apart()) {
            let before = tracked.apart;
            match self.means {
                Means::OneThread => tracked.apart = Some(Apart::OneThread),
                Means::Homes(_) => tracked.apart = Some(Apart::Home),
                Means::Cookies => told.extend(give_cookie(tracked, actuator)),
            }
            is_changed |= tracked.apart != before;
        }
        (is_changed, told)
    }
}

/// Gives a VM a cookie if it lacks one.
fn give_cookie(tracked: &mut TrackedVm, actuator: &impl Actuator) -> Option<Line> {
    let pid = tracked.vm.identity.pid;
    let threads = tracked.vm.read_threads();
    // It has ended; discovery notices that.
    if threads.is_empty() {
        return None;
    }
    let lacks = lacks_cookie(pid, &threads, |tid| actuator.cookie(tid));
    let given = if lacks { actuator.set_apart(pid) } else { Ok(()) };
    let before = tracked.apart;
    tracked.apart = match given {
        Ok(()) => Some(Apart::Cookie),
        Err(Errno::SRCH) => before,
        Err(_) => Some(Apart::Home),
    };
    let what = match given {
        Ok(()) if lacks && !actuator.has_effect() => "would get a core scheduling cookie",
        Ok(()) if lacks && before == Some(Apart::Cookie) => {
            let text = ": some of its threads had no core scheduling cookie; all have a new one now";
            return Some(Line::about(&tracked.vm, Level::Info, "core-scheduling", text));
        }
        Ok(()) if lacks => "shares no core with others from now on: it got a core scheduling cookie",
        Ok(()) => "shares no core with others: it has a core scheduling cookie",
        Err(Errno::SRCH) => return None,
        Err(error) => {
            let text = format!(
                " cannot get a core scheduling cookie ({error}); only placement isolates it: others may share its cores \
                 when the machine is busy"
            );
            let line = Line::about(&tracked.vm, Level::Warning, "core-scheduling", &text);
            return (before != tracked.apart).then_some(line);
        }
    };
    (before != tracked.apart)
        .then(|| Line::about(&tracked.vm, Level::Info, "core-scheduling", &format!(": {what}")))
}

#[cfg(test)]
mod tests {
    use super::super::{Agent, DryRun};
    use super::*;
    use crate::core_scheduling::Cookie;
    use crate::scheduler::PreferenceError;
    use crate::scheduler::kernel_types::testing::btf;
    use crate::tasks;
    use crate::vms::homes_file::Cores;
    use crate::vms::testing::{Cgroups, Process, Tree};
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};
    use std::rc::Rc;
    use std::time::Duration;
    use tandem_settings::{Held, Settings};

    /// Threads with cookies.
    type Cookies = Rc<RefCell<BTreeMap<u32, u32>>>;

    /// A kernel that gives cookies, numbered in order, or refuses.
    struct CookieActuator {
        root: PathBuf,
        cookies: Cookies,
        refusal: Option<Errno>,
    }

    impl Actuator for CookieActuator {
        fn held(&self, _: u32) -> Result<Option<Held>, PreferenceError> {
            Ok(None)
        }

        fn give(&self, _: u32, _: &[u32]) -> Result<(), PreferenceError> {
            Ok(())
        }

        fn cookie(&self, tid: u32) -> Cookie {
            if self.cookies.borrow().contains_key(&tid) { Cookie::Some } else { Cookie::None }
        }

        fn set_apart(&self, pid: u32) -> Result<(), Errno> {
            let cookie = self.cookies.borrow().values().max().map_or(1, |last| last + 1);
            let threads = tasks::threads(&self.root, pid).into_iter().map(|tid| (tid, cookie));
            self.refusal.map_or(Ok(()), Err).map(|()| self.cookies.borrow_mut().extend(threads))
        }
    }

    const RULE: &str = "[[vm]]\nname = \"secret\"\ncores = \"apart\"\n";

    /// A host with two threads on each core, a VM `secret` and another one.
    struct Scene {
        folder: tempfile::TempDir,
        tree: Tree,
        secret: Process,
        other: Process,
        cookies: Cookies,
    }

    impl Scene {
        fn new(nodes: u32, threads_of_core: u32) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let tree = Tree::new(folder.path());
            tree.machine(nodes, 4);
            tree.cgroups(Cgroups::Unified);
            tree.write("proc/sys/kernel/osrelease", "7.3.4\n");
            for cpu in (0..4 * nodes).filter(|_| threads_of_core == 2) {
                let core = format!("{}-{}", cpu / 2 * 2, cpu / 2 * 2 + 1);
                tree.write(&format!("sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list"), &core);
            }
            let secret = Process::libvirt(100, "secret", 2);
            let other = Process::libvirt(200, "other", 2);
            tree.process(&secret);
            tree.process(&other);
            let scene = Self { folder, tree, secret, other, cookies: Cookies::default() };
            scene.types(&["pid", "core_cookie"]);
            scene
        }

        fn types(&self, members_of_task: &[&str]) {
            let file = self.folder.path().join("sys/kernel/btf/vmlinux");
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, btf(&[("task_struct", members_of_task)], &[])).unwrap();
        }

        fn agent(&self, refusal: Option<Errno>) -> Agent<CookieActuator> {
            let (root, cookies) = (self.folder.path().to_owned(), self.cookies.clone());
            self.agent_with(CookieActuator { root, cookies, refusal })
        }

        fn agent_with<H: Actuator>(&self, actuator: H) -> Agent<H> {
            let root: &Path = self.tree.root();
            let machine = crate::topology::read_sysfs(root).unwrap();
            Agent::new(root, machine, &toml::from_str::<Settings>(RULE).unwrap(), actuator)
        }

        /// The cookies of a VM's threads, in ascending order of their numbers.
        fn cookies(&self, process: &Process) -> Vec<Option<u32>> {
            let cookies = self.cookies.borrow();
            process.threads.iter().map(|thread| cookies.get(&thread.tid).copied()).collect()
        }
    }

    /// An agent's log lines about cookies in half a minute.
    fn told<H: Actuator>(agent: &mut Agent<H>) -> Vec<String> {
        let told = (1..=30).flat_map(|second| agent.step(Duration::from_secs(second)).unwrap());
        told.map(|entry| entry.to_string()).filter(|line| line.contains("core")).collect()
    }

    /// What the file and the socket report.
    fn cores<H: Actuator>(agent: &mut Agent<H>) -> [Option<Cores>; 2] {
        let file = agent.homes_file().expect("something has changed");
        let entry = file.vms.iter().find(|vm| vm.name == "secret").unwrap();
        assert!(file.vms.iter().all(|vm| vm.name == "secret" || vm.cores.is_none()));
        let reports = agent.reports().vms();
        [entry.cores, reports.iter().find(|vm| vm.name == "secret").unwrap().cores]
    }

    #[test]
    fn a_vm_gets_one_cookie_and_others_none() {
        let scene = Scene::new(2, 2);
        let mut agent = scene.agent(None);
        let expected = "VM secret (process 100): shares no core with others from now on: it got a core scheduling cookie";
        assert_eq!(told(&mut agent), [expected]);
        assert_eq!(scene.cookies(&scene.secret), [Some(1); 4]);
        assert_eq!(scene.cookies(&scene.other), [None; 4]);
        assert_eq!(cores(&mut agent), [Some(Cores::CoreScheduling); 2]);
        // Another agent that replaces this one keeps the cookie.
        let told = told(&mut scene.agent(None));
        assert_eq!(
            told,
            ["VM secret (process 100): shares no core with others: it has a core scheduling cookie"]
        );
        assert_eq!(scene.cookies(&scene.secret), [Some(1); 4]);
    }

    #[test]
    fn threads_without_are_noticed() {
        let mut scene = Scene::new(2, 2);
        let mut agent = scene.agent(None);
        told(&mut agent);
        for name in ["vhost-100", "CPU 2/KVM"] {
            let before = scene.cookies(&scene.secret)[0];
            scene.secret = scene.secret.clone().thread(name);
            scene.tree.process(&scene.secret);
            let told = logged_later(&mut agent);
            assert!(
                told.ends_with("some of its threads had no core scheduling cookie; all have a new one now"),
                "{told}"
            );
            let now = scene.cookies(&scene.secret);
            assert!(now.iter().all(|cookie| *cookie == now[0]) && now[0] > before, "{now:?}");
        }
    }

    /// The one log line about cookies in the next scan.
    fn logged_later(agent: &mut Agent<CookieActuator>) -> String {
        let mut told = agent.scan(Duration::from_secs(60)).unwrap();
        told.retain(|entry| entry.text.contains("cookie"));
        assert_eq!(told.len(), 1, "{told:?}");
        told.remove(0).to_string()
    }

    #[test]
    fn cookies_that_a_monitor_has_taken_for_its_vcpus_stay() {
        let scene = Scene::new(2, 2);
        let vcpus = scene.secret.threads.iter().filter(|thread| thread.name.starts_with("CPU "));
        scene.cookies.borrow_mut().extend(vcpus.zip(7..).map(|(vcpu, cookie)| (vcpu.tid, cookie)));
        let before = scene.cookies(&scene.secret);
        told(&mut scene.agent(None));
        assert_eq!(scene.cookies(&scene.secret), before);
    }

    #[test]
    fn without_core_scheduling_homes_isolate_it_and_the_log_reports_that() {
        for (release, members) in [("7.3.4", &["pid"][..]), ("7.1.3", &["pid", "core_cookie"])] {
            let scene = Scene::new(2, 2);
            scene.types(members);
            scene.tree.write("proc/sys/kernel/osrelease", release);
            let mut agent = scene.agent(None);
            let told = told(&mut agent);
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(
                told[0].starts_with("warning: this kernel ")
                    && told[0].contains("others may share their cores"),
                "{told:?}"
            );
            assert_eq!(scene.cookies(&scene.secret), [None; 4], "{release}");
            assert_eq!(cores(&mut agent), [Some(Cores::Placement); 2]);
            let homes: Vec<_> = agent.reports().vms().into_iter().map(|vm| vm.home).collect();
            assert_ne!(homes[0], homes[1]);
        }
        let scene = Scene::new(1, 2);
        scene.types(&["pid"]);
        let mut agent = scene.agent(None);
        told(&mut agent);
        assert_eq!(cores(&mut agent), [Some(Cores::Shared); 2], "there is no other node");
    }

    #[test]
    fn cores_of_one_thread_need_no_cookie() {
        let scene = Scene::new(2, 1);
        let mut agent = scene.agent(None);
        assert_eq!(told(&mut agent), [""; 0]);
        assert_eq!(scene.cookies(&scene.secret), [None; 4]);
        assert_eq!(cores(&mut agent), [Some(Cores::OneThread); 2]);
    }

    #[test]
    fn a_refusal_is_logged_once() {
        let scene = Scene::new(2, 2);
        let mut agent = scene.agent(Some(Errno::PERM));
        let told = told(&mut agent);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].starts_with("warning: VM secret (process 100) cannot get a core scheduling cookie"),
            "{told:?}"
        );
        assert_eq!(cores(&mut agent), [Some(Cores::Placement); 2]);
    }

    #[test]
    fn an_observing_agent_only_reports() {
        let scene = Scene::new(2, 2);
        let mut agent = scene.agent_with(DryRun);
        assert_eq!(told(&mut agent), ["VM secret (process 100): would get a core scheduling cookie"]);
        assert_eq!(cores(&mut agent), [Some(Cores::CoreScheduling); 2]);
    }

    #[test]
    fn without_a_rule_nothing_is_checked() {
        let scene = Scene::new(2, 2);
        let machine = crate::topology::read_sysfs(scene.tree.root()).unwrap();
        assert!(Keeper::new(&RunningKernel::new(scene.tree.root()), &machine, &[]).is_none());
    }
}
