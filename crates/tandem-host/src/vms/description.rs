//! The description of a VM in a monitor's command line.

use super::{Manager, Monitor, VirtualNode, cloud_hypervisor, firecracker, qemu};
use crate::guarded;
use crate::untrusted::Untrusted;
use std::path::Path;

/// What is fixed when a VM starts. `None` if the command line does not have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Description {
    pub name: Option<Untrusted>,
    pub manager: Manager,
    pub uuid: Option<Untrusted>,
    pub memory_bytes: Option<u64>,
    /// Devices of the host: a PCI address, or a path in `/sys`.
    pub devices: Vec<Untrusted>,
    /// The virtual nodes that have vCPUs.
    pub virtual_nodes: Vec<VirtualNode>,
}

/// The process of a monitor: the sources of its description.
pub(super) struct Source<'a> {
    /// The root of the tree: `/` on this machine.
    pub root: &'a Path,
    /// The process's directory in `/proc`.
    pub directory: &'a Path,
    /// The user of the process.
    pub user: u32,
    pub arguments: &'a [Untrusted],
    /// The text of `/proc/PID/cgroup`.
    pub cgroups: &'a str,
}

impl Source<'_> {
    pub fn describe(&self, monitor: Monitor) -> Description {
        match monitor {
            Monitor::Qemu => qemu::describe(self),
            Monitor::CloudHypervisor => cloud_hypervisor::describe(self),
            Monitor::Firecracker => firecracker::describe(self),
            Monitor::Other => Description {
                name: None,
                manager: Manager::None,
                uuid: None,
                memory_bytes: None,
                devices: Vec::new(),
                virtual_nodes: Vec::new(),
            },
        }
    }

    /// Reads a file by an absolute path of the command line, for a process that sees the same files as this
    /// one.
    pub fn file(&self, path: &str) -> Option<String> {
        path.strip_prefix('/').and_then(|path| self.read(self.root, path))
    }

    /// As [`Source::file`], for a process with a root of its own, or a relative path. Only root and the
    /// process's owner may read it.
    pub fn own_file(&self, path: &str) -> Option<String> {
        let start = if path.starts_with('/') { "root" } else { "cwd" };
        self.read(&self.directory.join(start), path)
    }

    fn read(&self, start: &Path, path: &str) -> Option<String> {
        String::from_utf8(guarded::read_named(self.directory, start, path, self.user)?).ok()
    }

    /// The VM's name in systemd's scope: `machine-qemu\x2d3\x2dweb.scope` is that of `web`. libvirt's
    /// `virSystemdMakeScopeName` escapes characters that are not allowed in a unit's name as `\xHH`, and puts
    /// a number before the name.
    pub fn name_of_scope(&self, driver: &str) -> Option<String> {
        let start = format!("machine-{driver}\\x2d");
        let (_, scope) = self.cgroups.split_once(&start)?;
        let scope = scope.split_once(".scope")?.0;
        Some(unescape(scope.split_once("\\x2d")?.1))
    }
}

fn unescape(name: &str) -> String {
    let mut parts = name.split("\\x");
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        match part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(&part.as_bytes()[2..]);
            }
            None => {
                bytes.extend_from_slice(b"\\x");
                bytes.extend_from_slice(part.as_bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The last part of a path without its extension: the name of a disk or socket.
pub(super) fn stem(path: &str) -> Option<String> {
    Some(Path::new(path).file_stem()?.to_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_scopes_are_unescaped() {
        let name = |cgroups| {
            let nowhere = Path::new("/nowhere");
            Source { root: nowhere, directory: nowhere, user: 0, arguments: &[], cgroups }
                .name_of_scope("qemu")
        };
        let scope = "0::/machine.slice/machine-qemu\\x2d12\\x2dweb\\x2dä\\xc3\\xa4.scope/libvirt/emulator\n";
        assert_eq!(name(scope).as_deref(), Some("web-ää"));
        assert_eq!(name("0::/machine.slice/machine-qemu\\x2d12.scope\n"), None);
        assert_eq!(unescape("a\\xé\\x"), "a\\xé\\x");
    }
}
