//! VMs whose processes run another program and keep number and start time.

use super::*;

/// Seconds after which a scan examines every process again, where no event reports programs.
const FORGOTTEN_S: u64 = 70;

#[test]
fn what_is_no_vm_any_more_loses_its_home() {
    let mut scene = Scene::new("");
    let vm = scene.vm(100, "web", 2, [0, 4000]);
    let other = scene.vm(200, "other", 2, [0, 4000]);
    scene.pass(2);
    assert_eq!(scene.home(&vm), [1]);
    // A preference that another process has set meanwhile stays.
    scene.given.borrow_mut().insert(vm.threads[1].tid, (vec![0], false));
    let mut program = Process::new(100, "/usr/bin/sleep", &["1000"]).thread("a").thread("b");
    program.start_ticks = vm.start_ticks;
    scene.tree.remove(100);
    scene.tree.process(&program);
    let told = scene.pass(FORGOTTEN_S).join("\n");
    assert!(told.contains("VM web (process 100) has ended"), "{told}");
    let of_program: Vec<_> = scene.given.borrow().range(100..103).map(|(_, held)| held.clone()).collect();
    assert_eq!(of_program, [(vec![0], false)]);
    assert_eq!(scene.home(&other), [1]);
}

#[test]
fn a_process_that_becomes_another_vm_is_found_again() {
    let mut scene = Scene::new("[[vm]]\nname = \"web\"\nhome = [0]\n");
    let vm = scene.vm(100, "web", 2, [0, 4000]);
    scene.pass(2);
    assert_eq!(scene.home(&vm), [0], "by its rule");
    scene.tree.remove(100);
    let other = scene.vm(100, "db", 2, [0, 4000]);
    let told = scene.pass(FORGOTTEN_S).join("\n");
    assert!(told.contains("VM web (process 100) has ended"), "{told}");
    assert!(told.contains("VM db (process 100) was found"), "{told}");
    assert_eq!(scene.home(&other), [1]);
}

#[test]
fn a_vm_that_does_not_answer_for_a_while_stays_the_same() {
    let mut scene = Scene::new("");
    let vm = scene.vm(100, "web", 2, [0, 4000]);
    scene.pass(2);
    fs::remove_file(scene.tree.root().join("proc/100/cmdline")).unwrap();
    let told = scene.pass(FORGOTTEN_S);
    assert!(told.is_empty(), "{told:?}");
    assert_eq!(scene.home(&vm), [1]);
}

#[test]
fn another_vm_of_the_same_name_is_known_by_its_uuid() {
    let mut scene = Scene::new("");
    let vm = scene.vm(100, "web", 2, [0, 4000]);
    scene.pass(2);
    let mut other = vm.clone();
    other.arguments.extend(["-uuid".into(), "5f3e7f0c-8a53-4f0e-9d0e-000000000001".into()]);
    scene.tree.remove(100);
    scene.tree.process(&other);
    let told = scene.pass(FORGOTTEN_S).join("\n");
    assert!(told.contains("VM web (process 100) has ended"), "{told}");
    assert!(told.contains("VM web (process 100) was found"), "{told}");
}
