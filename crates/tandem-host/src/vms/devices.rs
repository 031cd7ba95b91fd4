//! Devices of the host that a VM has to itself, and the NUMA node that each is attached to.

use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};

/// A device that is passed through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Device {
    /// Its name on its bus: a PCI address such as `0000:01:00.0`, or the identifier of a mediated device.
    pub name: String,
    /// The node that it, or the device that it is a part of, is attached to; `None` if the kernel does not tell.
    pub node: Option<u32>,
}

impl Device {
    /// What a command line calls `told`: a PCI address, with or without its domain, or a path in `/sys`.
    pub(super) fn find(root: &Path, told: &str) -> Self {
        let path = match told.strip_prefix('/') {
            Some(path) => PathBuf::from(path),
            None => Path::new("sys/bus/pci/devices").join(with_domain(told)),
        };
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        // A mediated device is a directory within its parent's, and a link in that of its bus.
        let real = root.join(&path).canonicalize().ok();
        let node = real.as_deref().and_then(|real| node(real).or_else(|| node(real.parent()?)));
        Self { name: name.unwrap_or_else(|| told.to_owned()), node }
    }
}

/// QEMU takes addresses without the domain, which is 0 then.
fn with_domain(address: &str) -> String {
    match address.matches(':').count() {
        1 => format!("0000:{address}"),
        _ => address.to_owned(),
    }
}

/// `numa_node` of a device is -1 where the firmware does not tell: `Documentation/ABI/testing/sysfs-bus-pci`.
fn node(directory: &Path) -> Option<u32> {
    fs::read_to_string(directory.join("numa_node")).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn devices_know_their_node() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        let card = "sys/devices/pci0000:80/0000:81:00.0";
        fs::create_dir_all(at(card).join("f0e1")).unwrap();
        fs::write(at(card).join("numa_node"), "1\n").unwrap();
        fs::create_dir_all(at("sys/bus/pci/devices/0000:02:00.0")).unwrap();
        fs::write(at("sys/bus/pci/devices/0000:02:00.0/numa_node"), "-1\n").unwrap();
        fs::create_dir_all(at("sys/bus/mdev/devices")).unwrap();
        symlink(at(card), at("sys/bus/pci/devices/0000:81:00.0")).unwrap();
        symlink(at(card).join("f0e1"), at("sys/bus/mdev/devices/f0e1")).unwrap();
        let cases = [
            ("81:00.0", "0000:81:00.0", Some(1)),
            ("0000:81:00.0", "0000:81:00.0", Some(1)),
            ("/sys/bus/pci/devices/0000:81:00.0/", "0000:81:00.0", Some(1)),
            ("/sys/bus/mdev/devices/f0e1", "f0e1", Some(1)),
            ("02:00.0", "0000:02:00.0", None),
            ("03:00.0", "0000:03:00.0", None),
            ("/", "/", None),
        ];
        for (told, name, node) in cases {
            assert_eq!(Device::find(root.path(), told), Device { name: name.into(), node }, "{told}");
        }
    }
}
