mod isolated;
mod other_programs;
mod partial;
mod virtual_nodes;

use super::*;
use crate::vms::testing::{Cgroups, Process, Tree};
use std::cell::RefCell;
use std::fs;
use std::rc::Rc;
use tandem_settings::{Held, Place, Preference};

/// The preference of each thread: nodes, and whether the agent has set it.
type Given = Rc<RefCell<BTreeMap<u32, (Vec<u32>, bool)>>>;

struct RecordingActuator(Given);

impl Actuator for RecordingActuator {
    fn held(&self, tid: u32) -> Result<Option<Held>, PreferenceError> {
        Ok(self.0.borrow().get(&tid).map(|(nodes, by_agent)| Held {
            preference: Preference {
                place: Some(Place::Nodes { nodes: nodes.clone(), cpus: Vec::new() }),
                latency_critical: false,
            },
            by_agent: *by_agent,
            home_ns: 0,
            away_ns: 0,
        }))
    }

    fn give(&self, tid: u32, nodes: &[u32]) -> Result<(), PreferenceError> {
        match nodes {
            [] => self.0.borrow_mut().remove(&tid),
            nodes => self.0.borrow_mut().insert(tid, (nodes.to_vec(), true)),
        };
        Ok(())
    }
}

/// A host of two nodes with four CPUs each, and an agent on it.
struct Scene {
    tree: Tree,
    _folder: tempfile::TempDir,
    given: Given,
    agent: Agent<RecordingActuator>,
    now: Duration,
}

impl Scene {
    fn new(settings: &str) -> Self {
        Self::with_given(settings, Given::default())
    }

    fn with_given(settings: &str, given: Given) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::new(folder.path());
        tree.machine(2, 4);
        tree.cgroups(Cgroups::Unified);
        for node in 0..2 {
            let file = format!("sys/devices/system/node/node{node}/meminfo");
            tree.write(
                &file,
                &format!("Node {node} MemTotal: 33554432 kB\nNode {node} MemFree: 16777216 kB\n"),
            );
        }
        let settings: Settings = toml::from_str(settings).unwrap();
        settings.check().unwrap();
        let agent = agent(tree.root(), &settings, &given);
        Self { tree, _folder: folder, given, agent, now: Duration::ZERO }
    }

    /// A VM of libvirt with this memory on each node, MiB.
    fn vm(&self, pid: u32, name: &str, vcpus: u32, memory_mib: [u64; 2]) -> Process {
        let mut process = Process::libvirt(pid, name, vcpus);
        process.resident_kib = (memory_mib[0] + memory_mib[1]) << 10;
        self.tree.process(&process);
        self.memory(&process, memory_mib);
        process
    }

    /// Moves the memory of a VM.
    fn memory(&self, process: &Process, memory_mib: [u64; 2]) {
        let [first, second] = memory_mib.map(|mib| mib << 20);
        let scope = process.cgroup.trim_end_matches("/libvirt/emulator");
        self.tree.cgroup(scope, "memory.numa_stat", &format!("anon N0={first} N1={second}\n"));
    }

    /// Lets time pass, one step per second, and returns the log lines.
    fn pass(&mut self, seconds: u64) -> Vec<String> {
        let mut told = Vec::new();
        for _ in 0..seconds {
            self.now += Duration::from_secs(1);
            told.extend(self.agent.step(self.now).unwrap().iter().map(ToString::to_string));
        }
        told
    }

    /// The nodes that the threads of a VM prefer, which are the same for all.
    fn home(&self, process: &Process) -> Vec<u32> {
        let given = self.given.borrow();
        let mut homes: Vec<_> = process
            .threads
            .iter()
            .map(|thread| given.get(&thread.tid).map(|(nodes, _)| nodes.clone()).unwrap_or_default())
            .collect();
        homes.dedup();
        assert_eq!(homes.len(), 1, "threads have different homes: {given:?}");
        homes.remove(0)
    }
}

fn agent(root: &Path, settings: &Settings, given: &Given) -> Agent<RecordingActuator> {
    let machine = crate::topology::read_sysfs(root).unwrap();
    Agent::new(root, machine, settings, RecordingActuator(given.clone()))
}

#[test]
fn a_new_vm_gets_a_home_within_two_seconds_and_all_its_threads_with_it() {
    let mut scene = Scene::new("");
    scene.pass(3);
    let vm = scene.vm(100, "web", 2, [0, 0]);
    let told = scene.pass(2).join("\n");
    assert_eq!(scene.home(&vm).len(), 1);
    assert!(told.contains("VM web (process 100) was found: 2 vCPUs"), "{told}");
    assert!(told.contains("VM web (process 100): node "), "{told}");
}

#[test]
fn a_vm_with_a_cookie_is_warned_of_once_on_a_kernel_that_hangs_with_it() {
    let vm = |pid, cpus: &[&str]| {
        let arguments = [&["--api-socket", "/run/web.sock"][..], cpus].concat();
        Process::new(pid, "/usr/bin/cloud-hypervisor", &arguments).thread("vcpu0")
    };
    for (release, warnings) in [("7.1.3", 1), ("7.3.4", 0)] {
        let mut scene = Scene::new("");
        scene.tree.write("proc/sys/kernel/osrelease", release);
        for cpu in [0, 1] {
            scene.tree.write(&format!("sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list"), "0-1");
        }
        scene.agent = agent(scene.tree.root(), &Settings::default(), &scene.given);
        scene.pass(1);
        scene.tree.process(&vm(100, &["--cpus", "boot=1,core_scheduling=off"]));
        scene.tree.process(&vm(200, &[]));
        let told = scene.pass(30);
        let told: Vec<_> = told.iter().filter(|line| line.contains("core scheduling")).collect();
        assert_eq!(told.len(), warnings, "{release}: {told:?}");
        assert!(told.iter().all(|line| line.starts_with("warning: VM web (process 200) uses")), "{told:?}");
    }
}

#[test]
fn vms_are_spread_over_the_nodes() {
    let mut scene = Scene::new("");
    let vms = [1, 2, 3, 4].map(|number| scene.vm(100 * number, &format!("vm{number}"), 2, [0, 0]));
    scene.pass(2);
    let on_first = vms.iter().filter(|vm| scene.home(vm) == [0]).count();
    assert_eq!(on_first, 2);
}

#[test]
fn a_home_is_where_the_memory_is() {
    let mut scene = Scene::new("");
    let there = scene.vm(100, "a", 2, [10, 4000]);
    let here = scene.vm(200, "b", 2, [4000, 10]);
    scene.pass(2);
    assert_eq!((scene.home(&there), scene.home(&here)), (vec![1], vec![0]));
    let file = scene.agent.homes_file().unwrap();
    let homes: Vec<_> = file.vms.iter().map(|vm| (vm.name.as_str(), vm.home.clone())).collect();
    assert_eq!(homes, [("a", vec![1]), ("b", vec![0])]);
    assert!(file.vms[0].why.contains("3.9 of 3.9 GiB of its memory is there"), "{}", file.vms[0].why);
    assert!(scene.agent.homes_file().is_none(), "unchanged since");
}

#[test]
fn a_home_follows_moved_memory_after_several_scans() {
    let mut scene = Scene::new("[agent]\nlook_interval = \"10 s\"\nlooks_in_a_row = 3\nrest = \"0 s\"\n");
    let vm = scene.vm(100, "web", 2, [4000, 0]);
    scene.pass(15);
    assert_eq!(scene.home(&vm), [0]);
    scene.memory(&vm, [0, 4000]);
    scene.pass(20);
    assert_eq!(scene.home(&vm), [0], "twice seen is not often enough");
    // It works: a VM that sleeps has nothing to gain.
    for round in 0..60u64 {
        for thread in &vm.threads {
            let file = format!("proc/100/task/{}/schedstat", thread.tid);
            scene.tree.write(&file, &format!("{} 0 1\n", round * 1_000_000_000));
        }
        scene.pass(1);
    }
    assert_eq!(scene.home(&vm), [1]);
}

#[test]
fn a_vm_that_ends_is_forgotten() {
    let mut scene = Scene::new("");
    scene.vm(100, "web", 2, [0, 0]);
    scene.pass(2);
    scene.tree.remove(100);
    let told = scene.pass(3);
    assert_eq!(told, ["VM web (process 100) has ended"]);
    assert_eq!(scene.agent.tracked_vms().count(), 0);
}

#[test]
fn an_agent_takes_over_the_homes_of_an_earlier_one() {
    let given = Given::default();
    let mut scene = Scene::with_given("", given.clone());
    let vm = scene.vm(100, "web", 2, [0, 0]);
    // The other node than the one that the agent would choose.
    scene.pass(2);
    let other = vec![1 - scene.home(&vm)[0]];
    for thread in &vm.threads {
        given.borrow_mut().insert(thread.tid, (other.clone(), true));
    }
    scene.agent = agent(scene.tree.root(), &Settings::default(), &given);
    let told = scene.pass(12);
    assert_eq!(scene.home(&vm), other);
    assert!(told.iter().all(|line| line.contains("was found")), "{told:?}");
}

#[test]
fn a_foreign_preference_is_left_alone_until_it_is_cleared() {
    let given = Given::default();
    let mut scene = Scene::with_given("", given.clone());
    let vm = scene.vm(100, "web", 2, [0, 4000]);
    for thread in &vm.threads {
        given.borrow_mut().insert(thread.tid, (vec![0], false));
    }
    let told = scene.pass(30).join("\n");
    assert!(given.borrow().values().all(|held| *held == (vec![0], false)));
    assert!(told.contains("left alone; another process made it prefer node 0"), "{told}");
    given.borrow_mut().clear();
    scene.pass(11);
    assert_eq!(scene.home(&vm), [1]);
}

#[test]
fn a_rule_of_the_operator_comes_before_a_preference_of_the_user() {
    let given = Given::default();
    let mut scene = Scene::with_given("[[vm]]\nname = \"web\"\nhome = [1]\n", given.clone());
    let vm = scene.vm(100, "web", 2, [4000, 0]);
    let prefer = |node| {
        for thread in &vm.threads {
            given.borrow_mut().insert(thread.tid, (vec![node], false));
        }
    };
    prefer(0);
    let told = scene.pass(12).join("\n");
    assert_eq!(scene.home(&vm), [1], "{told}");
    prefer(0);
    scene.pass(12);
    assert_eq!(scene.home(&vm), [1]);
    assert!(!told.contains("left alone"), "{told}");
}

#[test]
fn a_rule_with_missing_nodes_is_logged() {
    let mut scene = Scene::new("[[vm]]\nname = \"web\"\nhome = [1, 99]\n");
    let vm = scene.vm(100, "web", 2, [4000, 0]);
    let told = scene.pass(2).join("\n");
    assert!(told.contains("the settings give it node 99, which this machine does not have"), "{told}");
    assert_eq!(scene.home(&vm), [1]);
}

#[test]
fn a_new_thread_without_a_home_gets_its_vms() {
    let mut scene = Scene::new("");
    let mut vm = scene.vm(100, "web", 2, [0, 4000]);
    scene.pass(2);
    vm = vm.thread("CPU 2/KVM");
    scene.tree.process(&vm);
    scene.pass(75);
    assert_eq!(scene.home(&vm), [1]);
}

#[test]
fn a_cpuset_that_shrinks_takes_the_home_with_it_in_the_next_scan() {
    let mut scene = Scene::new("");
    let mut vm = scene.vm(100, "web", 2, [4000, 0]);
    scene.pass(2);
    assert_eq!(scene.home(&vm), [0]);
    for thread in &mut vm.threads {
        thread.cpus = "4-7".into();
    }
    scene.tree.process(&vm);
    scene.pass(10);
    assert_eq!(scene.home(&vm), [1]);
}

#[test]
fn vcpus_that_are_pinned_one_by_one_are_left_alone() {
    let mut scene = Scene::new("");
    let mut vm = scene.vm(100, "pinned", 2, [4000, 0]);
    for thread in &mut vm.threads {
        thread.cpus = (thread.tid % 8).to_string();
    }
    scene.tree.process(&vm);
    scene.pass(12);
    assert_eq!(scene.home(&vm), [0; 0]);
    let file = scene.agent.homes_file().unwrap();
    assert_eq!(file.vms[0].why, "left alone; its vCPUs are pinned one by one, to CPUs 6-7");
}

#[test]
fn exceptions_hold() {
    let mut scene = Scene::new(
        "[[vm]]\nname = \"db*\"\nhome = [1]\n[[vm]]\nname = \"router\"\nexempt = true\n[[vm]]\nname = \"rt\"\nisolated = true\n",
    );
    let db = scene.vm(100, "db1", 2, [4000, 0]);
    let router = scene.vm(200, "router", 2, [4000, 0]);
    let others = [300, 400, 500].map(|pid| scene.vm(pid, &format!("vm{pid}"), 1, [0, 0]));
    let isolated = scene.vm(600, "rt", 2, [0, 0]);
    scene.pass(2);
    assert_eq!((scene.home(&db), scene.home(&router)), (vec![1], vec![]));
    assert_eq!(scene.home(&isolated), [0], "the other node is somebody's home by configuration");
    // They came with the isolated one: the VM that is placed last finds the node without a home.
    let told = scene.pass(130);
    assert!(others.iter().all(|vm| scene.home(vm) == [1]), "{told:?}");
}

/// Sets the run and wait times of a thread.
fn run(tree: &Tree, pid: u32, tid: u32, run_ns: u64, wait_ns: u64) {
    tree.write(&format!("proc/{pid}/task/{tid}/schedstat"), &format!("{run_ns} {wait_ns} 1\n"));
}

#[test]
fn a_report_has_the_agents_knowledge_and_current_times() {
    let mut scene = Scene::new("");
    let reports = scene.agent.reports();
    assert_eq!(reports.vms(), []);
    let mut vm = scene.vm(100, "web", 2, [0, 4000]);
    scene.pass(2);
    let [report] = &reports.vms()[..] else { panic!("there is one VM") };
    assert_eq!((report.name.as_str(), report.vcpus, report.home.as_slice()), ("web", 2, &[1][..]));
    assert_eq!(report.memory.by_node, Some(BTreeMap::from([(1, 4000 << 20)])));
    assert!(report.why.contains(" of its memory is there; "), "{}", report.why);
    assert_eq!(reports.decisions(), HomeDecisions { given: 1, moved: 0, withdrawn: 0 });

    // Without a scan in between.
    let vcpus: Vec<u32> =
        vm.threads.iter().filter(|thread| thread.name.starts_with("CPU")).map(|t| t.tid).collect();
    run(&scene.tree, 100, vcpus[0], 1_000, 10);
    run(&scene.tree, 100, vcpus[1], 2_000, 20);
    let times = |reports: &Reports| reports.vms().first().map(|vm| (vm.vcpu_ns, vm.steal_ns));
    assert_eq!(times(&reports), Some((3_000, Some(30))));
    vm.threads[0].run_ns = 50_000_000;
    scene.tree.process(&vm);
    assert_eq!(reports.vms()[0].cpu_ns, 50_000_000);

    scene.tree.remove(100);
    assert_eq!(reports.vms(), [], "it is not told of one that has ended, before the agent knows");
}

#[test]
fn times_of_unplugged_vcpus_still_count() {
    let mut scene = Scene::new("");
    let reports = scene.agent.reports();
    let mut vm = scene.vm(100, "web", 2, [0, 0]);
    scene.pass(2);
    let times = |reports: &Reports| reports.vms().first().map(|vm| (vm.vcpus, vm.vcpu_ns, vm.steal_ns));
    let last = vm.threads.iter().rposition(|thread| thread.name.starts_with("CPU")).unwrap();
    let tid = vm.threads[last].tid;
    run(&scene.tree, 100, tid, 2_000, 20);
    assert_eq!(times(&reports), Some((2, 2_000, Some(20))));
    vm.threads.remove(last);
    std::fs::remove_dir_all(scene.tree.root().join(format!("proc/100/task/{tid}"))).unwrap();
    scene.pass(70);
    assert_eq!(times(&reports), Some((1, 2_000, Some(20))));
}

#[test]
fn a_report_is_a_line_of_json() {
    let mut scene = Scene::new("");
    scene.vm(100, "a\"\n\u{fffd}", 1, [4000, 10]);
    scene.pass(2);
    let vms = scene.agent.reports().vms();
    let line = serde_json::to_string(&vms).unwrap();
    let begin = r#"[{"pid":100,"start_ticks":1100,"name":"a\"\\n"#;
    assert!(line.starts_with(begin), "{line}");
    assert!(line.contains(r#""manager":"libvirt","monitor":"qemu","vcpus":1"#), "{line}");
    assert_eq!(serde_json::from_str::<Vec<VmReport>>(&line).unwrap(), vms);
}

#[test]
fn names_cannot_break_the_log() {
    let mut scene = Scene::new("");
    scene.vm(100, "a\u{1b}[2J\nb", 1, [0, 0]);
    let told = scene.pass(2);
    assert!(told.iter().all(|line| line.chars().all(|character| !character.is_control())), "{told:?}");
}

/// An agent in a dry run logs what it would do, observes where vCPUs run, and estimates what homes would
/// save.
#[test]
fn plans_are_logged_as_plans() {
    let scene = Scene::new("");
    let mut process = scene.vm(100, "web", 2, [0, 1024]);
    let machine = crate::topology::read_sysfs(scene.tree.root()).unwrap();
    let mut agent = Agent::new(scene.tree.root(), machine, &Settings::default(), DryRun);
    let mut told = Vec::new();
    for look in 0..5u64 {
        // On CPU 0 of node 0, while its memory is on node 1.
        process
            .threads
            .iter_mut()
            .for_each(|thread| (thread.run_ns, thread.cpu) = (look * 10_000_000_000, 0));
        scene.tree.process(&process);
        told.extend(agent.step(Duration::from_secs(10 * look)).unwrap().iter().map(ToString::to_string));
    }
    let told = told.join("\n");
    assert!(told.contains("VM web (process 100): would get node 1: "), "{told}");
    let file = agent.homes_file().unwrap();
    assert!(file.are_planned);
    let saving = file.vms[0].saving.expect("it was seen running");
    assert!(0.0 < saving.least_cpus && saving.least_cpus < saving.most_cpus, "{saving:?}");
    let report = agent.reports().vms().remove(0);
    assert_eq!((report.home_ns, report.saving), (Some(0), Some(saving)));
    assert!(report.away_ns > Some(0), "{report:?}");
    assert!(scene.given.borrow().is_empty());
}

/// A VM whose rule gives it node 0, with memory on node 1, this `numa_maps`, and an agent that moves 1000 MiB
/// per second.
fn with_far_memory(
    numa_maps: &str,
    change: impl FnOnce(&mut Process),
) -> (Scene, Arc<pass::tests::FakePages>) {
    let settings = "[agent]\nlook_interval = \"1 s\"\nrest = \"5 s\"\nhorizon = \"1440 min\"\n[[vm]]\nname = \"*\"\nhome = [0]\n";
    let mut scene = Scene::new(settings);
    let pages = Arc::new(pass::tests::FakePages::on(1, 1..8193));
    scene.agent = agent(scene.tree.root(), &toml::from_str(settings).unwrap(), &scene.given)
        .with_moved_memory(1000, pages.clone());
    let mut process = Process::libvirt(100, "web", 2);
    process.resident_kib = 32 << 10;
    change(&mut process);
    scene.tree.process(&process);
    scene.memory(&process, [0, 32]);
    scene.tree.write("proc/100/maps", "1000-2001000 rw-p 00000000 00:00 0 \n");
    scene.tree.write("proc/100/numa_maps", numa_maps);
    (scene, pages)
}

const FAR: &str = "1000 default anon=8192 dirty=8192 N1=8192 kernelpagesize_kB=4\n";

#[test]
fn memory_comes_home_after_the_rest_time_and_once() {
    let (mut scene, pages) = with_far_memory(FAR, |_| {});
    assert!(!scene.pass(5).join("\n").contains(": moving "), "it has not had its home for long");
    let told = scene.pass(3).join("\n");
    assert!(
        told.contains(
            "VM web (process 100): moving 32 MiB of its memory to node 0, at most 1000 MiB per second"
        ),
        "{told}"
    );
    let mut told = Vec::new();
    // The thread has a time of its own: 32 ms at its pace.
    for _ in 0..1000 {
        std::thread::sleep(Duration::from_millis(10));
        told.extend(scene.pass(1));
        if !told.is_empty() {
            break;
        }
    }
    assert!(
        told[0].starts_with("VM web (process 100): 32 MiB of its memory moved to node 0 in "),
        "{told:?}"
    );
    assert_eq!((pages.count_on(0), pages.count_on(1)), (8192, 0));
    scene.pass(1);
    let moved = MovedMemory { moved: 32 << 20, ..MovedMemory::default() };
    assert_eq!(scene.agent.reports().moved_memory(), Some(moved));
    // Its cgroup still reports the memory as far away, and an hour has not passed.
    assert_eq!(scene.pass(60), [""; 0]);
    assert!(scene.pass(3600).join("\n").contains(": moving "));
}

#[test]
fn memory_stays_by_default() {
    let scene = Scene::new("");
    assert_eq!(scene.agent.reports().moved_memory(), None);
    assert_eq!(Settings::default().agent.memory_mib_per_s, 0);
}

#[test]
fn what_people_have_decided_about_memory_is_left_alone() {
    let stays = |(mut scene, pages): (Scene, Arc<pass::tests::FakePages>)| {
        let told = scene.pass(20).join("\n");
        assert!(told.contains(": node 0: ") && !told.contains(": moving "), "{told}");
        assert_eq!(pages.count_on(1), 8192);
    };
    stays(with_far_memory(&FAR.replace("default", "bind:1"), |_| {}));
    stays(with_far_memory(FAR, |process| {
        process.arguments.extend(["-device".into(), "vfio-pci,host=0000:01:00.0".into()]);
    }));

    // Its CPUs are those of node 0, and its cpuset has the memory of node 1 alone.
    let (scene, pages) = with_far_memory(FAR, |process| {
        process.threads.iter_mut().for_each(|thread| thread.cpus = "0-3".into());
    });
    let status = fs::read_to_string(scene.tree.root().join("proc/100/status")).unwrap();
    scene.tree.write("proc/100/status", &status.replace("Mems_allowed_list:\t0-1", "Mems_allowed_list:\t1"));
    stays((scene, pages));
}

#[test]
fn a_pass_is_called_off_when_the_home_has_no_room_any_longer() {
    let (mut scene, _) = with_far_memory(FAR, |_| {});
    // At this pace a chunk takes a second.
    let slow = Arc::new(pass::tests::FakePages::on(1, 1..8193));
    scene.agent.mover = Some(Mover::new(8, slow.clone()));
    scene.pass(8);
    assert!(scene.agent.mover.as_ref().is_some_and(Mover::is_busy));
    scene.tree.write(
        "sys/devices/system/node/node0/meminfo",
        "Node 0 MemTotal: 33554432 kB\nNode 0 MemFree: 1024 kB\n",
    );
    scene.pass(1);
    let told = (0..2000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        scene.pass(1).pop()
    });
    let told = told.expect("the pass ends");
    assert!(told.ends_with("; moving more is not worth its cost now"), "{told}");
    assert!(slow.count_on(1) > 0);
}
