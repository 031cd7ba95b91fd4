//! Moving vCPUs between run queues: two sockets of two CPUs each.

use super::*;
use crate::policy::credit2::load::PRECISION;

const SHAPE: (u32, u32, u32) = (2, 2, 1);

fn vcpus(count: f64) -> i64 {
    (count * f64::from(1 << PRECISION)) as i64
}

/// The vCPUs belong to these queues and have this load each; nothing was balanced before.
fn situation(affinities: &[Affinities], loads: &[(usize, f64)]) -> Situation {
    let mut situation = Situation::new(settings(), SHAPE, affinities);
    for (task, &(queue, load)) in (0..).zip(loads) {
        let task = TaskId(task);
        situation.credit2.deassign(task);
        let vcpu = &mut situation.credit2.vcpus[task.index()];
        vcpu.cpu = CpuId(2 * queue as u32);
        vcpu.load = VcpuLoad::new(situation.now_ns);
        vcpu.load.average = vcpus(load);
        situation.credit2.assign(task, queue);
    }
    for (at, queue) in situation.credit2.queues.iter_mut().enumerate() {
        queue.load.balanced = 0;
        queue.load.update(situation.now_ns, 0);
        let own = loads.iter().filter(|(of, _)| *of == at);
        queue.load.balanced = own.map(|&(_, load)| vcpus(load)).sum();
    }
    situation
}

fn queues(situation: &Situation) -> Vec<usize> {
    situation.credit2.vcpus.iter().map(|vcpu| vcpu.queue.unwrap()).collect()
}

#[test]
fn csched2_res_pick() {
    type Case = (&'static str, Affinities, [f64; 2], u32);
    // The affinity of vCPU 0, which is of the first queue with a load of 1; the loads of both queues; then
    // the CPU.
    let cases: [Case; 7] = [
        ("the queue with less load", ANYWHERE, [3.0, 1.0], 3),
        ("its own load does not count", ANYWHERE, [3.0, 2.5], 1),
        ("the first of equal ones", ANYWHERE, [3.0, 2.0], 1),
        ("where it may run", (&[0], &[]), [3.0, 0.0], 0),
        ("where it prefers to run", (&[], &[0, 1]), [3.0, 0.0], 0),
        ("the preferred CPU of the least loaded queue", (&[], &[1, 2]), [3.0, 0.0], 2),
        ("the one that it may use", (&[0, 2], &[]), [3.0, 0.0], 2),
    ];
    for (what, affinities, loads, expected) in cases {
        let mut situation = situation(&[affinities], &[(0, 1.0)]);
        for (queue, load) in situation.credit2.queues.iter_mut().zip(loads) {
            queue.load.balanced = vcpus(load);
        }
        let cpu = situation.ask(|credit2, ctx| credit2.pick_cpu(ctx, TaskId(0))).0;
        assert_eq!(cpu, CpuId(expected), "{what}");
    }
}

#[test]
fn csched2_res_pick_takes_turns() {
    let mut situation = situation(&[(&[0, 1], &[])], &[(0, 1.0)]);
    let picked = [(); 3].map(|()| situation.ask(|credit2, ctx| credit2.pick_cpu(ctx, TaskId(0))).0.0);
    assert_eq!(picked, [1, 0, 1]);
}

#[test]
fn balance_load() {
    type Case = (&'static str, &'static [(usize, f64)], &'static [usize]);
    let cases: [Case; 7] = [
        ("one of two moves", &[(0, 1.0), (0, 1.0)], &[1, 0]),
        ("one alone stays, since nothing would be gained", &[(0, 1.0)], &[0]),
        ("less than one vCPU apart stays", &[(0, 0.6), (0, 0.3)], &[0, 0]),
        ("the one that brings most", &[(0, 1.0), (0, 0.4), (0, 0.7)], &[1, 0, 0]),
        ("two change places", &[(0, 1.0), (0, 1.0), (1, 0.3)], &[1, 0, 0]),
        (
            "an eighth apart beyond the capacity",
            &[(0, 1.0), (0, 1.0), (0, 0.2), (0, 0.2), (1, 1.0), (1, 1.0)],
            &[0, 0, 1, 0, 1, 1],
        ),
        ("pulls as well", &[(1, 1.0), (1, 1.0)], &[0, 1]),
    ];
    for (what, loads, expected) in cases {
        let mut situation = situation(&vec![ANYWHERE; loads.len()], loads);
        situation.ask(|credit2, ctx| credit2.balance(ctx, 0));
        assert_eq!(queues(&situation), expected, "{what}");
    }
}

#[test]
fn unit_is_migrateable() {
    let mut situation = situation(&[(&[0, 1], &[]), ANYWHERE], &[(0, 1.0), (0, 1.0)]);
    situation.ask(|credit2, ctx| credit2.balance(ctx, 0));
    assert_eq!(queues(&situation), [0, 1], "the first may run on the first socket only");
}

/// A vCPU that runs moves when it is off its CPU, which is at once.
#[test]
fn migrate() {
    let mut situation = situation(&[ANYWHERE, ANYWHERE], &[(0, 1.0), (0, 1.0)]);
    situation.runs(0, 0, 0, 1);
    let (_, kicked) = situation.ask(|credit2, ctx| credit2.migrate(ctx, TaskId(0), 1));
    assert_eq!((queues(&situation), kicked), (vec![0, 0], vec![0]));
    let previous = Some(TaskId(0));
    let (dispatch, kicked) = situation.ask(|credit2, ctx| credit2.dispatch(ctx, CpuId(0), previous));
    assert_eq!((dispatch.task, kicked), (None, vec![2]), "whatever the rate limit says");
    assert_eq!((queues(&situation), situation.waiting(1)), (vec![1, 0], vec![0]));
}

#[test]
fn csched2_aff_cntl() {
    let mut situation = situation(&[ANYWHERE, ANYWHERE], &[(0, 1.0), (0, 1.0)]);
    situation.waits(0, 0, 1);
    situation.facts[0].hard_affinity = Arc::new(CpuMask::from_cpus(4, [CpuId(3)]));
    let (_, kicked) = situation.ask(|credit2, ctx| credit2.affinity_changed(ctx, TaskId(0)));
    assert_eq!((queues(&situation)[0], kicked), (1, vec![3]));
}
