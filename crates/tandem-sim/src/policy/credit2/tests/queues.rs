//! Run queues, and which CPU is tickled.

use super::*;

#[test]
fn cpu_add_to_runqueue() {
    // Sockets, cores, threads; who shares; most CPUs; then the queue of each CPU, before 4.14, since, and
    // since 4.16.
    type Case = ((u32, u32, u32), Sharing, u32, [&'static [usize]; 3]);
    const ONE_A_SOCKET: &[usize] = &[0, 0, 0, 0, 1, 1, 1, 1];
    const ONE_A_CORE: &[usize] = &[0, 0, 1, 1, 2, 2, 3, 3];
    const ONE: &[usize] = &[0; 8];
    let cases: [Case; 7] = [
        ((2, 2, 2), Sharing::Socket, 16, [ONE_A_SOCKET; 3]),
        ((2, 2, 2), Sharing::Node, 16, [ONE_A_SOCKET; 3]),
        ((2, 2, 2), Sharing::Core, 16, [ONE_A_CORE; 3]),
        ((2, 2, 2), Sharing::Core, 1, [ONE_A_CORE; 3]),
        ((2, 2, 2), Sharing::Cpu, 16, [&[0, 1, 2, 3, 4, 5, 6, 7]; 3]),
        ((2, 2, 2), Sharing::All, 16, [ONE; 3]),
        ((2, 2, 2), Sharing::All, 4, [ONE, ONE_A_SOCKET, ONE_A_SOCKET]),
    ];
    for (shape, sharing, queue_cpus_max, expected) in cases {
        for release in RELEASES {
            let settings = Credit2Settings { release, sharing, queue_cpus_max, ..settings() };
            let situation = Situation::new(settings, shape, &[ANYWHERE]);
            let found: Vec<usize> = situation.credit2.pcpus.iter().map(|pcpu| pcpu.queue).collect();
            let at = usize::from(release >= Release::Xen4_14) + usize::from(release >= Release::Xen4_17);
            assert_eq!(found, expected[at], "{sharing:?}, at most {queue_cpus_max}, {release:?}");
        }
    }
}

/// Of queues with room, the one with the fewest CPUs gets the next; three threads do not fit beside two.
#[test]
fn cpu_runqueue_siblings_match() {
    let queues_of = |release| {
        let settings = Credit2Settings { release, sharing: Sharing::All, queue_cpus_max: 4, ..settings() };
        let situation = Situation::new(settings, (1, 3, 3), &[ANYWHERE]);
        situation.credit2.pcpus.iter().map(|pcpu| pcpu.queue).collect::<Vec<_>>()
    };
    // 9 CPUs in queues of at most 4 are 3 queues of 3.
    assert_eq!(queues_of(Release::Xen4_14), [0, 0, 0, 1, 1, 1, 2, 2, 2]);
}

#[test]
fn runq_insert() {
    let mut situation = Situation::new(settings(), (1, 1, 1), &[ANYWHERE; 4]);
    for (task, credit) in [(0, 5), (1, 7), (2, 5), (3, -1)] {
        situation.waits(task, 0, credit);
    }
    assert_eq!(situation.waiting(0), [1, 0, 2, 3], "by credit, then in the order of arrival");
}

/// vCPU 0 wakes with 5 ms of credit on CPU 0 of four cores, where vCPU 1 runs; vCPUs 2 to 4 run on the others
/// that do not idle, and have run for long.
#[test]
fn runq_tickle() {
    type Case = (&'static str, Affinities, [Option<i64>; 4], &'static [u32]);
    const MS: i64 = super::MS as i64;
    let cases: [Case; 11] = [
        ("its own if that idles", ANYWHERE, [None, None, None, None], &[0]),
        ("the next that idles", ANYWHERE, [Some(0), Some(0), None, None], &[2]),
        ("one that it prefers", (&[], &[3]), [None, None, None, None], &[3]),
        ("one that it may use if no preferred one idles", (&[], &[3]), [Some(0), None, None, Some(0)], &[1]),
        ("its own if it has more credit", ANYWHERE, [Some(4 * MS), Some(0), Some(0), Some(0)], &[0]),
        ("the one with least credit", ANYWHERE, [Some(5 * MS), Some(3 * MS), Some(MS), Some(2 * MS)], &[2]),
        ("none for equal credit", ANYWHERE, [Some(5 * MS); 4], &[]),
        (
            "none within the resistance",
            ANYWHERE,
            [Some(5 * MS), Some(9 * MS / 2), Some(9 * MS), Some(9 * MS)],
            &[],
        ),
        ("only where it may run", (&[0, 1], &[]), [Some(5 * MS), Some(4 * MS), Some(0), Some(0)], &[1]),
        (
            "a preferred one before one with less credit",
            (&[], &[3]),
            [Some(0), Some(0), Some(0), Some(4 * MS)],
            &[3],
        ),
        (
            "its own before others that it prefers as well",
            (&[], &[0, 3]),
            [Some(4 * MS), Some(0), Some(0), Some(0)],
            &[0],
        ),
    ];
    for (what, affinities, running, expected) in cases {
        let mut all = [ANYWHERE; 5];
        all[0] = affinities;
        let mut situation = Situation::new(settings(), (1, 4, 1), &all);
        for (cpu, credit) in (0..).zip(running) {
            if let Some(credit) = credit {
                situation.runs(cpu + 1, cpu, super::MS, credit);
            }
        }
        situation.vcpu(0).cpu = CpuId(0);
        situation.vcpu(0).credit = 5 * MS;
        assert_eq!(situation.wake(0), expected, "{what}");
        assert_eq!(situation.vcpu(0).tickled_cpu, expected.first().map(|&cpu| CpuId(cpu)), "{what}");
    }
}

/// Two cores of two threads; CPU 1 idles beside the busy CPU 0.
#[test]
fn smt_idle_mask() {
    let mut situation = Situation::new(settings(), (1, 2, 2), &[ANYWHERE; 4]);
    situation.runs(1, 0, MS, 0);
    situation.vcpu(0).cpu = CpuId(1);
    assert_eq!(situation.wake(0), [2], "an idle core before an idle thread");
    assert_eq!(situation.wake(2), [1], "CPU 2 was tickled: its core no longer counts as idle");
    assert_eq!(situation.wake(3), [3], "the last one");
    assert_eq!(situation.dispatch(2, None).0, Some(0));
    assert_eq!(situation.dispatch(1, None).0, Some(2));
    assert_eq!(situation.dispatch(3, None).0, Some(3));
    assert!(situation.credit2.idle.is_empty() && situation.credit2.tickled.is_empty());
}

#[test]
fn is_preemptable() {
    // The limit is 1 ms; the tolerance 50 us.
    for (ratelimit_ns, ran_ns, expected) in
        [(MS, 950 * US, vec![]), (MS, 950 * US + 1, vec![0]), (0, 0, vec![0])]
    {
        let settings = Credit2Settings { ratelimit_ns, ..settings() };
        let mut situation = Situation::new(settings, (1, 1, 1), &[ANYWHERE; 2]);
        situation.runs(1, 0, ran_ns, 0);
        assert_eq!(situation.wake(0), expected, "{ran_ns} ns");
    }
}

#[test]
fn tickle_score_counts_both_affinities() {
    // vCPU 0 may preempt on CPU 1, where vCPU 1 prefers to be, or on CPU 2, where vCPU 2 does not.
    let affinities: [Affinities; 4] = [(&[1, 2], &[]), (&[], &[1]), (&[], &[0]), ANYWHERE];
    let mut situation = Situation::new(settings(), (1, 3, 1), &affinities);
    situation.runs(3, 0, MS, 0);
    situation.runs(1, 1, MS, 0);
    situation.runs(2, 2, MS, 8 * MS as i64);
    situation.vcpu(0).cpu = CpuId(0);
    assert_eq!(situation.wake(0), [2], "8 ms of credit count less than an affinity");
}
