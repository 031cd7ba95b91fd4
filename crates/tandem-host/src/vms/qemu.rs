//! QEMU's command line, as its managers write it:
//!
//! - libvirt: `-name guest=NAME,debug-threads=on`, the monitor's socket as `-chardev socket,id=charmonitor`,
//!   and before that `-object {"qom-type":"secret","id":"masterKey0"...}` (its `qemu_command.c`);
//! - Proxmox: `-id 100 -name NAME,debug-threads=on`; only its QEMU knows `-id` (qemu-server's
//!   `QemuServer.pm`);
//! - LXD and Incus: `-name INSTANCE -readconfig .../PROJECT_INSTANCE/qemu.conf`, a file that configures
//!   memory and devices. In the project `default` its path has no project name and no `_`. It is below
//!   `/var/log/lxd`, `/var/snap/lxd`, `/run/incus` or `/var/log/incus` (`driver_qemu.go` of both). Names
//!   contain no `_` there.

use super::description::{Description, Source, stem};
use super::options::{Parts, sections, size_bytes, values};
use super::virtual_nodes::Backend;
use super::{Manager, virtual_nodes};
use crate::untrusted::Untrusted;
use std::collections::HashMap;
use std::path::Path;

const MIB: u64 = 1 << 20;

pub(super) fn describe(source: &Source) -> Description {
    let arguments = source.arguments;
    let file = values(arguments, "readconfig").next();
    let sections = file.and_then(|path| source.file(path)).map(|text| sections(&text)).unwrap_or_default();
    let of_group = |group| sections.iter().filter(move |section| section.group == group);
    let options = |option| values(arguments, option).map(Parts::parse);

    let name = options("name").last().and_then(|parts| parts.first_or("guest").map(str::to_owned));
    let name = name.filter(|name| !name.is_empty());
    let devices: Vec<Parts> =
        options("device").chain(of_group("device").map(|section| section.parts.clone())).collect();
    // Of several objects with one id, the first counts.
    let mut objects: HashMap<String, Parts> = HashMap::new();
    let with_ids = options("object")
        .map(|parts| (parts.get("id").map(str::to_owned), parts))
        .chain(of_group("object").map(|section| (section.id.clone(), section.parts.clone())));
    for (id, parts) in with_ids {
        if let Some(id) = id {
            objects.entry(id).or_insert(parts);
        }
    }

    let base = options("m").chain(of_group("memory").map(|section| section.parts.clone())).last();
    let base_bytes = base.and_then(|parts| size_bytes(parts.first_or("size")?, MIB));
    let modules = devices.iter().filter(|device| device.first_or("driver") == Some("pc-dimm"));
    let module_bytes =
        modules.filter_map(|module| size_bytes(objects.get(module.get("memdev")?)?.get("size")?, 1));
    let module_bytes = module_bytes.fold(0, u64::saturating_add);

    let numa: Vec<Parts> =
        options("numa").chain(of_group("numa").map(|section| section.parts.clone())).collect();
    let smp = options("smp").chain(of_group("smp-opts").map(|section| section.parts.clone())).last();
    // Each is parsed once, however many nodes name it.
    let backends: HashMap<&str, Backend> =
        objects.iter().map(|(id, parts)| (id.as_str(), Backend::of_qemu(parts))).collect();

    Description {
        manager: manager(source, file, name.as_deref()),
        name: name.or_else(|| disk(arguments)).map(Untrusted::new),
        uuid: values(arguments, "uuid").last().map(Untrusted::new),
        memory_bytes: base_bytes.map(|bytes| bytes.saturating_add(module_bytes)),
        devices: devices.iter().filter_map(passed_through).map(Untrusted::new).collect(),
        virtual_nodes: virtual_nodes::of_qemu(&numa, smp.as_ref(), &backends),
    }
}

fn manager(source: &Source, file: Option<&str>, name: Option<&str>) -> Manager {
    let arguments = source.arguments;
    if let Some(id) = values(arguments, "id").next().and_then(|id| id.parse().ok()) {
        return Manager::Proxmox { id };
    }
    if let (Some(file), Some(name)) = (file, name) {
        let folder = Path::new(file).parent().and_then(Path::file_name).and_then(|folder| folder.to_str());
        let project = folder.and_then(|folder| folder.strip_suffix(name)?.strip_suffix('_'));
        let project = Untrusted::new(project.unwrap_or("default")).shown();
        if ["/run/incus/", "/var/log/incus/", "/var/lib/incus/"].iter().any(|start| file.starts_with(start)) {
            return Manager::Incus { project };
        }
        if ["/var/snap/lxd/", "/var/log/lxd/", "/var/lib/lxd/"].iter().any(|start| file.starts_with(start)) {
            return Manager::Lxd { project };
        }
    }
    let mut ids =
        ["object", "chardev"].into_iter().flat_map(|option| values(arguments, option).map(Parts::parse));
    match ids.any(|parts| matches!(parts.get("id"), Some("masterKey0" | "charmonitor"))) {
        true => Manager::Libvirt,
        false => Manager::None,
    }
}

/// The device of the host behind a device of the guest.
fn passed_through(device: &Parts) -> Option<String> {
    let is_vfio = device.first_or("driver")?.starts_with("vfio-");
    is_vfio.then(|| device.get("host").or(device.get("sysfsdev")).map(str::to_owned))?
}

/// The name of the first disk, for a VM without a name of its own.
fn disk(arguments: &[Untrusted]) -> Option<String> {
    let mut drives = values(arguments, "drive").chain(values(arguments, "blockdev")).map(Parts::parse);
    let of_drive = |parts: Parts| {
        if parts.get("if") == Some("pflash") {
            return None; // the firmware
        }
        let path = parts.get("file").or(parts.get("filename")).or(parts.get("file.filename"))?;
        stem(path)
    };
    drives.find_map(of_drive).or_else(|| stem(values(arguments, "hda").next()?))
}
