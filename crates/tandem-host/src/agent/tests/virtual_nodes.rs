//! VMs whose virtual nodes have homes of their own.

use super::*;
use crate::vms::homes_file::PartHome;

/// A VM of libvirt with four vCPUs on two virtual nodes of a GiB, and with this memory on each node of the
/// host, MiB.
fn two_virtual_nodes(scene: &Scene, memory_mib: [u64; 2], more: &[&str]) -> Process {
    let mut process = Process::libvirt(100, "web", 4);
    let numa = ["-numa", "node,nodeid=0,cpus=0-1,memdev=a", "-numa", "node,nodeid=1,cpus=2-3,memdev=b"];
    process.arguments.extend(numa.iter().chain(more).map(|&argument| argument.to_owned()));
    process.resident_kib = (memory_mib[0] + memory_mib[1]) << 10;
    scene.tree.process(&process);
    scene.memory(&process, memory_mib);
    process
}

/// The nodes that the threads of a VM prefer: its vCPUs in order, and the other threads, which all prefer the
/// same.
fn homes(scene: &Scene, process: &Process) -> (Vec<Vec<u32>>, Vec<u32>) {
    let given = scene.given.borrow();
    let home = |thread: &crate::vms::testing::ThreadFiles| {
        given.get(&thread.tid).map(|(nodes, _)| nodes.clone()).unwrap_or_default()
    };
    let (vcpus, others): (Vec<_>, Vec<_>) =
        process.threads.iter().partition(|thread| thread.name.starts_with("CPU"));
    let mut others: Vec<_> = others.into_iter().map(home).collect();
    others.dedup();
    assert_eq!(others.len(), 1, "{given:?}");
    (vcpus.into_iter().map(home).collect(), others.remove(0))
}

fn vcpus(nodes: [u32; 4]) -> Vec<Vec<u32>> {
    nodes.map(|node| vec![node]).to_vec()
}

#[test]
fn each_virtual_node_has_its_home_and_all_else_both() {
    let mut scene = Scene::new("");
    let process = two_virtual_nodes(&scene, [0, 0], &[]);
    let told = scene.pass(2).join("\n");
    assert_eq!(homes(&scene, &process), (vcpus([0, 0, 1, 1]), vec![0, 1]));
    assert!(
        told.contains("VM web (process 100), virtual node 1: node 1: no other virtual node is there; "),
        "{told}"
    );

    let entry = scene.agent.homes_file().unwrap().vms.remove(0);
    assert_eq!(entry.home, [0, 1]);
    let parts: Vec<_> =
        entry.parts.iter().map(|part| (part.virtual_node, part.vcpus.clone(), part.home.clone())).collect();
    assert_eq!(parts, [(0, vec![0, 1], vec![0]), (1, vec![2, 3], vec![1])]);
    assert_eq!(
        entry.why,
        format!("virtual node 0: {}; virtual node 1: {}", entry.parts[0].why, entry.parts[1].why)
    );
    let report = scene.agent.reports().vms().remove(0);
    assert_eq!((report.home, report.parts), (vec![0, 1], entry.parts));
    assert_eq!(scene.agent.reports().decisions(), HomeDecisions { given: 2, moved: 0, withdrawn: 0 });
}

#[test]
fn a_vm_that_does_not_say_which_vcpus_are_whose_has_one_home() {
    let one = |change: &dyn Fn(&mut Process)| {
        let mut scene = Scene::new("");
        let mut process = two_virtual_nodes(&scene, [0, 4000], &[]);
        change(&mut process);
        scene.tree.remove(100);
        scene.tree.process(&process);
        scene.pass(2);
        let report = scene.agent.reports().vms().remove(0);
        (report.home, report.parts)
    };
    let none = (vec![1], Vec::<PartHome>::new());
    assert_ne!(one(&|_| {}), none);
    assert_eq!(
        one(&|process| process.threads[3].name = "ALL CPUs/TCG".into()),
        none,
        "a vCPU without a number"
    );
    assert_eq!(
        one(&|process| process.threads[3].name = "CPU 9/KVM".into()),
        none,
        "a vCPU without a virtual node"
    );
    assert_eq!(one(&|process| process.threads.truncate(4)), none, "the second virtual node has no vCPU");
    let many = |process: &mut Process| {
        process.arguments.truncate(process.arguments.len() - 4);
        for vcpu in 0..9 {
            process.arguments.extend(["-numa".into(), format!("node,cpus={vcpu}")]);
        }
        *process = process.clone().threads(5, |vcpu| format!("CPU {}/KVM", vcpu + 4));
    };
    assert!(one(&many).1.is_empty(), "more than are looked at");
}

#[test]
fn bound_memory_decides_the_homes_of_parts() {
    let mut scene = Scene::new("");
    let backend = |id: &str, node: u32| {
        format!(
            r#"{{"qom-type":"memory-backend-ram","id":"{id}","size":1073741824,"host-nodes":[{node}],"policy":"bind"}}"#
        )
    };
    let (a, b) = (backend("a", 1), backend("b", 0));
    let process = two_virtual_nodes(&scene, [1000, 1000], &["-object", &a, "-object", &b]);
    let told = scene.pass(60).join("\n");
    assert_eq!(homes(&scene, &process), (vcpus([1, 1, 0, 0]), vec![0, 1]), "{told}");
    assert!(told.contains("virtual node 0: node 1: its memory is bound there; "), "{told}");
    let views = scene.agent.tracked_vms().next().unwrap().views(&scene.agent.machine);
    let resident: Vec<_> = views.iter().map(|view| view.resident_bytes.clone()).collect();
    assert_eq!(resident, [[0, 1000 << 20], [1000 << 20, 0]]);
    assert!(views.iter().all(|view| view.memory_bytes == 2 << 30 && view.vcpus == 2));
}

#[test]
fn each_part_has_the_demand_of_its_own_vcpus() {
    let mut scene = Scene::new("");
    let process = two_virtual_nodes(&scene, [1000, 1000], &[]);
    scene.pass(11);
    let busy = process.threads.iter().find(|thread| thread.name == "CPU 3/KVM").unwrap().tid;
    run(&scene.tree, 100, busy, 5_000_000_000, 1_000_000_000);
    scene.pass(10);
    let demands: Vec<_> =
        scene.agent.tracked_vms().next().unwrap().parts.iter().map(|part| part.demand).collect();
    assert_eq!(demands, [Some(0.0), Some(0.6)]);
}

#[test]
fn rules_hold_for_all_parts() {
    let homes_with = |rule: &str| {
        let mut scene = Scene::new(&format!("[[vm]]\nname = \"web\"\n{rule}\n"));
        let process = two_virtual_nodes(&scene, [0, 0], &[]);
        scene.pass(30);
        homes(&scene, &process)
    };
    assert_eq!(homes_with("home = [0, 1]"), (vcpus([0, 0, 1, 1]), vec![0, 1]));
    assert_eq!(homes_with("home = [1]"), (vcpus([1, 1, 1, 1]), vec![1]));
    assert_eq!(homes_with("exempt = true"), (vec![vec![]; 4], vec![]));
    assert_eq!(homes_with("isolated = true"), (vcpus([0, 0, 1, 1]), vec![0, 1]));
}

#[test]
fn decisions_of_others_apply_to_the_whole_vm() {
    let mut scene = Scene::new("");
    let mut process = two_virtual_nodes(&scene, [0, 4000], &[]);
    scene.pass(2);
    // Another program pins vCPUs one by one.
    process.threads[4].cpus = "3".into();
    process.threads[2].cpus = "0".into();
    scene.tree.process(&process);
    let told = scene.pass(12).join("\n");
    assert_eq!(homes(&scene, &process), (vec![vec![]; 4], vec![]), "{told}");
    assert!(told.contains("VM web (process 100): left alone; its vCPUs are pinned one by one"), "{told}");
    process.threads.iter_mut().for_each(|thread| thread.cpus = "0-3".into());
    scene.tree.process(&process);
    scene.pass(12);
    assert_eq!(homes(&scene, &process), (vcpus([0, 0, 0, 0]), vec![0]), "a cpuset of one node");
}

#[test]
fn an_agent_takes_over_the_homes_of_parts() {
    let mut scene = Scene::new("");
    let process = two_virtual_nodes(&scene, [0, 0], &[]);
    scene.pass(2);
    // In the other order than the agent would choose.
    for thread in &process.threads {
        let nodes = match thread.name.as_str() {
            "CPU 0/KVM" | "CPU 1/KVM" => vec![1],
            "CPU 2/KVM" | "CPU 3/KVM" => vec![0],
            _ => vec![0, 1],
        };
        scene.given.borrow_mut().insert(thread.tid, (nodes, true));
    }
    scene.agent = agent(scene.tree.root(), &Settings::default(), &scene.given);
    let told = scene.pass(60);
    assert_eq!(homes(&scene, &process), (vcpus([1, 1, 0, 0]), vec![0, 1]));
    assert!(told.iter().all(|line| line.contains("was found")), "{told:?}");

    // An earlier version of the agent gave all threads one home.
    scene.given.borrow_mut().values_mut().for_each(|held| held.0 = vec![0, 1]);
    scene.agent = agent(scene.tree.root(), &Settings::default(), &scene.given);
    scene.pass(2);
    assert_eq!(homes(&scene, &process), (vcpus([0, 0, 1, 1]), vec![0, 1]));
}

#[test]
fn homes_of_parts_come_from_a_file() {
    let mut scene = Scene::new("");
    two_virtual_nodes(&scene, [0, 0], &[]);
    scene.pass(2);
    let mut file = scene.agent.homes_file().unwrap();
    let seen = |file: &HomesFile| {
        let machine = crate::topology::read_sysfs(scene.tree.root()).unwrap();
        let mut agent = Agent::new(scene.tree.root(), machine, &Settings::default(), DryRun);
        agent.observe(Duration::ZERO, Some(file)).unwrap();
        let tracked = agent.tracked_vms().next().unwrap();
        let parts = tracked.parts.iter();
        parts.map(|part| part.home.as_ref().map(|home| home.nodes[0].0)).collect::<Vec<_>>()
    };
    for (part, node) in file.vms[0].parts.iter_mut().zip([1, 0]) {
        part.home = vec![node];
    }
    assert_eq!(seen(&file), [Some(1), Some(0)]);
    // A file of an earlier version.
    file.vms[0].parts.clear();
    assert_eq!(seen(&file), [None, None], "both nodes are no home of one");
    file.vms[0].home = vec![1];
    assert_eq!(seen(&file), [Some(1), Some(1)]);
}

#[test]
fn a_vcpu_that_comes_later_lives_with_its_virtual_node() {
    let mut scene = Scene::new("");
    let mut process = two_virtual_nodes(&scene, [0, 0], &[]);
    let last = process.threads.pop().unwrap();
    scene.tree.remove(100);
    scene.tree.process(&process);
    scene.pass(2);
    process.threads.push(last);
    scene.tree.process(&process);
    scene.pass(75);
    assert_eq!(homes(&scene, &process), (vcpus([0, 0, 1, 1]), vec![0, 1]));

    // A vCPU without a virtual node makes it one VM again, which lives where its parts did.
    process = process.thread("CPU 4/KVM");
    scene.tree.process(&process);
    scene.pass(75);
    assert_eq!(homes(&scene, &process), (vec![vec![0, 1]; 5], vec![0, 1]));
}

#[test]
fn a_vm_that_was_found_before_all_its_vcpus_is_divided_when_they_are_there() {
    let mut scene = Scene::new("");
    let all = two_virtual_nodes(&scene, [0, 0], &[]);
    let mut process = all.clone();
    process.threads.truncate(4);
    scene.tree.remove(100);
    scene.tree.process(&process);
    scene.pass(2);
    let (vcpus_before, others) = homes(&scene, &process);
    assert_eq!((vcpus_before, others.len()), (vec![others.clone(); 2], 1));
    scene.tree.process(&all);
    scene.pass(75);
    assert_eq!(homes(&scene, &all), (vcpus([0, 0, 1, 1]), vec![0, 1]));
}

#[test]
fn plans_for_parts_are_measured_for_each() {
    let scene = Scene::new("");
    let mut process = two_virtual_nodes(&scene, [512, 512], &[]);
    let machine = crate::topology::read_sysfs(scene.tree.root()).unwrap();
    let mut agent = Agent::new(scene.tree.root(), machine, &Settings::default(), DryRun);
    let mut told = Vec::new();
    for look in 0..5u64 {
        // All on CPU 0, which is home to the first virtual node alone.
        process.threads.iter_mut().for_each(|thread| (thread.run_ns, thread.cpu) = (look * 1_000_000_000, 0));
        scene.tree.process(&process);
        told.extend(agent.step(Duration::from_secs(10 * look)).unwrap().iter().map(ToString::to_string));
    }
    let told = told.join("\n");
    assert!(told.contains("VM web (process 100), virtual node 1: would get node 1: "), "{told}");
    let report = agent.reports().vms().remove(0);
    assert!(report.home_ns > Some(0) && report.home_ns == report.away_ns, "{report:?}");
    assert!(report.saving.unwrap().expected_cpus > 0.0, "the second one's memory is far from it");
}

#[test]
fn memory_of_virtual_nodes_stays() {
    let rest = "[agent]\nrest = \"0 s\"\n[[vm]]\nname = \"*\"\nhome = [0]\n";
    let mut scene = Scene::new(rest);
    let pages = Arc::new(pass::tests::FakePages::on(1, 1..8193));
    scene.agent = agent(scene.tree.root(), &toml::from_str(rest).unwrap(), &scene.given)
        .with_moved_memory(1000, pages.clone());
    two_virtual_nodes(&scene, [0, 32], &[]);
    scene.tree.write("proc/100/maps", "1000-2001000 rw-p 00000000 00:00 0 \n");
    scene.tree.write("proc/100/numa_maps", FAR);
    let told = scene.pass(60).join("\n");
    assert!(told.contains(": node 0: ") && !told.contains("moving"), "{told}");
    assert_eq!(pages.count_on(1), 8192);
}
