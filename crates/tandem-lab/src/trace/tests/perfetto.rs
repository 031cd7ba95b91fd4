//! Traces, decoded with Perfetto's own definitions, which `scripts/setup perfetto` installs.

use super::fixture;
use crate::trace::{PerfettoTrace, Selection, TracedRun};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tandem_sim::metrics::RunMetrics;
use tandem_sim::run_observed;

/// A packet. Python's JSON has 64-bit numbers as strings.
#[derive(Deserialize)]
struct Packet {
    timestamp: Option<String>,
    trusted_packet_sequence_id: u32,
    sequence_flags: Option<u32>,
    track_descriptor: Option<Descriptor>,
    track_event: Option<TrackEvent>,
    #[serde(default)]
    interned_data: Interned,
}

#[derive(Clone, Deserialize)]
struct Descriptor {
    uuid: String,
    name: String,
    parent_uuid: Option<String>,
    child_ordering: Option<String>,
    sibling_order_rank: Option<u32>,
}

#[derive(Deserialize)]
struct TrackEvent {
    r#type: String,
    track_uuid: String,
    name_iid: Option<String>,
    #[serde(default)]
    flow_ids: Vec<String>,
    #[serde(default)]
    terminating_flow_ids: Vec<String>,
    #[serde(default)]
    debug_annotations: Vec<Annotation>,
}

#[derive(Deserialize)]
struct Annotation {
    name_iid: String,
    uint_value: Option<String>,
    string_value: Option<String>,
}

#[derive(Default, Deserialize)]
struct Interned {
    #[serde(default)]
    event_names: Vec<Name>,
    #[serde(default)]
    debug_annotation_names: Vec<Name>,
}

#[derive(Deserialize)]
struct Name {
    iid: String,
    name: String,
}

/// A decoded trace that follows the rules of the format.
struct Trace {
    /// By uuid, with those of whole hosts and VMs.
    tracks: BTreeMap<String, Descriptor>,
    slices: Vec<Slice>,
    /// Where wake-ups are: track and time, by flow.
    wakes: BTreeMap<String, (String, u64)>,
}

struct Slice {
    track: String,
    name: String,
    from_ns: u64,
    to_ns: u64,
    ended_flow: Option<String>,
    notes: BTreeMap<String, String>,
}

fn decode(trace: &[u8]) -> Vec<Packet> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let definitions: PathBuf = root.join(".tools/perfetto");
    assert!(definitions.is_dir(), "Perfetto's definitions are needed: run `scripts/setup perfetto`");
    let mut decoder = Command::new("python3")
        .arg(root.join("crates/tandem-lab/src/trace/tests/decode.py"))
        .env("PYTHONPATH", definitions)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 starts");
    // The decoder reads all its input before it prints.
    decoder.stdin.take().unwrap().write_all(trace).unwrap();
    let output = decoder.wait_with_output().unwrap();
    assert!(output.status.success(), "the trace cannot be decoded");
    serde_json::from_slice(&output.stdout).unwrap()
}

impl Trace {
    /// Decodes a trace and checks it: names and tracks are defined before they are used, time does not go
    /// back, slices on a track do not overlap and all end, and each arrow that ends began exactly once
    /// before.
    fn checked(bytes: &[u8]) -> Self {
        let mut trace = Self { tracks: BTreeMap::new(), slices: Vec::new(), wakes: BTreeMap::new() };
        let (mut event_names, mut note_names) = (BTreeMap::new(), BTreeMap::new());
        let mut open: BTreeMap<String, Slice> = BTreeMap::new();
        let mut ended_flows = BTreeSet::new();
        let mut now_ns = 0;
        for (at, packet) in decode(bytes).into_iter().enumerate() {
            assert_eq!(packet.trusted_packet_sequence_id, 1);
            assert_eq!(packet.sequence_flags == Some(1), at == 0, "numbering begins with the first packet");
            event_names
                .extend(packet.interned_data.event_names.into_iter().map(|name| (name.iid, name.name)));
            let names = packet.interned_data.debug_annotation_names;
            note_names.extend(names.into_iter().map(|name| (name.iid, name.name)));
            if let Some(track) = packet.track_descriptor {
                trace.add_track(track);
            }
            let Some(event) = packet.track_event else { continue };
            assert_eq!(packet.sequence_flags, Some(2), "names are meant by number");
            let at_ns: u64 = packet.timestamp.unwrap().parse().unwrap();
            assert!(at_ns >= now_ns, "{at_ns} comes after {now_ns}");
            now_ns = at_ns;
            assert!(trace.tracks[&event.track_uuid].parent_uuid.is_some(), "events are on tracks of CPUs");
            let mut notes: BTreeMap<_, _> = event
                .debug_annotations
                .into_iter()
                .map(|note| {
                    (note_names[&note.name_iid].clone(), note.uint_value.or(note.string_value).unwrap())
                })
                .collect();
            let name = event.name_iid.map(|iid| event_names[&iid].clone());
            match event.r#type.as_str() {
                "TYPE_SLICE_BEGIN" => {
                    let mut flows = event.terminating_flow_ids;
                    let ended_flow = flows.pop();
                    assert!(flows.is_empty(), "one wake-up leads to a slice");
                    if let Some(flow) = &ended_flow {
                        assert!(trace.wakes.contains_key(flow), "arrow {flow} ends, but did not begin");
                        assert!(ended_flows.insert(flow.clone()), "arrow {flow} ends twice");
                    }
                    let track = event.track_uuid.clone();
                    let slice =
                        Slice { track, name: name.unwrap(), from_ns: at_ns, to_ns: at_ns, ended_flow, notes };
                    let before = open.insert(event.track_uuid, slice);
                    assert!(before.is_none(), "two slices at {at_ns}");
                }
                "TYPE_SLICE_END" => {
                    let mut slice = open.remove(&event.track_uuid).expect("a slice that ends began");
                    slice.to_ns = at_ns;
                    slice.notes.append(&mut notes);
                    trace.slices.push(slice);
                }
                "TYPE_INSTANT" => {
                    assert_eq!(name.as_deref(), Some("wake"));
                    for flow in event.flow_ids {
                        let before = trace.wakes.insert(flow, (event.track_uuid.clone(), at_ns));
                        assert!(before.is_none(), "an arrow begins once");
                    }
                }
                other => panic!("{other}"),
            }
        }
        assert!(open.is_empty(), "every slice ends");
        trace
    }

    fn add_track(&mut self, track: Descriptor) {
        if let Some(parent) = &track.parent_uuid {
            let parent = &self.tracks[parent];
            assert_eq!(parent.child_ordering.as_deref(), Some("EXPLICIT"));
            assert!(track.sibling_order_rank.is_some());
        }
        let before = self.tracks.insert(track.uuid.clone(), track);
        assert!(before.is_none(), "a track has its number for itself");
    }

    /// The name of a track after that of its parent.
    fn path(&self, uuid: &str) -> String {
        let track = &self.tracks[uuid];
        match &track.parent_uuid {
            Some(parent) => format!("{} / {}", self.path(parent), track.name),
            None => track.name.clone(),
        }
    }

    fn paths(&self) -> BTreeSet<String> {
        self.tracks.keys().map(|uuid| self.path(uuid)).collect()
    }
}

fn played() -> Trace {
    let scenario = fixture::scenario();
    let mut trace = PerfettoTrace::new(
        Vec::new(),
        TracedRun {
            scenario_name: "two.toml",
            scenario: &scenario,
            seed: 7,
            selection: &Selection::default(),
        },
    )
    .unwrap();
    fixture::play(&mut trace);
    Trace::checked(&trace.finish(fixture::END_NS).unwrap())
}

#[test]
fn cpus_are_nested_under_their_host_or_vm() {
    let trace = played();
    let expected = [
        "VM plain",
        "VM plain / vCPU 0",
        "VM web",
        "VM web / vCPU 0",
        "VM web / vCPU 1",
        "host 1x2x1",
        "host 1x2x1 / CPU 0",
        "host 1x2x1 / CPU 1",
    ];
    assert_eq!(trace.paths(), expected.map(str::to_owned).into());
}

#[test]
fn both_levels_are_seen() {
    let trace = played();
    let slices: Vec<_> = trace
        .slices
        .iter()
        .map(|slice| {
            format!("{}: {} {}-{}", trace.path(&slice.track), slice.name, slice.from_ns, slice.to_ns)
        })
        .collect();
    for expected in [
        "host 1x2x1 / CPU 1: web/vcpu0 100-300",
        "VM web / vCPU 0: sh 110-300",
        "host 1x2x1 / CPU 1: plain/vcpu0 300-400",
        "VM plain / vCPU 0: on CPU 1 300-400",
        "VM web / vCPU 0: sh 400-700",
        "VM web / vCPU 1: cc 220-500",
        "VM web / vCPU 1: as 500-600",
        "VM web / vCPU 0: ld 800-1000",
    ] {
        assert!(slices.iter().any(|slice| slice == expected), "no {expected} in {slices:#?}");
    }
}

#[test]
fn slices_tell_where_from_and_why_not_longer() {
    let trace = played();
    let notes = |name: &str, from_ns: u64| {
        let slice = trace.slices.iter().find(|slice| (slice.name.as_str(), slice.from_ns) == (name, from_ns));
        slice.unwrap().notes.clone()
    };
    let expect = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    };
    assert_eq!(notes("as", 700), expect(&[("came_from_cpu", "1"), ("pcpu", "1"), ("end", "exited")]));
    assert_eq!(notes("sh", 110), expect(&[("pcpu", "1"), ("end", "the vCPU left its pCPU")]));
    assert_eq!(notes("plain/vcpu0", 300), expect(&[("came_from_cpu", "0"), ("end", "blocked")]));
}

#[test]
fn an_arrow_leads_from_the_waker_to_the_woken() {
    let trace = played();
    let cc = trace.slices.iter().find(|slice| slice.name == "cc").unwrap();
    let (track, at_ns) = &trace.wakes[cc.ended_flow.as_ref().unwrap()];
    assert_eq!((trace.path(track).as_str(), *at_ns), ("VM web / vCPU 0", 200));
}

/// Runs a scenario of VMs that compute, serve and build on a host that is too small for them, and traces it.
fn mixed_run() -> (RunMetrics, Trace) {
    let scenario = fixture::mixed();
    let run = TracedRun {
        scenario_name: "mixed.toml",
        scenario: &scenario,
        seed: 3,
        selection: &Selection::default(),
    };
    let mut writer = PerfettoTrace::new(Vec::new(), run).unwrap();
    let metrics = run_observed(&scenario, run.seed, &mut writer).unwrap();
    let trace = Trace::checked(&writer.finish(metrics.length_ns).unwrap());
    (metrics, trace)
}

/// Compares the slices of a run with the metrics of the run.
#[test]
fn slices_are_as_long_as_the_run_says() {
    let (metrics, trace) = mixed_run();
    assert_eq!(trace.paths().len(), 1 + 16 + 5 + 24, "the host, its pCPUs, the VMs, their vCPUs");
    let time_ns = |is_meant: &dyn Fn(&Slice) -> bool| -> u64 {
        trace.slices.iter().filter(|slice| is_meant(slice)).map(|slice| slice.to_ns - slice.from_ns).sum()
    };
    let mut migrations = 0;
    for vm in &metrics.vms {
        for (vcpu, measured) in vm.vcpus.iter().enumerate() {
            let name = format!("{}/vcpu{vcpu}", vm.name);
            let own_track = format!("VM {} / vCPU {vcpu}", vm.name);
            let on_pcpus_ns = time_ns(&|slice| slice.name == name);
            let inside_ns = time_ns(&|slice| trace.path(&slice.track) == own_track);
            // Slices include the kernels' own code. A vCPU may run nothing but the guest's kernel.
            assert!(on_pcpus_ns >= measured.run_ns, "{name}: {on_pcpus_ns} and {}", measured.run_ns);
            match &vm.guest {
                None => assert_eq!(inside_ns, on_pcpus_ns, "{name}"),
                Some(guest) => {
                    assert!(inside_ns >= guest.cpus[vcpu].busy_ns, "{name}: {inside_ns}");
                    assert!(inside_ns <= on_pcpus_ns, "{name}: {inside_ns} and {on_pcpus_ns}");
                }
            }
            migrations += measured.migrations_in_llc + measured.migrations_in_node;
            migrations += measured.migrations_across_nodes;
        }
    }
    let of_host = |slice: &&Slice| trace.path(&slice.track).starts_with("host ");
    let moved = trace.slices.iter().filter(of_host).filter(|slice| slice.notes.contains_key("came_from_cpu"));
    let moved = moved.count() as u64;
    // In the metrics, a vCPU that first runs on another pCPU than it was assigned at its start has moved as
    // well.
    let vcpus = metrics.vms.iter().map(|vm| vm.vcpus.len() as u64).sum::<u64>();
    assert!(moved > vcpus && (moved..=moved + vcpus).contains(&migrations), "{moved} and {migrations}");
}

#[test]
fn a_slice_of_a_guest_lies_within_one_of_its_vcpu() {
    let (_, trace) = mixed_run();
    let tracks: BTreeMap<_, _> = trace.tracks.keys().map(|uuid| (uuid.as_str(), trace.path(uuid))).collect();
    let mut resumed = 0;
    for slice in &trace.slices {
        let Some(vcpu) = tracks[slice.track.as_str()].strip_prefix("VM builder-") else { continue };
        let vcpu = format!("builder-{}", vcpu.replace(" / vCPU ", "/vcpu"));
        let pcpu = format!("CPU {}", slice.notes["pcpu"]);
        let below = trace.slices.iter().filter(|below| {
            below.name == vcpu
                && below.from_ns <= slice.from_ns
                && slice.to_ns <= below.to_ns
                && trace.tracks[&below.track].name == pcpu
        });
        assert_eq!(below.count(), 1, "{} at {} on {vcpu}", slice.name, slice.from_ns);
        resumed += u32::from(slice.notes["end"] == "the vCPU left its pCPU");
    }
    assert!(resumed > 0, "the host took vCPUs away from under tasks");
    for name in ["make", "cc", "as"] {
        assert!(trace.slices.iter().any(|slice| slice.name == name), "{name} ran");
    }
}

#[test]
fn arrows_connect_tasks_of_a_level() {
    let (_, trace) = mixed_run();
    let mut across_vcpus = 0;
    for slice in &trace.slices {
        let Some(flow) = &slice.ended_flow else { continue };
        let (from, at_ns) = &trace.wakes[flow];
        assert!(*at_ns <= slice.from_ns);
        assert_eq!(trace.tracks[from].parent_uuid, trace.tracks[&slice.track].parent_uuid);
        across_vcpus += u32::from(slice.name == "cc" && *from != slice.track);
    }
    assert!(across_vcpus > 0, "children were put on other vCPUs");
}
