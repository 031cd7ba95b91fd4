//! Machines by name: the hosts of [published] tables, and hosts of [today].
//!
//! Each has its sources beside its values. Memory bandwidth is *sustained*: the theoretical peak of the
//! channels times [`SUSTAINED_PCT`].

mod published;
mod today;

use super::{Hardware, LOCAL_DISTANCE, Machine, MachineBuilder, REMOTE_DISTANCE, Shape};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Part of the theoretical bandwidth that reading sustains, in percent: a two-socket Xeon Platinum 8269CY
/// reads 225.1 GB/s (Memory Latency Checker 3.9) of 2 x 6 channels of DDR4-2933, 281.6 GB/s.
const SUSTAINED_PCT: u64 = 80;

/// A preset before it is built.
struct Preset {
    name: &'static str,
    shape: Shape,
    numbering: Numbering,
    distances: Distances,
    llc_bytes: u64,
    node_memory_bytes: u64,
    /// Theoretical peak of a node's memory: channels times million transfers per second times 8 bytes.
    peak_mb_per_s: u64,
    hardware: Hardware,
}

/// How the CPUs are numbered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Numbering {
    /// The threads of a core side by side, as by Xen.
    ThreadsTogether,
    /// The first threads of all cores before the second ones, as by Linux on x86.
    ThreadsApart,
}

/// Distances of the firmware's table (SLIT).
struct Distances {
    /// Between the nodes of a package, a row for each.
    within: &'static [&'static [u32]],
    /// Between packages.
    between: u32,
}

impl Distances {
    /// Packages that are a node each, at Linux's default distance.
    const ONE_NODE_EACH: Self = Self::one_node_each(REMOTE_DISTANCE);

    /// Packages that are a node each.
    const fn one_node_each(between: u32) -> Self {
        Self { within: &[&[LOCAL_DISTANCE]], between }
    }

    /// The latency at distance 20 of a machine on which memory of another package takes `remote_ns`.
    const fn latency_at_20(&self, local_ns: u32, remote_ns: u32) -> u32 {
        let steps = self.between - LOCAL_DISTANCE;
        local_ns + ((remote_ns - local_ns) * (REMOTE_DISTANCE - LOCAL_DISTANCE) + steps / 2) / steps
    }
}

fn all() -> impl Iterator<Item = &'static Preset> {
    published::PRESETS.iter().chain(&today::PRESETS)
}

/// The machine with this name, if there is one.
pub fn preset(name: &str) -> Option<Machine> {
    all().find(|preset| preset.name == name).map(build)
}

/// The names that [`preset`] knows.
pub fn preset_names() -> impl Iterator<Item = &'static str> {
    all().map(|preset| preset.name)
}

fn build(preset: &Preset) -> Machine {
    let peak_bytes_per_s = preset.peak_mb_per_s * 1_000_000;
    let Distances { within, between } = preset.distances;
    let mut builder = MachineBuilder::of_shape(&preset.shape);
    if preset.numbering == Numbering::ThreadsApart {
        builder = builder.threads_apart(preset.shape.threads);
    }
    builder
        .name(preset.name)
        .every_llc(preset.llc_bytes)
        .every_node(preset.node_memory_bytes, peak_bytes_per_s * SUSTAINED_PCT / 100)
        .package_distances(preset.shape.nodes, |from, to| within[from as usize][to as usize], between)
        .hardware(preset.hardware.clone())
        .build()
        .expect("a test builds every preset")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{CpuId, NodeId};

    #[test]
    fn presets_have_the_parts_of_their_hosts() {
        let sizes: Vec<_> = preset_names()
            .map(|name| {
                let machine = preset(name).unwrap();
                (name, machine.node_count(), machine.llcs().len(), machine.cores().len(), machine.cpu_count())
            })
            .collect();
        assert_eq!(
            sizes,
            [
                ("xeon-e5620-2s", 2, 2, 8, 16),
                ("xeon-x5650-2s", 2, 2, 12, 24),
                ("flat-domain-48", 2, 2, 24, 48),
                ("westmere-ex-4s", 4, 4, 40, 80),
                ("broadwell-2s", 2, 2, 44, 88),
                ("epyc-9654-2s", 2, 24, 192, 384),
                ("epyc-9755-2s", 2, 32, 256, 512),
                ("epyc-9965-2s", 2, 24, 384, 768),
                ("xeon-8480-2s", 2, 2, 112, 224),
                ("xeon-6972p-2s", 6, 6, 192, 384),
                ("altra-max-2s", 2, 0, 256, 256),
                ("ampereone-a192", 1, 0, 192, 192),
                ("grace-superchip", 2, 2, 144, 144),
            ]
        );
        assert!(preset_names().all(|name| !Shape::is_meant_by(name)));
    }

    #[test]
    fn distances_are_those_of_the_firmware_and_give_the_measured_latencies() {
        let cases = [("epyc-9654-2s", 1, 32, 188.0), ("xeon-6972p-2s", 3, 24, 239.0)];
        for (name, node, distance, measured_ns) in cases {
            let machine = preset(name).unwrap();
            let (own, other) = (NodeId(0), NodeId(node));
            assert_eq!(machine.distance(own, other), distance);
            let latency_ns = machine.memory_latency_ns(own, other);
            assert!((latency_ns - measured_ns).abs() < 1.5, "{name}: {latency_ns} ns");
        }
        let machine = preset("xeon-6972p-2s").unwrap();
        let from_last = [0, 3, 4, 5].map(|to| machine.distance(NodeId(5), NodeId(to)));
        assert_eq!(from_last, [24, 17, 15, 10]);
    }

    #[test]
    fn the_second_threads_of_hosts_of_today_come_last() {
        let machine = preset("epyc-9654-2s").unwrap();
        assert_eq!(machine.os_list(machine.siblings(CpuId(1))), "1,193");
        assert_eq!(machine.os_list(machine.llc_cpus(CpuId(8))), "8-15,200-207");
        assert_eq!(machine.os_list(machine.node_cpus(NodeId(1))), "96-191,288-383");
    }
}
