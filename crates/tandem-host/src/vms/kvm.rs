//! Evidence from the kernel that a process runs a VM.
//!
//! A process chooses its own name and those of its threads and files. Only KVM makes files called
//! `anon_inode:kvm-vm` and `anon_inode:kvm-vcpu:0`: the kernel's `virt/kvm/kvm_main.c`. They appear in two
//! places, whatever the monitor's name:
//!
//! - `/proc/PID/fd`, which root and the process's own user may read;
//! - `/proc/PID/maps`, which every process that may trace it can read: a vCPU shares a page with user space,
//!   which every monitor maps.
//!
//! Limits: this module misses a VM whose process opened more descriptors before it than the module checks. A
//! path that a user chooses begins with `/` in both places.

use crate::guarded::{ProcessFile, read_of_process};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

/// Most descriptors that are checked, for a process that seems to be a monitor, and for any other. A monitor
/// opens its VM early; each of its devices takes some descriptors.
const OF_MONITOR_MAX: usize = 4096;
const OF_OTHER_MAX: usize = 512;

/// Whether a process of this user has a VM of KVM's, by its directory in `/proc`; `None` if the kernel does
/// not say.
pub(super) fn has_vm(directory: &Path, user: u32, seems_a_monitor: bool) -> Option<bool> {
    let most = if seems_a_monitor { OF_MONITOR_MAX } else { OF_OTHER_MAX };
    if let Ok(has_one) = has_descriptor(directory, most) {
        return Some(has_one);
    }
    let maps = read_of_process(directory, ProcessFile::Maps, user)?;
    Some(maps.split(|&byte| byte == b'\n').any(maps_vcpu))
}

/// Whether one of the first descriptors is a VM's.
///
/// # Errors
/// If the kernel does not say. The descriptors of a user's own processes are listed even if these have rights
/// that the caller lacks, but their links cannot be read then.
fn has_descriptor(directory: &Path, most: usize) -> io::Result<bool> {
    for descriptor in fs::read_dir(directory.join("fd"))?.take(most) {
        match fs::read_link(descriptor?.path()) {
            Ok(link) if link == Path::new("anon_inode:kvm-vm") => return Ok(true),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(error),
            // The link belongs to another user's process, or the descriptor was closed meanwhile.
            _ => {}
        }
    }
    Ok(false)
}

/// Whether a line of `maps` is the page of a vCPU.
fn maps_vcpu(line: &[u8]) -> bool {
    let line = String::from_utf8_lossy(line);
    // Addresses, rights, offset, device, inode; the path may contain blanks.
    line.split_ascii_whitespace().nth(5).is_some_and(|path| path.starts_with("anon_inode:kvm-vcpu:"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_descriptor_identifies_a_vm() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(has_vm(folder.path(), 0, true), None);
        let fd = folder.path().join("fd");
        fs::create_dir(&fd).unwrap();
        symlink("/dev/kvm", fd.join("3")).unwrap();
        symlink("/tmp/anon_inode:kvm-vm", fd.join("4")).unwrap();
        assert_eq!(has_vm(folder.path(), 0, true), Some(false));
        symlink("anon_inode:kvm-vm", fd.join("5")).unwrap();
        assert_eq!(has_vm(folder.path(), 0, true), Some(true));
    }

    #[test]
    fn a_process_with_more_rights_does_not_tell_of_its_descriptors() {
        let shell = "exec sleep 1000";
        let mut child = std::process::Command::new("sh").args(["-c", shell]).spawn().unwrap();
        let directory = std::path::PathBuf::from(format!("/proc/{}", child.id()));
        assert!(!has_descriptor(&directory, 10).unwrap());
        // Only root can have fewer rights than a process of its own.
        if rustix::process::geteuid().is_root() {
            let told = std::thread::spawn(move || {
                crate::privileges::keep_only(crate::privileges::Capabilities::empty()).unwrap();
                has_descriptor(&directory, 10)
            });
            assert_eq!(told.join().unwrap().unwrap_err().kind(), ErrorKind::PermissionDenied);
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn so_does_the_page_of_a_vcpu() {
        let folder = tempfile::tempdir().unwrap();
        let maps = |text: &str| {
            fs::write(folder.path().join("maps"), text).unwrap();
            has_vm(folder.path(), 0, true)
        };
        let other = "7f0000000000-7f0040000000 rw-p 00000000 00:00 0 \n";
        let own = "7f0040000000-7f0040001000 rw-s 00000000 00:0e 1 /tmp/anon_inode:kvm-vcpu:0\n7f1-7f2 rw-s 0 00:0e 1 /a anon_inode:kvm-vcpu:0\n";
        assert_eq!(maps(&[other, own].concat()), Some(false));
        let vcpu = "7f0040001000-7f0040004000 rw-s 00000000 00:0e 1043                       anon_inode:kvm-vcpu:0\n";
        assert_eq!(maps(&[other, own, vcpu].concat()), Some(true));
    }

    #[test]
    fn this_process_runs_none() {
        assert_eq!(has_vm(Path::new("/proc/self"), 0, true), Some(false));
    }
}
