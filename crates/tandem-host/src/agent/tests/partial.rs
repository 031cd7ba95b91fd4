//! VMs that stay with the kernel's scheduler.

use super::*;

/// Puts a VM's threads into another cgroup, except the first: that may have ended, or be in a cgroup of its
/// own.
fn join(scene: &Scene, vm: &Process, cgroup: &str) {
    for tid in vm.threads.iter().skip(1).map(|thread| thread.tid) {
        scene.tree.write(&format!("proc/{}/task/{tid}/cgroup", vm.pid), &format!("0::{cgroup}\n"));
    }
}

#[test]
fn a_vm_has_a_home_while_it_is_in_the_part() {
    let mut scene = Scene::new("[partial]\ncgroups = [\"/part\"]\n");
    let vm = scene.vm(100, "web", 2, [0, 4000]);
    let other = scene.vm(200, "db", 2, [0, 4000]);
    join(&scene, &vm, "/part/web");
    join(&scene, &other, "/other\u{1b}[31m");
    scene.pass(12);
    assert_eq!((scene.home(&vm).len(), scene.home(&other).len()), (1, 0));
    let why: Vec<_> = scene.agent.reports().vms().iter().map(|vm| vm.why.clone()).collect();
    let expected = "left alone; its cgroup /other\\u{1b}[31m stays with the kernel's scheduler";
    assert!(why.iter().any(|why| why == expected), "{why:?}");

    // It leaves, and the other one enters.
    join(&scene, &vm, "/other");
    join(&scene, &other, "/part");
    scene.pass(12);
    assert_eq!((scene.home(&vm).len(), scene.home(&other).len()), (0, 1));
}

#[test]
fn a_rule_does_not_bring_it_into_the_part() {
    let mut scene = Scene::new("[partial]\nexcept = [\"/other\"]\n[[vm]]\nname = \"web\"\nhome = [0]\n");
    let vm = scene.vm(100, "web", 2, [0, 4000]);
    join(&scene, &vm, "/other/a");
    scene.pass(12);
    assert!(scene.home(&vm).is_empty());
    join(&scene, &vm, "/a");
    scene.pass(12);
    assert_eq!(scene.home(&vm), [0]);
}
