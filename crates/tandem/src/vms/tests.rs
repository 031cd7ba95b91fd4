//! What is printed of trees with VMs.

use super::*;
use serde_json::json;
use tandem_host::vms::Identity;
use tandem_host::vms::homes_file::{Cores, HomeEntry, HomesFile, PartHome, VERSION};
use tandem_host::vms::testing::{Cgroups, Process, Tree};
use tandemd::observe::Reports;
use tempfile::TempDir;

/// Two nodes of four CPUs, with a VM of libvirt whose memory is on node 1, and one of Proxmox that may use
/// CPUs 0-1.
pub fn tree() -> (TempDir, Tree) {
    let folder = tempfile::tempdir().unwrap();
    let tree = Tree::new(folder.path());
    tree.machine(2, 4);
    tree.cgroups(Cgroups::Unified);
    tree.process(&Process::libvirt(4711, "web", 2));
    let scope = "/machine.slice/machine-qemu\\x2d1\\x2dweb.scope";
    tree.cgroup(scope, "memory.numa_stat", "anon N0=107374182 N1=966367641\n");
    let mut mail = Process::proxmox(900, 100, "mail", 1);
    "0-1".clone_into(&mut mail.threads[1].cpus);
    tree.process(&mail);
    (folder, tree)
}

/// What is observed of it in a moment, in which nothing runs.
fn observe(tree: &Tree, wanted: Option<&str>) -> Observation {
    let machine = read_sysfs(tree.root()).unwrap();
    let mut finder = Finder::new(tree.root());
    finder.scan().unwrap();
    let mut vms: Vec<&Vm> = finder.vms().collect();
    vms.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some(wanted) = wanted {
        vms = vec![select(&vms, wanted).unwrap()];
    }
    let mut observation = Observation::make(tree.root(), &machine, &vms, Duration::ZERO, Reports::new);
    // Who runs the test decides what is advised.
    observation.notes.iter_mut().for_each(|note| note.truncate(note.find(':').unwrap_or(note.len())));
    observation.interval = Duration::from_secs(1);
    observation
}

#[test]
fn a_table_has_a_line_for_each() {
    let (_folder, tree) = tree();
    let expected = "\
NAME BY       PID VCPU MEMORY  NODE HOME CPU WAIT STEAL LOCAL
mail proxmox  900    1  1G/4G     ?    0  0%   0%    0%     -
web  libvirt 4711    2  1G/4G 1:90%    1  0%   0%    0%     -
the nodes of the memory of 1 of 2 VMs cannot be read
";
    assert_eq!(table::draw(&observe(&tree, None), None), expected);
}

#[test]
fn usual_names_fit_80_columns_and_longer_ones_are_cut() {
    let (_folder, tree) = tree();
    tree.process(&Process::libvirt(4_000_000, "a-very-long-name-of-a-virtual-machine-that-goes-on", 128));
    let mut observation = observe(&tree, None);
    for vm in &mut observation.vms {
        vm.usage.run_ns = 12_800_000_000;
        (vm.usage.steal_ns, vm.usage.wait_ns) = (Some(128_000_000_000), Some(1_000_000_000));
        vm.usage.vcpu_run_ns_by_node = [(0, 1), (1, 9)].into();
    }
    let width = |text: &str| text.lines().take(4).map(|line| line.chars().count()).max();
    let text = table::draw(&observation, Some(80));
    assert!(width(&text) <= Some(80), "{text}");
    assert!(text.contains("a-very-long-n"), "{text}");
    assert!(text.contains("… libvirt 4000000  128"), "{text}");
    let wide = table::draw(&observation, Some(200));
    assert!(wide.contains("that-goes-on libvirt"), "{wide}");
    assert!(wide.contains("90% of its memory is there\n"), "{wide}");
}

#[test]
fn names_cannot_write_on_the_terminal() {
    let (_folder, tree) = tree();
    tree.process(&Process::libvirt(5000, "a\nb\u{1b}[31m", 1));
    let text = table::draw(&observe(&tree, None), Some(80));
    assert_eq!(text.lines().count(), 5, "{text}");
    assert!(text.contains("a\\nb\\u{1b}[31m libvirt 5000"), "{text}");
}

#[test]
fn no_vms_are_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let tree = Tree::new(folder.path());
    tree.machine(1, 2);
    assert_eq!(table::draw(&observe(&tree, None), None), "no virtual machines are running\n");
    let message = select(&[], "web").unwrap_err().to_string();
    assert_eq!(message, "there is no VM `web`; there is none");
}

#[test]
fn a_number_is_a_process_whatever_others_are_called() {
    let (_folder, tree) = tree();
    tree.process(&Process::libvirt(60, "4711", 1));
    let mut finder = Finder::new(tree.root());
    finder.scan().unwrap();
    let vms: Vec<&Vm> = finder.vms().collect();
    assert_eq!(select(&vms, "4711").unwrap().identity.pid, 4711);
}

#[test]
fn a_vm_has_a_name_and_a_number() {
    let (_folder, tree) = tree();
    tree.process(&Process::libvirt(60, "web", 1));
    let mut finder = Finder::new(tree.root());
    finder.scan().unwrap();
    let mut vms: Vec<&Vm> = finder.vms().collect();
    vms.sort_by_key(|vm| vm.identity);
    let find = |wanted| match select(&vms, wanted) {
        Ok(vm) => Ok(vm.identity.pid),
        Err(error) => Err(error.to_string()),
    };
    assert_eq!(find("mail"), Ok(900));
    assert_eq!(find("4711"), Ok(4711));
    assert_eq!(find("100"), Ok(900));
    assert_eq!(find("web").unwrap_err(), "2 VMs have the name `web`; say which process: 60, 4711");
    assert_eq!(find("db").unwrap_err(), "there is no VM `db`; those that there are: web, mail, web");
    assert_eq!(find("7").unwrap_err(), "there is no VM `7`; those that there are: web, mail, web");
}

#[test]
fn one_vm_is_told_in_full() {
    let (_folder, tree) = tree();
    let machine = read_sysfs(tree.root()).unwrap();
    let expected = "\
name     web
started  by libvirt; qemu, process 4711
home     node 1: 90% of its memory is there
memory   1G of 4G resident; 102M on node 0, 922M on node 1 (its cgroup says)
usage    in 1.0 s: CPU 0%, wait 0%, steal 0%; no vCPU has run
may use  CPUs 0-7 (all of the machine), memory of nodes 0-1
cgroup   /machine.slice/machine-qemu\\x2d1\\x2dweb.scope (version 2, its own)

 TID NAME            KIND     RUN WAIT CPU NODE ALLOWED
4713 CPU 0/KVM       vCPU 0    0%   0%   0    0 0-7
4714 CPU 1/KVM       vCPU 1    0%   0%   0    0 0-7
4711 qemu-system-x86 emulator  0%   0%   0    0 0-7
4712 IO mon_iothread emulator  0%   0%   0    0 0-7
";
    assert_eq!(detail::show(&observe(&tree, Some("web")), &machine), expected);
    let mail = detail::show(&observe(&tree, Some("mail")), &machine);
    for line in [
        "started  by proxmox as 100; qemu, process 900\n",
        "home     node 0: its CPUs are confined to node 0\n",
        "memory   1G of 4G resident; on which nodes: ?\n",
        "may use  CPUs 0-1 (not all of the machine)",
        "901 CPU 0/KVM vCPU 0    0%   0%   0    0 0-1\n",
    ] {
        assert!(mail.contains(line), "{line} is missing in\n{mail}");
    }
}

#[test]
fn json_has_all_of_it() {
    let (_folder, tree) = tree();
    let all = json::to_json(&observe(&tree, None));
    assert_eq!(all["interval_s"], json!(1.0));
    let none =
        Observation { interval: Duration::from_nanos(4), is_plan: false, vms: Vec::new(), notes: Vec::new() };
    assert_eq!(json::to_json(&none)["interval_s"], json!(null), "there was nothing to wait for");
    let [mail, web] = [&all["vms"][0], &all["vms"][1]];
    assert_eq!(
        (&mail["manager"], &mail["id"], &web["manager"]),
        (&json!("proxmox"), &json!(100), &json!("libvirt"))
    );
    assert_eq!((&mail["memory"]["by_node"], &mail["memory"]["source"]), (&json!(null), &json!(null)));
    assert_eq!(web["memory"]["by_node"][1], json!({"node": 1, "bytes": 966_367_641}));
    assert_eq!(
        web["home"],
        json!({"nodes": [1], "saving": null, "source": "memory", "why": "90% of its memory is there"})
    );
    assert_eq!(web["usage"]["local_pct"], json!(null));
    assert_eq!(web["threads"][2]["vcpu"], json!(0));
    assert_eq!((&mail["limits"]["cpus"], &mail["limits"]["is_pinned"]), (&json!("0-1"), &json!(true)));
    assert_names_are_in_the_help(&all);
}

fn assert_names_are_in_the_help(value: &serde_json::Value) {
    for (key, inner) in value.as_object().into_iter().flatten() {
        assert!(HELP.contains(key.as_str()), "{key} is not in the help");
        assert_names_are_in_the_help(inner);
    }
    value.as_array().into_iter().flatten().for_each(assert_names_are_in_the_help);
}

#[test]
fn monitors_that_may_be_vms_are_told() {
    assert_eq!(note_of_monitors(vec![]), None);
    let one = note_of_monitors(vec![7]).unwrap();
    assert!(one.starts_with("process 7 is a monitor whose vCPUs are unknown, because "), "{one}");
    let two = note_of_monitors(vec![9, 7]).unwrap();
    assert!(two.starts_with("processes 7, 9 are monitors whose vCPUs are unknown, because "), "{two}");
}

#[test]
fn what_the_agent_says_comes_first() {
    let (_folder, tree) = tree();
    let entry = |start_ticks| HomeEntry {
        identity: Identity { pid: 4711, start_ticks },
        name: "web".into(),
        home: vec![0],
        why: "it has most free memory".into(),
        parts: Vec::new(),
        saving: None,
        cores: None,
    };
    let file = |start_ticks| HomesFile {
        version: VERSION,
        written_unix_s: 0,
        are_planned: false,
        vms: vec![entry(start_ticks)],
    };
    file(5711).write(tree.root()).unwrap();
    let told = observe(&tree, Some("web"));
    assert_eq!(
        (told.vms[0].homes.nodes.as_slice(), told.vms[0].homes.why.as_str()),
        (&[0][..], "it has most free memory")
    );
    assert!(!detail::show(&told, &read_sysfs(tree.root()).unwrap()).contains("cores "));
    for (cores, shown, in_json) in [
        (Cores::CoreScheduling, "apart (core scheduling)", "core_scheduling"),
        (Cores::Placement, "apart (by placement)", "placement"),
        (Cores::OneThread, "apart (one thread each)", "one_thread"),
        (Cores::Shared, "shared, though the settings say apart", "shared"),
    ] {
        let mut file = file(5711);
        file.vms[0].cores = Some(cores);
        file.write(tree.root()).unwrap();
        let mut told = observe(&tree, Some("web"));
        let machine = read_sysfs(tree.root()).unwrap();
        let text = detail::show(&told, &machine);
        assert!(text.contains(&format!("cores    {shown}\n")), "{text}");
        assert_eq!(json::to_json(&told)["vms"][0]["cores"], json!(in_json));
        told.is_plan = true;
        assert_eq!(detail::show(&told, &machine).contains("would be apart"), cores != Cores::Shared);
    }
    file(5712).write(tree.root()).unwrap();
    assert_eq!(observe(&tree, Some("web")).vms[0].homes.nodes, [1], "that was another process");
    tree.write("run/tandem/homes.json", "{");
    let broken = observe(&tree, Some("web"));
    assert_eq!((broken.vms[0].homes.nodes.as_slice(), broken.notes.len()), (&[1][..], 1));
}

/// A VM of which an agent says that its virtual nodes live apart.
fn with_parts(are_planned: bool) -> Observation {
    let (_folder, tree) = tree();
    let part = |virtual_node, home: &[u32]| PartHome {
        virtual_node,
        vcpus: vec![virtual_node],
        home: home.to_vec(),
        why: "its memory is bound there".into(),
    };
    let entry = HomeEntry {
        identity: Identity { pid: 4711, start_ticks: 5711 },
        name: "web".into(),
        home: vec![0, 1],
        why: "virtual node 0: x; virtual node 1: y".into(),
        parts: vec![part(0, &[1]), part(1, &[0, 1])],
        saving: None,
        cores: None,
    };
    HomesFile { version: VERSION, written_unix_s: 0, are_planned, vms: vec![entry] }
        .write(tree.root())
        .unwrap();
    std::fs::create_dir_all(tree.root().join("run/tandem")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(tree.root().join("run/tandem/tandem.sock")).unwrap();
    let mut observation = observe(&tree, Some("web"));
    let usage = &mut observation.vms[0].usage;
    usage.vcpu_run_ns_by_node = [(0, 50), (1, 50)].into();
    usage.run_ns_by_vcpu = [((0, 0), 40), ((0, 1), 10), ((1, 0), 10), ((1, 1), 40)].into();
    observation
}

#[test]
fn virtual_nodes_have_homes_of_their_own() {
    let told = with_parts(false);
    let table = table::draw(&told, None);
    assert!(table.contains(" 1|0-1 ") && table.contains(" 60%\n"), "{table}");
    assert!(table::draw(&with_parts(true), None).contains(" (1|0-1) "));
    let (_folder, tree) = tree();
    let detail = detail::show(&told, &read_sysfs(tree.root()).unwrap());
    for line in [
        "home     nodes 0-1: each virtual node has its own\n",
        "         virtual node 0 (vCPUs 0): node 1: its memory is bound there\n",
        "         virtual node 1 (vCPUs 1): nodes 0-1: its memory is bound there\n",
    ] {
        assert!(detail.contains(line), "{detail}");
    }
    let all = json::to_json(&told);
    assert_eq!(
        all["vms"][0]["home"]["parts"][0],
        json!({"virtual_node": 0, "vcpus": "0", "nodes": [1], "why": "its memory is bound there"})
    );
    assert_names_are_in_the_help(&all);
}

#[test]
fn a_vm_may_end_while_it_is_observed() {
    let (_folder, tree) = tree();
    let machine = read_sysfs(tree.root()).unwrap();
    let mut finder = Finder::new(tree.root());
    finder.scan().unwrap();
    let vms = [finder.vm(4711).unwrap()];
    tree.remove(4711);
    let observation = Observation::make(tree.root(), &machine, &vms, Duration::ZERO, Reports::new);
    assert!(observation.vms.is_empty());
    assert_eq!(detail::show(&observation, &machine), "the virtual machine has ended meanwhile\n");
}

#[test]
fn intervals_have_units() {
    assert_eq!(parse_interval("10s"), Ok(Duration::from_secs(10)));
    assert_eq!(parse_interval("1 ms").unwrap_err(), "`1 ms` is too short; at least 10 ms are needed");
    assert_eq!(parse_interval("5"), Ok(Duration::from_secs(5)), "seconds");
    assert!(parse_interval("0").unwrap_err().contains("is too short"));
    assert!(parse_interval("1.5").unwrap_err().contains("has no unit"));
    assert!(parse_interval("5 h").unwrap_err().contains("unknown unit"));
}
