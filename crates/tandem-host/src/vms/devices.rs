//! Devices of the host that are passed through to a VM, and the NUMA node that each is attached to.

use crate::untrusted::Untrusted;
use serde::Serialize;
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// A device that is passed through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Device {
    /// Its name on its bus: a PCI address such as `0000:01:00.0`, or the identifier of a mediated device.
    pub name: String,
    /// The node to which it, or the device that it is a part of, is attached; `None` if the kernel does not
    /// say.
    pub node: Option<u32>,
}

impl Device {
    /// The device that a command line calls `told`: a PCI address, with or without its domain, or a path in
    /// `/sys`. Reads only a device's own directory, wherever the path leads.
    pub(super) fn find(root: &Path, told: &Untrusted) -> Self {
        let text = told.text();
        let path = match text.strip_prefix('/') {
            Some(path) => Some(PathBuf::from(path)),
            None => is_address(text).then(|| Path::new("sys/bus/pci/devices").join(with_domain(text))),
        };
        let path = path.filter(|path| {
            path.starts_with("sys") && !path.components().any(|part| part == Component::ParentDir)
        });
        let name = path.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        // A mediated device is a directory within its parent's, and a link in that of its bus.
        let real = path.and_then(|path| root.join(path).canonicalize().ok());
        let devices = root.canonicalize().unwrap_or_else(|_| root.to_owned()).join("sys/devices");
        let real = real.filter(|real| real.starts_with(&devices));
        let node = real.as_deref().and_then(|real| node(real).or_else(|| node(real.parent()?)));
        Self { name: name.map_or_else(|| told.shown(), |name| Untrusted::new(name).shown()), node }
    }
}

/// Whether this is the address of a PCI device: digits, colons and a dot.
fn is_address(text: &str) -> bool {
    text.len() <= 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.'))
}

/// QEMU accepts addresses without the domain, which is 0 then.
fn with_domain(address: &str) -> String {
    match address.matches(':').count() {
        1 => format!("0000:{address}"),
        _ => address.to_owned(),
    }
}

/// `numa_node` of a device is -1 where the firmware does not report it:
/// `Documentation/ABI/testing/sysfs-bus-pci`.
fn node(directory: &Path) -> Option<u32> {
    let mut text = String::new();
    File::open(directory.join("numa_node")).ok()?.take(64).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn devices_know_their_node() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        let card = "sys/devices/pci0000:80/0000:81:00.0";
        fs::create_dir_all(at(card).join("f0e1")).unwrap();
        fs::write(at(card).join("numa_node"), "1\n").unwrap();
        let other = "sys/devices/pci0000:00/0000:02:00.0";
        fs::create_dir_all(at(other)).unwrap();
        fs::write(at(other).join("numa_node"), "-1\n").unwrap();
        fs::create_dir_all(at("sys/bus/pci/devices")).unwrap();
        symlink(at(other), at("sys/bus/pci/devices/0000:02:00.0")).unwrap();
        // An untrusted user made this.
        fs::create_dir_all(at("home/trap")).unwrap();
        symlink("/dev/zero", at("home/trap/numa_node")).unwrap();
        symlink(at("home/trap"), at("sys/bus/mdev-trap")).unwrap();
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
            ("/home/trap", "/home/trap", None),
            ("/sys/../home/trap", "/sys/../home/trap", None),
            ("/sys/bus/mdev-trap", "mdev-trap", None),
            ("../../../home/trap", "../../../home/trap", None),
            ("a\u{1b}", "a\\u{1b}", None),
        ];
        for (told, name, node) in cases {
            assert_eq!(
                Device::find(root.path(), &Untrusted::new(told)),
                Device { name: name.into(), node },
                "{told}"
            );
        }
    }
}
