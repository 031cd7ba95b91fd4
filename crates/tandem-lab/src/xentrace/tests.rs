use super::*;
use proptest::prelude::*;
use tandem_sim::program::{Amount, Op};

const A: VcpuKey = VcpuKey { domain: 1, vcpu: 0 };
const B: VcpuKey = VcpuKey { domain: 2, vcpu: 1 };

/// Encodes one record.
fn record(event: u32, stamp: Option<u64>, words: &[u32]) -> Vec<u8> {
    let header = event | (words.len() as u32) << 28 | u32::from(stamp.is_some()) << 31;
    let mut bytes = header.to_le_bytes().to_vec();
    bytes.extend(stamp.iter().flat_map(|stamp| stamp.to_le_bytes()));
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    bytes
}

fn on_pcpu(pcpu: u32) -> Vec<u8> {
    record(0x1f003, None, &[pcpu, 0])
}

fn wake(time: u64, vcpu: VcpuKey) -> Vec<u8> {
    record(0x28004, Some(time), &[vcpu.domain, vcpu.vcpu])
}

fn block(time: u64, vcpu: VcpuKey) -> Vec<u8> {
    record(0x28006, Some(time), &[vcpu.domain, vcpu.vcpu])
}

fn go_on(time: u64, vcpu: VcpuKey) -> Vec<u8> {
    record(0x28011, Some(time), &[vcpu.domain, vcpu.vcpu, 0, 0])
}

/// A switch: the three records that Xen writes.
fn switch(time: u64, from: VcpuKey, ran_ns: u32, to: VcpuKey) -> Vec<u8> {
    [
        record(0x2800e, Some(time), &[from.domain, from.vcpu, ran_ns]),
        record(0x2800f, Some(time), &[to.domain, to.vcpu, 0, 0]),
        record(0x2800a, Some(time), &[from.domain, from.vcpu, to.domain, to.vcpu]),
    ]
    .concat()
}

fn history(records: &[Vec<u8>]) -> History {
    History::of(&read_trace(&records.concat()))
}

fn burst(wake_ns: u64, run_ns: u64, block_ns: Option<u64>) -> Burst {
    Burst { wake_ns, run_ns, block_ns }
}

#[test]
fn follows_a_burner_and_a_sleeper_through_preemption_and_sleep() {
    let history = history(&[
        on_pcpu(4),
        wake(1_000, B),
        switch(1_010, A, 5_000, B),
        block(1_400, B),
        switch(1_410, B, 398, A),
        wake(2_000, B),
        switch(2_400, A, 989, B),
        wake(2_500, A),
    ]);
    assert_eq!(history.length_ns, 1_500);
    let a = &history.vcpus[&A];
    assert_eq!(a.bursts, [burst(0, 10 + 989, None)]);
    let run = |start_ns, run_ns, end| Run { pcpu: 4, start_ns, run_ns, end };
    assert_eq!(a.runs, [run(None, 10, RunEnd::Preempted), run(Some(410), 989, RunEnd::Preempted)]);
    let b = &history.vcpus[&B];
    assert_eq!(b.bursts, [burst(0, 398, Some(400)), burst(1_000, 100, None)]);
    assert_eq!(b.runs, [run(Some(10), 398, RunEnd::Blocked), run(Some(1_400), 100, RunEnd::TraceEnd)]);
}

#[test]
fn a_block_that_is_taken_back_ends_no_burst() {
    let start = [on_pcpu(0), wake(0, A), wake(100, B), switch(100, A, 100, B), block(200, B)];
    for taken_back in [wake(210, B), go_on(220, B)] {
        let mut records = start.to_vec();
        records.extend([taken_back, switch(400, B, 300, A)]);
        let b = &history(&records).vcpus[&B];
        assert_eq!(b.bursts, [burst(100, 300, None)]);
        assert_eq!(b.runs[0].end, RunEnd::Preempted);
    }
}

#[test]
fn a_vcpu_that_only_goes_on_ran_all_the_time() {
    let history = history(&[on_pcpu(5), wake(0, B), go_on(30, A), wake(60, B)]);
    assert_eq!(history.vcpus[&A].bursts, [burst(0, 60, None)]);
    assert_eq!(history.vcpus[&A].runs[0].pcpu, 5);
}

#[test]
fn merges_the_buffers_of_pcpus_in_time_order() {
    let trace = read_trace(&[on_pcpu(1), wake(30, A), on_pcpu(0), wake(10, B), wake(20, B)].concat());
    let order: Vec<_> = trace.events.iter().map(|event| (event.time_ns, event.pcpu)).collect();
    assert_eq!(order, [(0, 0), (10, 0), (20, 1)]);
}

#[test]
fn the_rate_limit_names_domain_and_vcpu_in_one_word() {
    let trace = read_trace(&[on_pcpu(4), record(0x2200a, Some(5), &[2 << 16 | 1, 90])].concat());
    assert_eq!(trace.events[0].kind, EventKind::RateLimited(B));
}

#[test]
fn reports_what_is_lost_and_cut_off() {
    let mut bytes = [on_pcpu(0), wake(10, A), record(0x1f001, Some(12), &[7, 0, 0, 0])].concat();
    bytes.extend(&wake(20, A)[..9]);
    let trace = read_trace(&bytes);
    assert_eq!((trace.lost_records, trace.incomplete_bytes, trace.events.len()), (7, 9, 1));
}

#[test]
fn summarises_preempted_runs_and_rate_limit() {
    let trace = read_trace(
        &[
            on_pcpu(4),
            wake(0, B),
            switch(10, A, 10, B),
            block(400, B),
            switch(410, B, 390, A),
            wake(500, B),
            record(0x2200a, Some(500), &[1 << 16, 90]),
            go_on(500, A),
            switch(1_410, A, 1_000, B),
        ]
        .concat(),
    );
    let summary = Summary::of(&trace, &History::of(&trace));
    assert_eq!((summary.switches, summary.rate_limited), (3, 1));
    let a = &summary.vcpus[0];
    assert_eq!((a.domain, a.vcpu, a.preemptions, a.runs), (1, 0, 2, 2));
    assert_eq!(a.preempted_run_min_ns, Some(1_000));
    assert_eq!(a.pcpus, [4]);
    assert_eq!(summary.vcpus[1].burst_p50_ns, None, "the first burst began with the trace");
    assert_eq!(summary.vcpus[1].wake_latency_ns, Some(910), "the first wake-up began with the trace, too");
}

#[test]
fn replays_bursts_and_sleeps_and_goes_on_after_the_last() {
    let bursts = Bursts::from([(A, vec![burst(3, 7, Some(12)), burst(20, 5, None)])]);
    let [(vcpu, program)] = &replay_programs(&bursts, |_| 100)[..] else {
        panic!("one program for one vCPU");
    };
    assert_eq!(*vcpu, A);
    let compute = |work_ns| Op::Compute { work: Amount::Fixed(work_ns), profile: None };
    let for_ever = Op::Repeat { times: None, body: vec![compute(1_000_000_000)] };
    let sleep = |time_ns| Op::Sleep(Amount::Fixed(time_ns));
    let ops = [sleep(103), compute(7), sleep(108), for_ever];
    assert_eq!(program.ops, ops);
}

#[test]
fn a_wrong_line_is_named() {
    let text = "domain,vcpu,wake_ns,run_ns,block_ns\n1,0,0,5,9\n1,0,x,5,9\n";
    let error = read_bursts(text.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("line: 3"), "{error}");
}

/// Runs everything on a raw trace, and checks what must hold for any.
fn check(bytes: &[u8]) -> Result<(), TestCaseError> {
    let trace = read_trace(bytes);
    let history = History::of(&trace);
    let summary = Summary::of(&trace, &history);
    prop_assert_eq!(summary.vcpus.len(), history.vcpus.len());
    for vcpu in history.vcpus.values() {
        prop_assert!(vcpu.bursts.is_sorted_by_key(|burst| burst.wake_ns));
        prop_assert!(vcpu.runs.iter().all(|run| run.run_ns <= history.length_ns));
        let open = vcpu.bursts.iter().position(|burst| burst.block_ns.is_none());
        prop_assert!(open.is_none_or(|at| at == vcpu.bursts.len() - 1));
    }
    let bursts = Bursts::from(&history);
    let mut file = Vec::new();
    write_bursts(&bursts, &mut file).unwrap();
    let not_empty = bursts.into_iter().filter(|(_, bursts)| !bursts.is_empty()).collect::<Bursts>();
    prop_assert_eq!(&read_bursts(&file[..]).unwrap(), &not_empty);
    prop_assert_eq!(replay_programs(&not_empty, |_| 0).len(), not_empty.len());
    Ok(())
}

/// Records with events that are read, in any order and of any length.
fn records() -> impl Strategy<Value = Vec<u8>> {
    let events = [0x1f001, 0x1f002, 0x1f003, 0x2200a, 0x28004, 0x28006, 0x2800a, 0x2800e, 0x2800f, 0x28011];
    let word = prop_oneof![0u32..3, any::<u32>()];
    let stamp = prop_oneof![(0u64..10_000).prop_map(Some), any::<Option<u64>>()];
    let record = (prop::sample::select(events.to_vec()), stamp, prop::collection::vec(word, 0..8))
        .prop_map(|(event, stamp, words)| record(event, stamp, &words));
    prop::collection::vec(record, 0..60).prop_map(|records| records.concat())
}

proptest! {
    #[test]
    fn takes_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        check(&bytes)?;
    }

    #[test]
    fn takes_any_records(bytes in records(), cut in 0usize..40) {
        check(&bytes[..bytes.len().saturating_sub(cut)])?;
    }
}
