//! What a decision costs does not grow with the machine: promise P9.

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// CPUs of a last-level cache, and of a node.
const LLC_CPUS: u32 = 8;
const NODE_CPUS: u32 = 64;
/// How much more instructions a decision may take on 512 CPUs than on 8, in percent of these.
const GROWTH_MAX_PCT: f64 = 150.0;

/// A machine with so many CPUs, and VMs with two vCPUs for each: most compute, others sleep most of the time.
fn scenario(cpus: u32) -> String {
    let mut text = String::from("length = \"200ms\"\nwarmup = \"100ms\"\n[policy]\nhost = \"tandem\"\n");
    text += "[machine]\nname = \"large\"\n";
    for node in 0..cpus.div_ceil(NODE_CPUS) {
        let node = format!("number = {node}\nmemory = \"64GiB\"\nbandwidth = \"40GB/s\"");
        writeln!(text, "[[machine.node]]\n{node}").unwrap();
    }
    for llc in 0..cpus / LLC_CPUS {
        let node = llc * LLC_CPUS / NODE_CPUS;
        let list: Vec<u32> = (llc * LLC_CPUS..(llc + 1) * LLC_CPUS).collect();
        let list = list.iter().map(|cpu| format!("\"{cpu}\"")).collect::<Vec<_>>().join(", ");
        writeln!(text, "[[machine.llc]]\nnumber = {llc}\nsize = \"16MiB\"").unwrap();
        writeln!(text, "[[machine.cores]]\npackage = {node}\nnode = {node}\nllc = {llc}\ncpus = [{list}]")
            .unwrap();
    }
    text += "[programs.computes]\nops = [{ forever = [{ compute = \"10ms\" }] }]\n\
             [programs.serves]\nops = [{ forever = [{ compute = { exponential = \"200us\" } }, \
             { sleep = { exponential = \"2ms\" } }] }]\n\
             [[vm]]\ngroup = \"vm\"\nmemory = \"64MiB\"\nvcpus = 8\n";
    let programs = [vec!["\"computes\""; 5], vec!["\"serves\""; 3]].concat().join(", ");
    writeln!(text, "count = {}\nprograms = [{programs}]", cpus / 4).unwrap();
    text
}

/// Instructions of a decision of each kind, on average.
fn instructions(cpus: u32, dir: &Path) -> Vec<(String, f64)> {
    let file = dir.join(format!("{cpus}.toml"));
    fs::write(&file, scenario(cpus)).unwrap();
    let output = Command::new(cargo_bin!("tandem")).args(["sim", "--stat"]).arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let table = text.lines().skip_while(|line| !line.starts_with("decision ")).skip(1);
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words[0].to_owned(), words[2].replace(',', "").parse().unwrap())
    };
    table.take_while(|line| !line.is_empty()).map(row).collect()
}

#[test]
fn decisions_cost_no_more_on_a_large_machine() {
    let dir = tempfile::tempdir().unwrap();
    let (small, large) = (instructions(8, dir.path()), instructions(512, dir.path()));
    assert_eq!(small.iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>(), ["wake", "dispatch", "tick"]);
    for ((kind, small), (_, large)) in small.into_iter().zip(large) {
        assert!(small > 100.0, "{kind}: {small} instructions");
        assert!(
            large <= small * GROWTH_MAX_PCT / 100.0,
            "{kind}: {small} instructions on 8 CPUs, {large} on 512"
        );
    }
}
