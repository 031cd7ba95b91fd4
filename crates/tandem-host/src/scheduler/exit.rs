//! Why a scheduler ended, as the kernel tells it and the BPF side notes it (`struct user_exit_info`).

use std::fmt;
use std::mem::offset_of;
use tandem_bpf::types::{data, user_exit_info};

/// `SCX_EXIT_UNREG` of the kernel's `enum scx_exit_kind`: it was unloaded from user space.
const KIND_UNLOADED: i32 = 64;
/// `SCX_ECODE_ACT_RESTART` of the kernel's `enum scx_exit_code`: load it again.
const ACTION_RESTART: i64 = 1 << 48;

/// Why the scheduler ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    kind: i32,
    code: i64,
    /// What kind of end it was, in the kernel's words.
    pub reason: String,
    /// What happened, in the kernel's words; may be empty.
    pub message: String,
}

impl Exit {
    /// Reads it out of the object's section `.data`; `None` while the scheduler runs.
    pub(super) fn in_data(bytes: &[u8]) -> Option<Self> {
        let info = bytes.get(offset_of!(data, exit_info)..)?;
        let kind = i32::from_ne_bytes(array_at(info, offset_of!(user_exit_info, kind))?);
        (kind != 0).then_some(())?;
        Some(Self {
            kind,
            code: i64::from_ne_bytes(array_at(info, offset_of!(user_exit_info, exit_code))?),
            reason: text_in(&info[offset_of!(user_exit_info, reason)..offset_of!(user_exit_info, msg)]),
            message: text_in(info.get(offset_of!(user_exit_info, msg)..size_of::<user_exit_info>())?),
        })
    }

    /// Whether it was unloaded as the user asked.
    pub fn is_unloaded(&self) -> bool {
        self.kind == KIND_UNLOADED
    }

    /// Whether the kernel asks to load it again: CPUs came or went.
    pub fn is_restart(&self) -> bool {
        self.code & ACTION_RESTART != 0
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

    #[test]
    fn a_running_scheduler_has_no_exit() {
        assert_eq!(Exit::in_data(&data_with(0, 0, "", "")), None);
        assert_eq!(Exit::in_data(&[]), None);
    }

    #[test]
    fn tells_unloading_restart_and_ejection_apart() {
        // Kinds of the kernel's enum scx_exit_kind: 64 unregistered by the user, 66 by the kernel, 1026 a stall.
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
