//! Why a scheduler ended, according to the kernel and the notes of the BPF side (`struct user_exit_info`).

use super::log_folder;
use std::fmt;
use std::io;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use tandem_bpf::types::{data, user_exit_info};
use tandem_file::shown::readable;

/// `SCX_EXIT_UNREG` of the kernel's `enum scx_exit_kind`: it was unloaded from user space.
const KIND_UNLOADED: i32 = 64;
/// `SCX_ECODE_ACT_RESTART` of the kernel's `enum scx_exit_code`: load it again.
const ACTION_RESTART: i64 = 1 << 48;

/// The file of the last dump.
const DUMP_FILE: &str = "ejection.txt";

/// Why the scheduler ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    kind: i32,
    code: i64,
    /// The kind of exit, in the kernel's words.
    pub reason: String,
    /// What happened, in the kernel's words; may be empty.
    pub message: String,
    /// The kernel's state at that moment, many lines: its CPUs, tasks and queues. Empty unless the exit was
    /// an error.
    pub dump: String,
}

impl Exit {
    /// Reads the exit from the object's section `.data`; `None` while the scheduler runs.
    pub(super) fn in_data(bytes: &[u8]) -> Option<Self> {
        let info = bytes.get(offset_of!(data, exit_info)..)?;
        let kind = i32::from_ne_bytes(array_at(info, offset_of!(user_exit_info, kind))?);
        (kind != 0).then_some(())?;
        Some(Self {
            kind,
            code: i64::from_ne_bytes(array_at(info, offset_of!(user_exit_info, exit_code))?),
            reason: text_in(&info[offset_of!(user_exit_info, reason)..offset_of!(user_exit_info, msg)]),
            message: text_in(info.get(offset_of!(user_exit_info, msg)..size_of::<user_exit_info>())?),
            dump: String::new(),
        })
    }

    /// Adds the object's section `.data.exit_info_dump`.
    pub(super) fn set_dump(&mut self, bytes: &[u8]) {
        self.dump = text_in(bytes);
    }

    /// Whether it was unloaded at the user's request.
    pub fn is_unloaded(&self) -> bool {
        self.kind == KIND_UNLOADED
    }

    /// Whether the kernel asks to load it again: CPUs came or went.
    pub fn is_restart(&self) -> bool {
        self.code & ACTION_RESTART != 0
    }
}

#[cfg(test)]
impl Exit {
    /// An ejection for this reason.
    pub(super) fn with_reason(reason: &str) -> Self {
        Self { kind: 1, code: 0, reason: reason.into(), message: String::new(), dump: String::new() }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message.as_str() {
            "" => write!(f, "{}", self.reason),
            message => write!(f, "{} ({message})", self.reason),
        }
    }
}

/// Writes a dump to the folder for operators, and replaces the previous one; returns the path.
///
/// # Errors
/// If the folder belongs to another user, or the file cannot be written.
pub fn keep_dump(folder: &Path, exit: &Exit) -> io::Result<PathBuf> {
    let text = format!("{exit}\n\n{}\n", exit.dump);
    // Names of tasks may contain any characters.
    log_folder::write(folder, DUMP_FILE, &readable(&text, &['\n', '\t']))
}

fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

/// The text before the first zero byte.
fn text_in(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn data_with(kind: i32, code: i64, reason: &str, message: &str) -> Vec<u8> {
        let mut bytes = vec![0; size_of::<data>()];
        let info = &mut bytes[offset_of!(data, exit_info)..];
        let mut write =
            |offset: usize, value: &[u8]| info[offset..offset + value.len()].copy_from_slice(value);
        write(offset_of!(user_exit_info, kind), &kind.to_ne_bytes());
        write(offset_of!(user_exit_info, exit_code), &code.to_ne_bytes());
        write(offset_of!(user_exit_info, reason), reason.as_bytes());
        write(offset_of!(user_exit_info, msg), message.as_bytes());
        bytes
    }

    fn stall(dump: &str) -> Exit {
        let mut exit = Exit::in_data(&data_with(1026, 0, "runnable task stall", "sh[7]")).unwrap();
        exit.set_dump(dump.as_bytes());
        exit
    }

    #[test]
    fn a_dump_cannot_speak_to_a_terminal() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("tandem");
        let file = keep_dump(&folder, &stall("CPU 0:\n  R sh\u{1b}[2J[7] -5ms\n\0rest of the room")).unwrap();
        assert_eq!(file, folder.join("ejection.txt"));
        let expected = "runnable task stall (sh[7])\n\nCPU 0:\n  R sh\\u{1b}[2J[7] -5ms\n";
        assert_eq!(fs::read_to_string(&file).unwrap(), expected);
    }

    #[test]
    fn a_running_scheduler_has_no_exit() {
        assert_eq!(Exit::in_data(&data_with(0, 0, "", "")), None);
        assert_eq!(Exit::in_data(&[]), None);
    }

    #[test]
    fn distinguishes_unloading_restart_and_ejection() {
        // Kinds of the kernel's enum scx_exit_kind: 64 unregistered by the user, 66 by the kernel, 1026 a
        // stall.
        let unloaded = Exit::in_data(&data_with(64, 0, "unregistered from user space", "")).unwrap();
        assert!(unloaded.is_unloaded() && !unloaded.is_restart());
        assert_eq!(unloaded.to_string(), "unregistered from user space");

        let hotplug = 1 << 48 | 1 << 32;
        let restart = Exit::in_data(&data_with(66, hotplug, "unregistered from the main kernel", "cpu 3"));
        assert!(restart.as_ref().unwrap().is_restart() && !restart.unwrap().is_unloaded());

        let stall = Exit::in_data(&data_with(1026, 0, "runnable task stall", "sh[7] failed to run")).unwrap();
        assert!(!stall.is_restart() && !stall.is_unloaded());
        assert_eq!(stall.to_string(), "runnable task stall (sh[7] failed to run)");
    }
}
