//! VMs beside isolated CPUs.

use super::*;

#[test]
fn isolated_cpus_are_no_room_for_homes() {
    let mut scene = Scene::new("");
    scene.tree.write("sys/devices/system/cpu/isolated", "4-6\n");
    scene.agent = agent(scene.tree.root(), &Settings::default(), &scene.given);
    let small = scene.vm(100, "small", 1, [0, 4000]);
    let large = scene.vm(200, "large", 2, [0, 4000]);
    scene.pass(2);
    assert_eq!(scene.home(&small), [1]);
    assert_eq!(scene.home(&large), [0], "one CPU is left where its memory is");

    scene.tree.write("sys/fs/cgroup/cpuset.cpus.isolated", "7\n");
    scene.agent = agent(scene.tree.root(), &Settings::default(), &scene.given);
    let told = scene.pass(12).join("\n");
    assert_eq!(scene.home(&small), [0], "no CPU is left: {told}");
    assert!(told.contains("VM small (process 100): node 0: it cannot stay on node 1; "), "{told}");
}

#[test]
fn a_vm_on_isolated_cpus_is_left_there_and_takes_no_room() {
    let mut scene = Scene::new("");
    scene.tree.write("sys/devices/system/cpu/isolated", "2-3\n");
    scene.agent = agent(scene.tree.root(), &Settings::default(), &scene.given);
    // Each vCPU has a CPU of its own; the emulator's threads are elsewhere, as with libvirt's `emulatorpin`.
    let mut pinned = scene.vm(100, "rt", 2, [4000, 0]);
    for thread in &mut pinned.threads {
        let vcpu =
            thread.name.strip_prefix("CPU ").and_then(|name| name.split('/').next()?.parse::<u32>().ok());
        thread.cpus = vcpu.map_or("0-1".into(), |vcpu| (2 + vcpu).to_string());
    }
    scene.tree.process(&pinned);
    let other = scene.vm(200, "web", 2, [0, 0]);
    let told = scene.pass(12).join("\n");
    assert_eq!(scene.home(&pinned), [0; 0]);
    let views: Vec<_> = scene.agent.tracked_vms().flat_map(|one| one.views(&scene.agent.machine)).collect();
    assert_eq!(views.iter().map(|view| view.vcpus).collect::<Vec<_>>(), [0, 2]);
    let left_alone = "left alone; its vCPUs may use only CPUs 2-3, which are isolated";
    let file = scene.agent.homes_file().unwrap();
    assert_eq!(file.vms[0].why, left_alone, "{told}");
    assert_eq!(scene.home(&other).len(), 1);

    for thread in &mut pinned.threads {
        thread.cpus = "0-7".into();
    }
    scene.tree.process(&pinned);
    scene.pass(12);
    assert_eq!(scene.home(&pinned), [0], "it may use others again");
}

#[test]
fn a_vm_that_is_put_on_isolated_cpus_loses_its_home() {
    let mut scene = Scene::new("");
    scene.tree.write("sys/devices/system/cpu/isolated", "2-3\n");
    scene.agent = agent(scene.tree.root(), &Settings::default(), &scene.given);
    let mut vm = scene.vm(100, "web", 2, [4000, 0]);
    scene.pass(2);
    assert_eq!(scene.home(&vm), [0]);
    vm.threads.iter_mut().for_each(|thread| thread.cpus = "2-3".into());
    scene.tree.process(&vm);
    let told = scene.pass(60);
    assert_eq!(scene.home(&vm), [0; 0]);
    assert_eq!(told.iter().filter(|line| line.contains("left alone; ")).count(), 1, "{told:?}");
}

#[test]
fn a_vm_that_may_use_other_cpus_than_isolated_ones_lives_there() {
    let mut scene = Scene::new("");
    scene.tree.write("sys/devices/system/cpu/isolated", "0-3\n");
    scene.agent = agent(scene.tree.root(), &Settings::default(), &scene.given);
    let mut vm = scene.vm(100, "web", 2, [4000, 0]);
    vm.threads.iter_mut().for_each(|thread| thread.cpus = "0-5".into());
    scene.tree.process(&vm);
    scene.pass(2);
    assert_eq!(scene.home(&vm), [1]);
}
