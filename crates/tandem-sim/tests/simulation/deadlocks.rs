//! Deadlocks of guests' tasks and of processes: what is reported is what stands still.
//!
//! The oracle knows nothing of who waits for whom: a task that gets on counts its rounds. One that is reported
//! after some time never gets on again, and one that has not got on in a second run of twice that length is
//! reported there.

use crate::common::guest::{guest, guest_vm};
use crate::common::{MS, US, compute, cores, forever, textbook};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use std::collections::BTreeSet;
use tandem_machine::MachineBuilder;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::CpuId;
use tandem_sim::metrics::{Awaited, RunMetrics};
use tandem_sim::policy::credit::CreditSettings;
use tandem_sim::policy::linux::LinuxSettings;
use tandem_sim::program::Op;
use tandem_sim::run;
use tandem_sim::scenario::{Arrivals, Process, Scenario, Source, TaskPolicy};

const LOCKS: usize = 3;
const CHANNELS: usize = 3;
/// In which a task that can get on does: rounds take less than a millisecond.
const LENGTH_NS: u64 = 20 * MS;

/// A VM in which each of these programs is a task with a vCPU, and a pCPU, of its own.
fn scenario(programs: &[Vec<Op>], length_ns: u64) -> Scenario {
    let count = programs.len() as u32;
    let machine = cores(count);
    let names: Vec<String> = (0..count).map(|number| number.to_string()).collect();
    let named = names.iter().map(String::as_str).zip(programs.iter().cloned()).collect();
    let topology = MachineBuilder::symmetric(1, count, 1).build().unwrap();
    let mut guest = guest(topology, LinuxSettings::default(), named, 1);
    guest.locks = LOCKS;
    guest.family_channels = 0;
    guest.processes = (0..count)
        .map(|number| Process {
            program: number as usize,
            copies: 1,
            nice: 0,
            policy: TaskPolicy::Normal,
            affinity: Some(CpuMask::from_cpus(count as usize, [CpuId(number)]).into()),
        })
        .collect();
    let mut vm = guest_vm("guest", &machine, guest);
    vm.channels = CHANNELS;
    vm.counters = names;
    textbook(machine, CreditSettings::default(), length_ns, vec![vm])
}

/// A round that is counted, again and again.
fn rounds(number: usize, mut ops: Vec<Op>) -> Vec<Op> {
    ops.push(compute(US));
    ops.push(Op::Count { counter: number, amount: 1 });
    forever(ops)
}

fn reported(metrics: &RunMetrics) -> BTreeSet<String> {
    metrics.host.deadlocks.iter().map(|it| it.task.clone()).collect()
}

fn waits(metrics: &RunMetrics) -> Vec<(&str, Awaited, &str)> {
    metrics.host.deadlocks.iter().map(|it| (it.task.as_str(), it.awaited, it.of.as_str())).collect()
}

fn locked(lock: usize, within: Vec<Op>) -> Vec<Op> {
    [vec![Op::Lock { lock }, compute(20 * US)], within, vec![Op::Unlock { lock }]].concat()
}

fn send(channel: usize) -> Op {
    Op::Send { channel, capacity: 2, resume_at: None, message_lines: 0, queue_lines: 0 }
}

/// A part of a round.
fn part() -> impl Strategy<Value = Vec<Op>> {
    prop_oneof![
        (1..30_u64).prop_map(|us| vec![compute(us * US)]),
        (0..LOCKS).prop_map(|lock| locked(lock, vec![])),
        (0..LOCKS, 1..LOCKS).prop_map(|(lock, other)| locked(lock, locked((lock + other) % LOCKS, vec![]))),
    ]
}

/// A task puts into a channel and another takes from it, each at some place among the parts of its round.
#[derive(Debug, Clone)]
struct Link {
    channel: usize,
    giver: (Index, Index),
    taker: (Index, Index),
}

fn link() -> impl Strategy<Value = Link> {
    let place = || (any::<Index>(), any::<Index>());
    (0..CHANNELS, place(), place()).prop_map(|(channel, giver, taker)| Link { channel, giver, taker })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_reported_stands_still(
        mut parts in vec(vec(part(), 1..4), 2..6),
        links in vec(link(), 0..5),
        are_bounded in any::<bool>(),
        seed in any::<u64>(),
    ) {
        for Link { channel, giver, taker } in links {
            let gives = if are_bounded { send(channel) } else { Op::Signal { channel } };
            for ((task, place), op) in [(giver, gives), (taker, Op::Wait { channel })] {
                let task = task.get_mut(&mut parts);
                task.insert(place.index(task.len() + 1), vec![op]);
            }
        }
        let programs: Vec<Vec<Op>> =
            parts.iter().enumerate().map(|(number, parts)| rounds(number, parts.concat())).collect();
        let once = run(&scenario(&programs, LENGTH_NS), seed).unwrap();
        let twice = run(&scenario(&programs, 2 * LENGTH_NS), seed).unwrap();
        let still: BTreeSet<String> = (0..programs.len())
            .map(|number| number.to_string())
            .filter(|name| once.vms[0].counts[name] == twice.vms[0].counts[name])
            .collect();
        // Each channel has a giver and a taker, and no task ends, so that all that stand still wait for each other.
        prop_assert!(reported(&once).is_subset(&still), "{:?} {still:?}", reported(&once));
        // Where channels are bounded, a sender may stand still because quicker ones always fill the room.
        prop_assert!(are_bounded || still.is_subset(&reported(&twice)), "{still:?} {:?}", reported(&twice));
    }
}

#[test]
fn two_orders_of_two_locks_are_named() {
    let programs = [rounds(0, locked(0, locked(1, vec![]))), rounds(1, locked(1, locked(0, vec![])))];
    let metrics = run(&scenario(&programs, LENGTH_NS), 1).unwrap();
    assert_eq!(waits(&metrics), [("0", Awaited::Lock, "1"), ("1", Awaited::Lock, "0")]);
}

#[test]
fn two_full_pipes_are_named() {
    let speaks =
        |number, to, from| rounds(number, vec![send(to), send(to), send(to), Op::Wait { channel: from }]);
    let metrics = run(&scenario(&[speaks(0, 0, 1), speaks(1, 1, 0)], LENGTH_NS), 1).unwrap();
    assert_eq!(waits(&metrics), [("0", Awaited::Room, "1"), ("1", Awaited::Room, "0")]);
}

#[test]
fn a_lock_that_nobody_gives_back_is_named() {
    let takes = vec![Op::Lock { lock: 0 }, compute(US)];
    let metrics = run(
        &scenario(&[takes, rounds(1, [vec![compute(50 * US)], locked(0, vec![])].concat())], LENGTH_NS),
        1,
    );
    let metrics = metrics.unwrap();
    assert_eq!(metrics.host.deadlocks.len(), 1, "{:?}", metrics.host.deadlocks);
    assert_eq!(metrics.host.deadlocks[0].of, "0");
}

#[test]
fn who_waits_for_ended_tasks_or_for_requests_is_in_no_deadlock() {
    let finite = vec![Op::Repeat { times: Some(3), body: vec![compute(10 * US), Op::Signal { channel: 0 }] }];
    let server = rounds(1, vec![Op::Wait { channel: 0 }, Op::Signal { channel: 1 }]);
    let behind = rounds(2, vec![Op::Wait { channel: 1 }]);
    let metrics = run(&scenario(&[finite, server, behind], LENGTH_NS), 1).unwrap();
    assert_eq!(metrics.vms[0].counts["2"], 3);
    assert_eq!(metrics.host.deadlocks, []);

    // Each waits for the other, but requests come to the first.
    let first = rounds(0, vec![Op::Wait { channel: 0 }, Op::Signal { channel: 1 }]);
    let second = rounds(1, vec![Op::Wait { channel: 1 }, Op::Signal { channel: 0 }]);
    let mut scenario = scenario(&[first, second], LENGTH_NS);
    assert_eq!(run(&scenario, 1).unwrap().host.deadlocks.len(), 2);
    let interval = tandem_sim::program::Amount::Fixed(100 * MS);
    scenario.workloads[0].sources.push(Source { channel: 0, arrivals: Arrivals::Open { interval } });
    assert_eq!(run(&scenario, 1).unwrap().host.deadlocks, []);
}
