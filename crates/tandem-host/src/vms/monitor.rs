//! Which processes may be virtual machine monitors.
//!
//! The file that a process runs, `/proc/PID/exe`, identifies a monitor; a name set with `prctl` (QEMU's
//! `-name process=`) does not hide it. Only the owner and root may read that link. Others compare the
//! process's name with its first argument; for a script, that is the interpreter.
//!
//! Sources for the names: Debian's and Fedora's packages (`qemu-system-ARCH`, `/usr/libexec/qemu-kvm`),
//! Proxmox (`/usr/bin/kvm`, a link to QEMU), the releases of Cloud Hypervisor (`cloud-hypervisor-static`) and
//! of Firecracker (`firecracker-VERSION-ARCH`; its jailer demands `firecracker` in the name), and the
//! wrappers of NixOS (`.NAME-wrapped`).

use super::process::{read_arguments, read_name};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::path::Path;

/// Longest name of a process, bytes: `TASK_COMM_LEN` of the kernel, without the zero at its end.
const MAX_NAME_BYTES: usize = 15;

/// A program that runs a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Monitor {
    /// QEMU, with KVM or without.
    Qemu,
    /// Cloud Hypervisor.
    CloudHypervisor,
    /// Firecracker.
    Firecracker,
    /// Another program that has a VM of KVM's, such as crosvm, kvmtool or VirtualBox.
    Other,
}

impl fmt::Display for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Qemu => "qemu",
            Self::CloudHypervisor => "cloud-hypervisor",
            Self::Firecracker => "firecracker",
            Self::Other => "other",
        })
    }
}

impl Monitor {
    /// The monitor that a process runs, by the process's directory in `/proc`; `None` if it runs none.
    pub(super) fn of_process(directory: &Path) -> Option<Self> {
        if let Ok(program) = fs::read_link(directory.join("exe")) {
            // An update has replaced the program while it runs.
            let program = program.to_str()?;
            return Self::of_program(program.strip_suffix(" (deleted)").unwrap_or(program));
        }
        // The name is cheap to read, and rules out nearly all processes.
        let name = read_name(directory)?;
        if !["qemu", "kvm", "cloud-hyperviso", "firecracker", ".qemu"]
            .iter()
            .any(|start| name.text().starts_with(start))
        {
            return None;
        }
        // A process whose arguments cannot be read now counts as what its name suggests: it may be a known
        // VM.
        let Some(arguments) = read_arguments(directory) else { return Self::of_name(name.text()) };
        let program = arguments.first()?.text();
        let file = program.rsplit('/').next()?;
        let as_name = &file.as_bytes()[..file.len().min(MAX_NAME_BYTES)];
        (as_name == name.text().as_bytes()).then(|| Self::of_program(program))?
    }

    /// The monitor that a process seems to run, by its name, which may be cut.
    fn of_name(name: &str) -> Option<Self> {
        let is_cut = |program: &str| name.len() == MAX_NAME_BYTES && program.starts_with(name);
        match is_cut("cloud-hypervisor") {
            true => Some(Self::CloudHypervisor),
            false => Self::of_program(name),
        }
    }

    /// The monitor that a program is, by its path.
    fn of_program(path: &str) -> Option<Self> {
        let file = path.rsplit('/').next()?;
        let file = file.strip_prefix('.').and_then(|file| file.strip_suffix("-wrapped")).unwrap_or(file);
        match file {
            "qemu" | "qemu-kvm" | "kvm" => Some(Self::Qemu),
            _ if file.starts_with("qemu-system-") => Some(Self::Qemu),
            _ if file.starts_with("cloud-hypervisor") => Some(Self::CloudHypervisor),
            _ if file.starts_with("firecracker") => Some(Self::Firecracker),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_identified_by_their_files() {
        let cases = [
            ("/usr/bin/qemu-system-x86_64", Some(Monitor::Qemu)),
            ("/usr/libexec/qemu-kvm", Some(Monitor::Qemu)),
            ("/snap/lxd/24322/bin/qemu-system-x86_64", Some(Monitor::Qemu)),
            ("/nix/store/abc-qemu-8.2/bin/.qemu-system-x86_64-wrapped", Some(Monitor::Qemu)),
            ("/usr/local/bin/cloud-hypervisor-static", Some(Monitor::CloudHypervisor)),
            ("/firecracker-v1.7.0-x86_64", Some(Monitor::Firecracker)),
            ("/usr/bin/qemu-img", None),
            ("/usr/bin/qemu-aarch64-static", None),
            ("/usr/bin/qemu-nbd", None),
            ("/usr/bin/ch-remote", None),
            ("/bin/sh", None),
            ("", None),
        ];
        for (path, monitor) in cases {
            assert_eq!(Monitor::of_program(path), monitor, "{path}");
        }
    }

    #[test]
    fn a_process_without_arguments_is_identified_by_its_name() {
        let cases = [
            ("qemu-system-x86", Some(Monitor::Qemu)),
            ("kvm", Some(Monitor::Qemu)),
            ("cloud-hyperviso", Some(Monitor::CloudHypervisor)),
            ("cloud", None),
            ("firecracker", Some(Monitor::Firecracker)),
            ("qemu-nbd", None),
            ("bash", None),
        ];
        for (name, monitor) in cases {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("comm"), format!("{name}\n")).unwrap();
            assert_eq!(Monitor::of_process(folder.path()), monitor, "{name}");
            // A status that can be read counts.
            fs::write(folder.path().join("status"), "Uid:\t0\t0\t0\t0\n").unwrap();
            fs::write(folder.path().join("cmdline"), "sh\0").unwrap();
            assert_eq!(Monitor::of_process(folder.path()), None, "{name}");
        }
    }
}
