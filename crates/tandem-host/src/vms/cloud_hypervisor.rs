//! Cloud Hypervisor's command line: `--api-socket /run/web.sock --cpus boot=4 --memory size=4G --device
//! path=/sys/...`, or the socket as `path=...` or `fd=...` (its `docs/api.md`).
//!
//! libvirt's driver for it passes the socket as `fd=N` and sends everything else through it, so the command
//! line has no name; newer releases add `--event-monitor path=.../NAME-monitor-fifo` (`ch_monitor.c`). The
//! scope that the VM runs in, `machine-ch\x2d1\x2dNAME.scope`, has the name as well.

use super::description::{Description, Source, stem};
use super::options::{Parts, all_values, size_bytes, values};
use super::virtual_nodes::{Backend, Collector, NODES_MAX};
use super::{Manager, VirtualNode};
use crate::untrusted::Untrusted;
use std::collections::HashMap;

pub(super) fn describe(source: &Source) -> Description {
    let arguments = source.arguments;
    let path_of =
        |option| Parts::parse(values(arguments, option).next()?).first_or("path").map(str::to_owned);
    let fifo = path_of("event-monitor");
    let of_fifo = fifo.as_deref().and_then(|path| path.rsplit('/').next()?.strip_suffix("-monitor-fifo"));
    let by_libvirt = of_fifo.map(str::to_owned).or_else(|| source.name_of_scope("ch"));

    let sizes = || values(arguments, "memory").chain(all_values(arguments, "memory-zone"));
    let memory_bytes = sizes().try_fold(0_u64, |sum, value| {
        Some(sum.saturating_add(size_bytes(Parts::parse(value).get("size")?, 1)?))
    });
    Description {
        manager: if by_libvirt.is_some() { Manager::Libvirt } else { Manager::None },
        name: by_libvirt.or_else(|| stem(&path_of("api-socket")?)).map(Untrusted::new),
        uuid: values(arguments, "platform")
            .next()
            .and_then(|value| Parts::parse(value).get("uuid").map(Untrusted::new)),
        memory_bytes: memory_bytes.filter(|&bytes| bytes > 0),
        devices: all_values(arguments, "device")
            .filter_map(|value| Parts::parse(value).get("path").map(Untrusted::new))
            .collect(),
        virtual_nodes: virtual_nodes(arguments),
    }
}

fn virtual_nodes(arguments: &[Untrusted]) -> Vec<VirtualNode> {
    let zones: HashMap<String, Backend> = all_values(arguments, "memory-zone")
        .filter_map(|value| {
            let parts = Parts::parse(value);
            let bytes = parts.get("size").and_then(|size| size_bytes(size, 1));
            let host_nodes = parts.get("host_numa_node").and_then(|node| node.parse().ok());
            let backend = Backend { bytes, host_nodes: host_nodes.into_iter().collect() };
            Some((parts.get("id")?.to_owned(), backend))
        })
        .collect();
    let mut collector = Collector::default();
    for parts in all_values(arguments, "numa").take(NODES_MAX as usize).map(Parts::parse_with_lists) {
        let Some(node) = parts.get("guest_numa_id").and_then(|number| number.parse().ok()) else { continue };
        collector.vcpus(node, parts.get("cpus"));
        let names = parts.get("memory_zones").unwrap_or_default();
        for zone in names.trim_start_matches('[').trim_end_matches(']').split(',') {
            zones.get(zone).into_iter().for_each(|zone| collector.memory(node, zone));
        }
    }
    collector.nodes()
}

/// Whether it gives its vCPUs core scheduling cookies: `--cpus core_scheduling=vm`, its default since release
/// 52, `vcpu` or `off` (its `docs/cpu.md`). Earlier releases do not know the option, and give none.
pub(super) fn asks_for_cookies(arguments: &[Untrusted]) -> bool {
    let cpus = values(arguments, "cpus").next().map(Parts::parse);
    let said = cpus.as_ref().and_then(|cpus| cpus.get("core_scheduling"));
    !said.is_some_and(|said| said.eq_ignore_ascii_case("off"))
}
