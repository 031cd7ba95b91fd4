//! What is drawn of a machine in which everything is known, and what keys do.

use super::column::Column;
use super::draw::draw;
use super::sample::{CpuSample, MachineSample, NodeSample, Sample, SchedulerSample};
use super::state::{KeyAction, State, View};
use crate::vms::tests::tree;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::json;
use std::os::unix::net::UnixListener;
use std::time::{Duration, SystemTime};
use tandem_host::cpu_time::CpuTimes;
use tandem_host::topology::read_sysfs;
use tandem_host::vms::homes_file::{HomeEntry, HomesFile, VERSION};
use tandem_host::vms::testing::{Process, Tree};
use tandem_host::vms::{Finder, Vm};
use tandem_settings::{Counters, Held, Mode, Place, Preference};
use tandemd::observe::{Observation, Reports};

/// VMs `web`, `db` and `mail` on two nodes of four CPUs, with a last-level cache for each two.
fn sample() -> Sample {
    sample_of(false)
}

/// The same; `are_planned`: an agent observes, and no scheduler is loaded.
fn sample_of(are_planned: bool) -> Sample {
    let (_folder, tree) = tree();
    tree.process(&Process::libvirt(5000, "db", 4));
    let mut finder = Finder::new(tree.root());
    finder.scan().unwrap();
    let mut vms: Vec<&Vm> = finder.vms().collect();
    vms.sort_by_key(|vm| vm.identity);
    let home = |vm: &&Vm| HomeEntry {
        identity: vm.identity,
        name: vm.name.clone(),
        home: vec![1],
        why: "most free memory".into(),
        parts: Vec::new(),
        saving: None,
        cores: None,
    };
    let file = HomesFile {
        version: VERSION,
        written_unix_s: 0,
        are_planned,
        vms: vms.iter().map(home).take(2).collect(),
    };
    file.write(tree.root()).unwrap();
    // Who observes is there.
    let _socket = UnixListener::bind(tree.root().join("run/tandem/tandem.sock")).unwrap();
    let machine = read_sysfs(tree.root()).unwrap();
    let mut observed = Observation::make(tree.root(), &machine, &vms, Duration::ZERO, Reports::new);
    observed.interval = Duration::from_secs(1);
    observed.notes.clear();
    for (vm, busy_pct) in observed.vms.iter_mut().zip([5, 180, 60]) {
        vm.usage.run_ns = busy_pct * 10_000_000;
        vm.usage.steal_ns = Some(busy_pct * 1_000_000);
        vm.usage.vcpu_run_ns_by_node = [(0, 10), (1, 90)].into();
    }
    let migrations = observed.vms.iter().map(|vm| (vm.vm.identity, 12.0)).collect();
    let busy = |busy| CpuSample { busy, stolen: 0.0 };
    let node = |number, shares: [f64; 4]| NodeSample {
        number,
        llcs: shares.chunks(2).map(|shares| shares.iter().copied().map(busy).collect()).collect(),
        free_bytes: 12 << 30,
    };
    Sample {
        machine: MachineSample { nodes: vec![node(0, [1.0, 0.5, 0.0, 0.25]), node(1, [1.0; 4])] },
        scheduler: match are_planned {
            false => Ok(scheduler()),
            true => Err("the scheduler is not loaded; `tandem run` loads it".into()),
        },
        vms: observed,
        vm_migrations: migrations,
        thread_migrations: [(4713, 3.0)].into(),
        preferences: [(4713, held())].into(),
    }
}

fn held() -> Held {
    let place = Some(Place::Nodes { nodes: vec![1], cpus: vec![4, 5, 6, 7] });
    let preference = Preference { place, latency_critical: false };
    Held { preference, by_agent: true, home_ns: 97, away_ns: 3 }
}

/// What a scheduler of some busy VMs counts in two seconds.
fn scheduler() -> SchedulerSample {
    const COUNTED: [(&str, u64); 16] = [
        ("wake_idle", 19_800),
        ("wake_queued", 4_400),
        ("wake_stay", 400),
        ("preempted", 840),
        ("soft_preferred", 9_500),
        ("soft_rest", 200),
        ("soft_waited", 250),
        ("soft_whole", 50),
        ("soft_returned", 60),
        ("stolen_near", 620),
        ("stolen_far", 24),
        ("balanced", 10),
        ("yields", 8),
        ("yield_to", 640),
        ("yield_to_honoured", 582),
        ("ratelimit_delayed", 62),
    ];
    let value = |name| COUNTED.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value);
    let named: Vec<_> = Counters::names().map(|name| (name, value(name))).collect();
    let counters: Counters = serde_json::from_value(json!(named)).unwrap();
    SchedulerSample {
        mode: Mode::Host,
        since: SystemTime::now() - Duration::from_secs(3_700),
        counted: Some((counters, Duration::from_secs(2))),
    }
}

fn state() -> State {
    let mut state = State::new(Column::Cpu, String::new());
    state.take(sample());
    state
}

/// What a terminal of that size shows; without the spaces at the ends of lines.
fn drawn(state: &mut State, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state)).unwrap();
    let buffer = terminal.backend().buffer();
    let lines = buffer.content.chunks(width.into()).map(|line| {
        let line: String = line.iter().map(|cell| cell.symbol()).collect();
        line.trim_end().to_owned() + "\n"
    });
    lines.collect()
}

fn press(state: &mut State, keys: &str) -> KeyAction {
    let code = |key| match key {
        '\n' => KeyCode::Enter,
        '\u{1b}' => KeyCode::Esc,
        '↓' => KeyCode::Down,
        '→' => KeyCode::Right,
        key => KeyCode::Char(key),
    };
    let mut action = KeyAction::Draw;
    for key in keys.chars() {
        action = state.press(KeyEvent::new(code(key), KeyModifiers::NONE));
    }
    action
}

#[test]
fn all_of_it_fits_80_columns() {
    let expected = "\
tandem: host mode for 1 h 1 min   3 VMs with 7 vCPUs             8 CPUs 72% busy
node 0 █████████░░░░░░░░░░░  44% of   4 CPUs   12G free  LLCs █▄ 75%   ▂ 12%
node 1 ████████████████████ 100% of   4 CPUs   12G free  LLCs ██ 100% ██ 100%
wake-ups      12.3k/s: 80% to idle CPUs, 18% queued, 1.6% stay; 420/s preempt
preferences   5000/s: 95% at home, 2.5% wait for it, 2.5% elsewhere; 30/s return
migrations    310/s in the node, 12/s between nodes, 5.0/s to shorter queues
yields        4.0/s plain; 320/s to a vCPU, 91% honoured
rate control  0/s windows limited; preemptions: 0/s refused, 31/s delayed
NAME     BY       VCPU   CPU▼  WAIT  STEAL  LOCAL  HOME  MIGR/s    MEMORY  NODE
web      libvirt     2   180%    0%   9.0%    90%     1      12     1G/4G 1:90%
db       libvirt     4    60%    0%   1.5%      -     -      12     1G/4G     ?
mail     proxmox     1   5.0%    0%   0.5%    90%     1      12     1G/4G     ?

↑↓ select  ⏎ detail  <> sort  r reverse  / filter  space pause  ? help  q quit
";
    assert_eq!(drawn(&mut state(), 80, 14), expected);
}

#[test]
fn wider_terminals_show_more() {
    let text = drawn(&mut state(), 200, 12);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[3].starts_with("wake-ups      12.3k/s") && lines[3].ends_with("30/s return"), "{text}");
    assert!(lines[6].starts_with("NAME     BY          PID  VCPU"), "{text}");
    assert!(lines[6].contains("TREND") && lines[6].ends_with("WHY"), "{text}");
    assert!(lines[7].ends_with("▇ most free memory"), "{text}");
}

#[test]
fn no_size_is_too_small() {
    for (width, height) in [(1, 1), (40, 8), (41, 30), (60, 9), (79, 12), (160, 8), (400, 100)] {
        for keys in ["", "\n", "?", "/x", "/zz\n"] {
            let mut state = state();
            press(&mut state, keys);
            let text = drawn(&mut state, width, height);
            assert!(!text.trim().is_empty(), "{width} x {height} after {keys:?}");
        }
    }
    assert_eq!(drawn(&mut state(), 39, 24).trim_end(), "tandem top needs 40 x 8");
}

#[test]
fn one_vm_is_shown_with_its_threads() {
    let mut state = state();
    press(&mut state, "\n");
    assert_eq!(state.wanted_detail(), Some(state.sample.as_ref().unwrap().vms.vms[1].vm.identity));
    let text = drawn(&mut state, 80, 24);
    for line in [
        "started  by libvirt; qemu, process 4711\n",
        "home     node 1: most free memory\n",
        "usage    in 1.0 s: CPU 180%, wait 0%, steal 9.0%; 90% of its vCPUs' time at home\n",
        "    TID NAME            KIND        RUN  WAIT  CPU MIGR/s PREFERS, MAY USE\n",
        "   4713 CPU 0/KVM       vCPU 0       0%    0%    0    3.0 nodes 1: 97% there\n",
        "   4714 CPU 1/KVM       vCPU 1       0%    0%    0      ?\n",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    press(&mut state, "\u{1b}");
    assert_eq!((state.view, state.wanted_detail()), (View::List, None));
}

#[test]
fn a_vm_that_has_ended_is_told_in_its_detail() {
    let mut state = state();
    press(&mut state, "\n");
    let mut later = sample();
    later.vms.vms.clear();
    state.take(later);
    assert!(drawn(&mut state, 80, 24).contains("\nthe virtual machine has ended\n"));
    press(&mut state, "\u{1b}");
    assert!(drawn(&mut state, 80, 24).contains("\nno virtual machines are running\n"));
}

#[test]
fn without_the_scheduler_it_says_why() {
    let mut state = state();
    let sample = state.sample.as_mut().unwrap();
    sample.scheduler = Err("the scheduler is not loaded; `tandem run` loads it".into());
    sample.vms.notes = vec!["something cannot be read".into(), "and something else".into()];
    let text = drawn(&mut state, 80, 24);
    assert!(text.starts_with("tandem: 3 VMs with 7 vCPUs "), "{text}");
    assert!(text.contains("\nthe scheduler is not loaded; `tandem run` loads it\nNAME"), "{text}");
    assert!(text.contains("\nsomething cannot be read (and 1 more: `tandem vms`)\n"), "{text}");
}

#[test]
fn many_nodes_are_folded() {
    let mut state = state();
    let nodes = &mut state.sample.as_mut().unwrap().machine.nodes;
    let cpu = CpuSample { busy: 0.5, stolen: 0.1 };
    *nodes = (0..16)
        .map(|number| NodeSample { number, llcs: vec![vec![cpu; 8]; 4], free_bytes: 1 << 30 })
        .collect();
    let text = drawn(&mut state, 80, 24);
    assert!(
        text.contains("\nnode 4  ██████████░░░░░░░░░░  50% of  32 CPUs    1G free 10% stolen  LLCs ▄▄▄▄\n"),
        "{text}"
    );
    assert!(text.contains("\nand 11 more nodes, 50% busy\nwake-ups"), "{text}");
    let wide = drawn(&mut state, 200, 50);
    assert!(wide.contains("\nnode 14 ") && !wide.contains("more nodes"), "{wide}");
}

#[test]
fn keys_sort_filter_and_select() {
    let names = |state: &State| -> Vec<String> { state.rows().iter().map(|vm| vm.vm.name.clone()).collect() };
    let mut state = state();
    assert_eq!(names(&state), ["web", "db", "mail"]);
    press(&mut state, "r");
    assert_eq!(names(&state), ["mail", "db", "web"]);
    press(&mut state, "→→→");
    assert_eq!(
        (state.sorted_by, names(&state)),
        (Column::Local, vec!["mail".into(), "web".into(), "db".into()])
    );
    press(&mut state, "<");
    assert_eq!(state.sorted_by, Column::Steal);

    press(&mut state, "↓↓↓↓");
    let rows = state.rows();
    let selected = state.selected_row(&rows);
    assert_eq!((selected, rows[selected].vm.name.as_str()), (2, "mail"), "there are no more");
    press(&mut state, "r");
    assert_eq!(state.selected_row(&state.rows()), 0, "it is the first one now");

    press(&mut state, "/LIBq");
    assert_eq!((state.filter.as_str(), state.view), ("LIBq", View::Filter));
    assert!(drawn(&mut state, 80, 24).contains("no VM has `LIBq` in its name or manager"));
    state.press(KeyEvent::new(KeyCode::Backspace, KeyModifiers::NONE));
    press(&mut state, "\n");
    assert_eq!(names(&state).len(), 2);
    assert!(drawn(&mut state, 80, 24).contains("\nwith `LIB`  ↑↓ select"));
    press(&mut state, "\u{1b}");
    assert_eq!(names(&state).len(), 3);
}

#[test]
fn it_ends_when_asked_and_pauses() {
    assert_eq!(press(&mut state(), "q"), KeyAction::Quit);
    let control = |key| KeyEvent::new(KeyCode::Char(key), KeyModifiers::CONTROL);
    let mut state = state();
    press(&mut state, "/");
    assert_eq!(press(&mut state, "q"), KeyAction::Draw, "it is a letter of a filter");
    assert_eq!(state.press(control('c')), KeyAction::Quit);
    assert_eq!(state.press(control('z')), KeyAction::Suspend);
    press(&mut state, "\u{1b} ");
    state.take(Sample { scheduler: Err("gone".into()), ..sample() });
    let text = drawn(&mut state, 80, 24);
    assert!(text.lines().next().unwrap().ends_with("PAUSED") && !text.contains("gone"), "{text}");
}

#[test]
fn help_is_as_long_as_it_is() {
    let mut state = state();
    press(&mut state, "?");
    assert!(drawn(&mut state, 80, 24).starts_with("Keys:\n"));
    press(&mut state, &"↓".repeat(100));
    let text = drawn(&mut state, 80, 24);
    assert!(text.contains("  rate control  windows") && text.contains("↑↓ scroll"), "{text}");
    press(&mut state, "x");
    assert_eq!(state.view, View::List);
}

#[test]
fn shares_of_cpus_are_those_of_the_time_that_passed() {
    let folder = tempfile::tempdir().unwrap();
    let tree = Tree::new(folder.path());
    tree.machine(2, 2);
    let machine = read_sysfs(tree.root()).unwrap();
    let times = |cpu, busy_ns, idle_ns, steal_ns| CpuTimes { cpu, busy_ns, idle_ns, steal_ns, guest_ns: 0 };
    let earlier = [times(0, 100, 100, 100), times(1, 0, 50, 0), times(2, 7, 7, 7)];
    let later = [times(0, 150, 125, 125), times(1, 0, 40, 0), times(2, 7, 7, 7), times(3, 9, 9, 9)];
    let sample = MachineSample::between(&machine, &[1, 2], &earlier, &later);
    let cpus: Vec<CpuSample> = sample.cpus().copied().collect();
    let idle = CpuSample::default();
    assert_eq!(cpus, [CpuSample { busy: 0.5, stolen: 0.25 }, idle, idle, idle]);
    assert_eq!(
        sample.nodes.iter().map(|node| (node.number, node.free_bytes)).collect::<Vec<_>>(),
        [(0, 1), (1, 2)]
    );
}

/// Homes that nobody gives are in parentheses, and the panel of the scheduler says that none is loaded.
#[test]
fn observing_shows_plans() {
    let expected = "\
tandem: observing   3 VMs with 7 vCPUs                           8 CPUs 72% busy
node 0 █████████░░░░░░░░░░░  44% of   4 CPUs   12G free  LLCs █▄ 75%   ▂ 12%
node 1 ████████████████████ 100% of   4 CPUs   12G free  LLCs ██ 100% ██ 100%
the scheduler is not loaded; `tandem run` loads it
NAME     BY       VCPU   CPU▼  WAIT  STEAL  LOCAL  HOME  MIGR/s    MEMORY  NODE
web      libvirt     2   180%    0%   9.0%    90%   (1)      12     1G/4G 1:90%
db       libvirt     4    60%    0%   1.5%      -     -      12     1G/4G     ?
mail     proxmox     1   5.0%    0%   0.5%    90%   (1)      12     1G/4G     ?

↑↓ select  ⏎ detail  <> sort  r reverse  / filter  space pause  ? help  q quit
";
    let mut state = State::new(Column::Cpu, String::new());
    state.take(sample_of(true));
    assert_eq!(drawn(&mut state, 80, 10), expected);
}
