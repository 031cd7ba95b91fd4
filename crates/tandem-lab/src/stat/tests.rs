//! Accounting against numbers worked out by hand.

use super::*;
use tandem_sim::metrics::{GuestCpuMetrics, HostMetrics, NumaMetrics};
use tandem_sim::times::Times;

const MS: u64 = 1_000_000;

/// A host of 4 pCPUs that ran one VM for 2 s.
fn run() -> RunMetrics {
    let vcpu = TaskMetrics {
        run_ns: 1_500 * MS,
        wait_ns: 100 * MS,
        sleep_ns: 400 * MS,
        preemptions: 200,
        voluntary_switches: 1_300,
        wakeups: 1_300,
        migrations_in_llc: 20,
        migrations_in_node: 3,
        migrations_across_nodes: 7,
        ..TaskMetrics::default()
    };
    let make = TaskMetrics {
        run_ns: 2_400 * MS,
        preemptions: 1_000,
        voluntary_switches: 233_567,
        wakeups: 230_000,
        migrations_in_llc: 4_800,
        ..TaskMetrics::default()
    };
    // A mean of 8_400.
    let delay: Times = [8_000, 8_000, 9_000, 8_600].into_iter().collect();
    let cpu = GuestCpuMetrics {
        busy_ns: 1_200 * MS,
        kernel_ns: 200 * MS,
        pause_exit_ns: 0,
        idle_ns: 500 * MS,
        polled_ns: 0,
        stolen_ns: 100 * MS,
    };
    let program = ProgramMetrics { name: "make".into(), tasks: 12, total: make, delay };
    let once = ProgramMetrics { name: "once".into(), tasks: 1, ..ProgramMetrics::default() };
    RunMetrics {
        length_ns: 2_000 * MS,
        events: 0,
        trace_hash: 0,
        host: HostMetrics {
            pcpus: 4,
            busy_ns: 3_000 * MS,
            idle_ns: 4_000 * MS,
            overhead_ns: 1_000 * MS,
            spin_ns: 100 * MS,
            ..HostMetrics::default()
        },
        vms: vec![VmMetrics {
            name: "dom0-0".into(),
            vcpus: vec![vcpu.clone(), vcpu],
            guest: Some(GuestMetrics {
                cpus: vec![cpu; 2],
                programs: vec![program, once],
                ..GuestMetrics::default()
            }),
            ..VmMetrics::default()
        }],
    }
}

#[test]
fn numbers_worked_by_hand() {
    let stat = RunStat::new(&run());
    let host = &stat.host;
    assert_eq!((host.task_clock_ms, host.cpus_utilized), (3_000.0, 1.5));
    assert_eq!((host.context_switches, host.context_switches_k_per_s), (3_000, Some(1.0)));
    assert_eq!((host.migrations, host.migrations_k_per_s), (60, Some(0.02)));
    assert_eq!((host.steal_pct, host.spin_pct), (Some(5.0), Some(1.25)));
    let guest = stat.vms[0].guest.as_ref().unwrap();
    assert_eq!((guest.kernel.task_clock_ms, guest.kernel.cpus_utilized), (2_400.0, 1.2));
    assert_eq!((guest.kernel.migrations, guest.kernel.migrations_k_per_s), (4_800, Some(2.0)));
    assert_eq!(guest.kernel.steal_pct, Some(5.0));
}

#[test]
fn it_reads_as_perf_does() {
    let text = RunStat::new(&run()).to_string();
    for line in [
        "Accounting of the host:",
        "           3000.00 msec task-clock                   #     1.500 CPUs utilized",
        "             3,000      context-switches             #     1.000 K/sec",
        "                14        across nodes",
        "              5.00 %    steal",
        "              1.25 %    spin",
        "       2.000000000 seconds time elapsed",
        "                   1      1500.000       100.000       400.000       1500         30",
        "Accounting of the guest in dom0-0:",
        "           234,567      context-switches             #    97.736 K/sec",
        "program              tasks    runtime ms  switches   mean us    p50 us    p95 us    p99 us    max us",
        "make                    12      2400.000    234567       8.4       8.0       9.0       9.0       9.0",
        "once                     1         0.000         0         -         -         -         -         -",
    ] {
        assert!(text.lines().any(|printed| printed == line), "`{line}` is missing in\n{text}");
    }
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");
}

#[test]
fn without_guests_there_is_no_steal() {
    let mut run = run();
    run.vms[0].guest = None;
    let stat = RunStat::new(&run);
    assert_eq!(stat.host.steal_pct, None);
    assert!(!stat.to_string().contains("steal"));
}

#[test]
fn vcpus_that_spin_are_counted_if_there_are_any() {
    let mut run = run();
    assert!(!RunStat::new(&run).to_string().contains("pause-loop"));
    run.host.pause_loop = PauseLoopMetrics {
        exits: 12_345,
        candidates: 40_000,
        yields: 10_000,
        failed_running: 2_000,
        failed_under_locks: 500,
    };
    let text = RunStat::new(&run).to_string();
    for line in [
        "            12,345      pause-loop exits",
        "            40,000        candidates",
        "            10,000        directed yields",
        "             2,000        ran already",
        "               500        ran already, locks taken",
    ] {
        assert_eq!(text.lines().filter(|printed| *printed == line).count(), 1, "`{line}` in\n{text}");
    }
}

#[test]
fn numa_balancing_is_shown_if_it_did_anything() {
    let mut run = run();
    assert!(!RunStat::new(&run).to_string().contains("numa"));
    run.host.numa =
        NumaMetrics { numa_hint_faults: 5_000, numa_hint_faults_local: 4_000, numa_pages_migrated: 900 };
    let text = RunStat::new(&run).to_string();
    for line in [
        "             5,000      numa_hint_faults",
        "             4,000      numa_hint_faults_local",
        "               900      numa_pages_migrated",
    ] {
        assert_eq!(text.lines().filter(|printed| *printed == line).count(), 1, "`{line}` in\n{text}");
    }
}

#[test]
fn thousands_are_grouped() {
    for (count, expected) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
        assert_eq!(grouped(count), expected);
    }
}
