//! Draws the scored cases of the suites, as scenario files.
//!
//! Everything that a candidate could recognise a case by is drawn: CPUs, VMs and their order, sizes, loads, the length of
//! the warm-up and of the run. VMs have names that say nothing about what they do.

use super::suite::{Split, Suite};
use crate::check::generate::Dice;
use std::fmt::Write;

/// Cores of each socket of a host: each split has numbers of its own.
const HOST_CORES: [[u64; 4]; 3] = [[8, 10, 12, 14], [9, 11, 13, 15], [7, 16, 17, 18]];
/// Cores of a machine without VMs.
const TASK_CORES: [[u64; 4]; 3] = [[4, 6, 8, 12], [5, 7, 9, 11], [3, 10, 13, 14]];
/// VMs of a host, the first and the last number.
const VMS: (u64, u64) = (18, 22);
/// Virtual CPUs of a host in percent of its CPUs.
const OVERCOMMIT_PCT: (u64, u64) = (200, 300);
/// Warm-up, ms.
const WARMUP_MS: (u64, u64) = (60, 140);
/// Measured time, ms.
const LENGTH_MS: (u64, u64) = (240, 360);

/// What a VM, or a set of processes, does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Answers clients who wait for their answers.
    Web,
    /// Computes.
    Batch,
    /// Bursts of short transactions, and pauses.
    Bursts,
    /// Wakes up now and then, and does little.
    Light,
    /// A guest whose tasks spin for locks.
    Spins,
}

/// The scenario of a case.
pub fn text(suite: Suite, split: Split, dice: &mut Dice) -> String {
    let mut text = String::new();
    match suite {
        Suite::Hosts => hosts(split, dice, &mut text),
        Suite::Guests => guests(split, dice, &mut text),
        Suite::Tasks => tasks(split, dice, &mut text),
    }
    .expect("a string takes any text");
    text
}

/// Times and machine.
fn head(machine: &str, policy: &str, dice: &mut Dice, text: &mut String) -> std::fmt::Result {
    let length_ms = dice.from_to(LENGTH_MS.0, LENGTH_MS.1);
    let warmup_ms = dice.from_to(WARMUP_MS.0, WARMUP_MS.1);
    writeln!(text, "length = \"{length_ms}ms\"\nwarmup = \"{warmup_ms}ms\"\nmachine = \"{machine}\"\n")?;
    writeln!(text, "[policy]\nhost = \"linux\"\n{policy}")?;
    // Servers live in the caches, batch work streams from memory.
    writeln!(
        text,
        "[profiles.small]\nfootprint = \"{}KiB\"\nsweep = \"100us\"\nmemory_lines_per_us = 1.0\ncache_sensitivity = 0.5\n\
         parallelism = 2.0\n\n[profiles.large]\nfootprint = \"{}MiB\"\nsweep = \"2ms\"\nmemory_lines_per_us = {}.0\n\
         cache_sensitivity = 0.5\nparallelism = 4.0\n",
        dice.from_to(64, 512),
        dice.from_to(1, 4),
        dice.from_to(2, 12)
    )
}

/// Names in a drawn order.
fn names(count: usize, dice: &mut Dice) -> Vec<String> {
    let mut names: Vec<String> = (0..count).map(|number| format!("v{number:02}")).collect();
    shuffle(&mut names, dice);
    names
}

fn shuffle<T>(all: &mut [T], dice: &mut Dice) {
    for at in (1..all.len()).rev() {
        all.swap(at, dice.from_to(0, at as u64) as usize);
    }
}

/// What the VMs of a host do, in a drawn order: some of each kind, web servers and batch work most.
fn kinds(count: u64, dice: &mut Dice) -> Vec<Kind> {
    let mut kinds = vec![Kind::Web; (count * dice.from_to(25, 40) / 100) as usize];
    kinds.extend(vec![Kind::Batch; (count * dice.from_to(20, 30) / 100) as usize]);
    kinds.extend(vec![Kind::Spins; dice.from_to(1, 2) as usize]);
    while kinds.len() < count as usize {
        kinds.push(dice.one_of(&[Kind::Bursts, Kind::Light]));
    }
    shuffle(&mut kinds, dice);
    kinds
}

fn hosts(split: Split, dice: &mut Dice, text: &mut String) -> std::fmt::Result {
    let cores = dice.one_of(&HOST_CORES[split as usize]);
    let cpus = cores * 4;
    head(&format!("2x{cores}x2"), "pause_loop = {}\nguest = \"linux\"\n", dice, text)?;
    let kinds = kinds(dice.from_to(VMS.0, VMS.1), dice);
    let names = names(kinds.len(), dice);
    let vcpus = cpus * dice.from_to(OVERCOMMIT_PCT.0, OVERCOMMIT_PCT.1) / 100;
    let mean = vcpus / kinds.len() as u64;
    for (kind, name) in kinds.into_iter().zip(names) {
        let vcpus = dice.from_to((mean / 2).max(1), mean * 3 / 2).min(cpus);
        vm(kind, &name, vcpus, dice, text)?;
    }
    Ok(())
}

/// A VM with its programs.
fn vm(kind: Kind, name: &str, vcpus: u64, dice: &mut Dice, text: &mut String) -> std::fmt::Result {
    programs(kind, name, dice, text)?;
    // A few are worth more, or less, than the others.
    let weight = if dice.chance(20) { dice.one_of(&[128, 512]) } else { 256 };
    let node = dice.from_to(0, 1);
    writeln!(
        text,
        "[[vm]]\ngroup = \"{name}\"\nvcpus = {vcpus}\nmemory = \"{}MiB\"",
        dice.from_to(128, 320)
    )?;
    writeln!(text, "weight = {weight}\nmemory_policy = {{ bind = \"{node}\" }}\nhas_past = true")?;
    match kind {
        Kind::Spins => {
            writeln!(text, "guest = {{ process = [{{ program = \"{name}\", copies = {vcpus} }}] }}\n")
        }
        Kind::Web => {
            writeln!(text, "programs = [\"{name}\"]\n")?;
            clients(vcpus, dice, text)
        }
        Kind::Batch | Kind::Bursts | Kind::Light => writeln!(text, "programs = [\"{name}\"]\n"),
    }
}

/// Clients that send requests, wait for the answers, and think.
fn clients(servers: u64, dice: &mut Dice, text: &mut String) -> std::fmt::Result {
    let (number, think_us) = (servers * dice.from_to(1, 3), dice.from_to(800, 3_000));
    writeln!(
        text,
        "[[vm.source]]\nchannel = \"requests\"\narrivals = {{ clients = {{ number = {number}, think = {{ exponential = \
         \"{think_us}us\" }} }} }}\n"
    )
}

fn programs(kind: Kind, name: &str, dice: &mut Dice, text: &mut String) -> std::fmt::Result {
    let (profile, ops) = match kind {
        Kind::Web => {
            let us = dice.from_to(150, 400);
            let answer = format!("{{ compute = {{ exponential = \"{us}us\" }} }}, \"respond\"");
            ("small", format!("{{ wait = \"requests\" }}, {answer}"))
        }
        Kind::Batch => ("large", format!("{{ compute = {{ exponential = \"{}ms\" }} }}", dice.from_to(1, 3))),
        Kind::Bursts => {
            let (work_us, pause_us) = (dice.from_to(100, 300), dice.from_to(60, 200));
            let transaction = format!(
                "\"start_timer\", {{ compute = {{ exponential = \"{work_us}us\" }} }}, {{ sleep = {{ exponential = \
                 \"{pause_us}us\" }} }}, {{ compute = \"20us\" }}, \"stop_timer\", {{ count = \"done\" }}"
            );
            let (times, rest_ms) = (dice.from_to(10, 25), dice.from_to(5, 15));
            (
                "small",
                format!(
                    "{{ repeat = {{ times = {times}, body = [{transaction}] }} }}, {{ sleep = {{ exponential = \"{rest_ms}ms\" }} }}"
                ),
            )
        }
        Kind::Light => {
            let (pause_ms, work_us) = (dice.from_to(2, 8), dice.from_to(50, 200));
            (
                "small",
                format!(
                    "{{ sleep = {{ exponential = \"{pause_ms}ms\" }} }}, {{ compute = \"{work_us}us\" }}"
                ),
            )
        }
        Kind::Spins => {
            let (outside_us, inside_us) = (dice.from_to(100, 300), dice.from_to(2, 8));
            (
                "small",
                format!(
                    "{{ compute = {{ exponential = \"{outside_us}us\" }} }}, {{ lock = \"lock\" }}, {{ compute = \
                     \"{inside_us}us\" }}, {{ unlock = \"lock\" }}"
                ),
            )
        }
    };
    let count = if kind == Kind::Bursts { "" } else { ", { count = \"done\" }" };
    writeln!(text, "[programs.{name}]\nprofile = \"{profile}\"\nops = [{{ forever = [{ops}{count}] }}]\n")
}

/// A busy host under Linux, and guests with servers beside batch work.
fn guests(split: Split, dice: &mut Dice, text: &mut String) -> std::fmt::Result {
    let cores = dice.one_of(&TASK_CORES[split as usize]);
    head(&format!("1x{cores}x2"), "pause_loop = {}\nguest = \"linux\"\n", dice, text)?;
    let vms = dice.from_to(3, 4);
    for name in names(vms as usize, dice) {
        let vcpus = (cores * 2 * dice.from_to(130, 180) / 100 / vms).max(2);
        let server = format!("{name}-s");
        programs(Kind::Web, &server, dice, text)?;
        let batch = format!("{name}-b");
        let (work_ms, pause_us) = (dice.from_to(1, 4), dice.from_to(300, 900));
        writeln!(
            text,
            "[programs.{batch}]\nprofile = \"large\"\nops = [{{ forever = [{{ compute = {{ exponential = \"{work_ms}ms\" }} \
             }}, {{ sleep = \"{pause_us}us\" }}, {{ count = \"rounds\" }}] }}]\n"
        )?;
        let light = format!("{name}-l");
        programs(Kind::Bursts, &light, dice, text)?;
        writeln!(text, "[[vm]]\ngroup = \"{name}\"\nvcpus = {vcpus}\nmemory = \"2GiB\"\n\n[vm.guest]")?;
        let (servers, batches) = (vcpus, dice.from_to(vcpus / 2, vcpus));
        writeln!(
            text,
            "process = [{{ program = \"{server}\", copies = {servers} }}, {{ program = \"{batch}\", copies = {batches} }}]\n"
        )?;
        clients(servers, dice, text)?;
    }
    Ok(())
}

/// Processes of several kinds.
fn tasks(split: Split, dice: &mut Dice, text: &mut String) -> std::fmt::Result {
    let cores = dice.one_of(&TASK_CORES[split as usize]);
    let cpus = cores * 2;
    head(&format!("1x{cores}x2"), "", dice, text)?;
    let mut kinds = vec![Kind::Batch, Kind::Batch, Kind::Light, Kind::Bursts, Kind::Bursts];
    kinds.extend((0..dice.from_to(1, 4)).map(|_| dice.one_of(&[Kind::Batch, Kind::Bursts, Kind::Light])));
    shuffle(&mut kinds, dice);
    let names = names(kinds.len(), dice);
    for (kind, name) in kinds.into_iter().zip(names) {
        programs(kind, &name, dice, text)?;
        let copies = dice.from_to(cpus / 4, cpus / 2).max(1);
        writeln!(
            text,
            "[[processes]]\ngroup = \"{name}\"\nmemory = \"1GiB\"\nprocess = [{{ program = \"{name}\", copies = {copies} }}]\n"
        )?;
    }
    Ok(())
}
