//! Decisions in guest mode, where all vCPUs are alike but for the time that the host steals.

use super::*;

/// A guest, and the vCPU on which its task 0 runs and from which the host has just stolen this much time.
fn guest_with_stolen_time(stolen_ns: u64) -> (Desk, CpuId) {
    let settings = Settings { mode: Mode::Guest, ..Settings::default() };
    let mut desk = Desk::new(&settings, tasks(2));
    let place = desk.run_on(0, 0);
    desk.stolen_ns[place.index()] = stolen_ns;
    desk.pass_us(4_000);
    desk.tick(place.0);
    desk.pass_us(100);
    (desk, place)
}

#[test]
fn a_guest_passes_over_an_idle_vcpu_from_which_time_was_stolen() {
    for (stolen_ns, counts) in STOLEN_NS {
        let (mut desk, place) = guest_with_stolen_time(stolen_ns);
        desk.sleep(place.0);
        assert_eq!(desk.wake(0, place.0) != place, counts, "{stolen_ns} ns a moment ago");
    }
}

#[test]
fn vcpus_that_are_passed_over_are_not_woken_for_nothing() {
    let settings = Settings { mode: Mode::Guest, ..Settings::default() };
    let mut desk = Desk::new(&settings, tasks(8));
    let places: Vec<CpuId> = (0..8).map(|task| desk.run_on(task, 0)).collect();
    desk.stolen_ns = vec![2_000_000; 8];
    desk.pass_us(4_000);
    for place in places {
        desk.tick(place.0);
        desk.sleep(place.0);
    }
    desk.kicked.clear();
    let place = desk.wake(7, 0);
    assert!(desk.counter("guest_stolen") > 0);
    assert!(desk.kicked.iter().all(|&cpu| cpu == place));
}

#[test]
fn a_new_task_leaves_a_vcpu_from_which_time_was_stolen() {
    for (stolen_ns, counts) in STOLEN_NS {
        let (mut desk, place) = guest_with_stolen_time(stolen_ns);
        assert_eq!(desk.fork(1, place.0) != place, counts, "{stolen_ns} ns a moment ago");
    }

    // A task does not stay on a vCPU while the host stops others: the host takes from one vCPU what it gives
    // to another.
    let (mut desk, stopped) = guest_with_stolen_time(2_000_000);
    let place = desk.run_on(1, stopped.0);
    assert_ne!(place, stopped);
    desk.pass_us(300);
    desk.sleep(stopped.0);
    let child = desk.fork(0, place.0);
    assert_ne!(child, place);
    assert_eq!(desk.decide(child.0), Some(TaskId(0)));
    desk.pass_us(10_000);
    desk.sleep(child.0);
    assert_eq!(desk.fork(0, place.0), place, "that is long ago");
}

#[test]
fn a_guest_keeps_a_new_task_where_it_was_created_until_that_turns_out_wrong() {
    let settings = Settings { mode: Mode::Guest, ..Settings::default() };
    let mut desk = Desk::new(&settings, tasks(4));
    let place = desk.run_on(0, 0);
    desk.pass_us(300);
    assert_eq!(desk.fork(1, place.0), place);
    assert!(desk.kicked.is_empty(), "no vCPU has to be woken");
    assert_eq!(desk.sleep(place.0), Some(TaskId(1)), "a task that forks usually waits");

    // The parent continues: its tick calls another vCPU for the child.
    desk.pass_us(300);
    assert_eq!(desk.fork(2, place.0), place);
    desk.pass_us(4_000);
    desk.tick(place.0);
    let called = *desk.kicked.iter().find(|&&cpu| cpu != place).expect("an idle vCPU is called");
    assert_eq!(desk.decide(called.0), Some(TaskId(2)));
    assert_eq!(desk.decide(place.0), Some(TaskId(1)));

    // On a host the child gets a CPU of its own at once.
    let mut desk = Desk::new(&Settings::default(), tasks(2));
    let place = desk.run_on(0, 0);
    assert_ne!(desk.fork(1, place.0), place);
}
