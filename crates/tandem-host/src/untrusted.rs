//! What strangers have written: the names, arguments and paths of their processes.
//!
//! **Problem.** Whoever can start a process chooses its name, its arguments and the files that these name. A tool of root's that shows such
//! a text speaks to a terminal or a log in the stranger's words; one that opens such a path waits at a FIFO, reads a device without an
//! end, or reads to the stranger what the stranger may not read.
//!
//! **Approach.** Such a text has the type [`Untrusted`], which neither a terminal nor a file system takes. It has three doors:
//! [`Untrusted::text`], to compare and to parse; [`Untrusted::shown`], escaped and of a bounded length; and [`read_file`], for
//! a path, which opens nothing but a file that its owner could have read, and reads a bounded part of it.
//!
//! **Limits.** A name that looks like another one, in another alphabet, is shown as it is. A file system may let whoever reads wait: see
//! [`guarded`](crate::guarded).

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, open, openat};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use tandem_file::shown::readable;

/// Longest text that is shown, characters: names of libvirt's VMs have at most 255 bytes.
pub const SHOWN_MAX: usize = 255;

/// Folders of managers that run as root, whose files others may not read: `driver_qemu.go` of LXD and Incus.
const MANAGERS: [&str; 6] =
    ["/run/incus/", "/var/log/incus/", "/var/lib/incus/", "/var/snap/lxd/", "/var/log/lxd/", "/var/lib/lxd/"];

/// A text of a stranger.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Untrusted(String);

impl Untrusted {
    /// Marks a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, to be compared and parsed; neither to be shown nor to be opened.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The text for people: a line of [`SHOWN_MAX`] characters at most, with escapes in the place of what speaks to a terminal, is
    /// invisible, or turns the direction of writing.
    pub fn shown(&self) -> String {
        // What is left out needs no escapes, of which a text may have a million.
        let start: String = self.0.chars().take(SHOWN_MAX + 1).collect();
        let text = readable(&start, &[]);
        match text.char_indices().nth(SHOWN_MAX) {
            None => text,
            Some(_) => text.chars().take(SHOWN_MAX - 1).chain(['…']).collect(),
        }
    }
}

/// The start of a file that a process of `user` has named, `max_bytes` at most; nothing if there is none, it is no file, or it is one
/// that the user could not have read: not the user's own, not readable for all, nor in a folder of a manager's.
///
/// Neither a FIFO, nor a device, nor a socket is opened for that.
pub fn read_file(path: &Path, user: u32, max_bytes: u64) -> Option<Vec<u8>> {
    // A descriptor of the path alone opens nothing.
    let found = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let stat = fstat(&found).ok()?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    let is_for_all = Mode::from_raw_mode(stat.st_mode).contains(Mode::ROTH);
    if !is_file || !(stat.st_uid == user || is_for_all || stat.st_uid == 0 && is_of_manager(&found)) {
        return None;
    }
    let same = format!("/proc/self/fd/{}", found.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(open(same, flags, Mode::empty()).ok()?);
    let mut bytes = Vec::new();
    file.take(max_bytes).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Whether a file really is in one of the managers' folders, whatever the path said.
fn is_of_manager(file: &OwnedFd) -> bool {
    let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default();
    path.to_str().is_some_and(|path| MANAGERS.iter().any(|folder| path.starts_with(folder)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::os::unix::net::UnixListener;

    #[test]
    fn what_is_shown_is_a_short_line() {
        let shown = |text: &str| Untrusted::new(text).shown();
        assert_eq!(shown("web-ä"), "web-ä");
        assert_eq!(shown("a\u{1b}[2J\nb\u{202e}c\u{200b}"), "a\\u{1b}[2J\\nb\\u{202e}c\\u{200b}");
        let long = shown(&"x".repeat(1 << 20));
        assert_eq!(long.chars().count(), SHOWN_MAX);
        assert!(long.ends_with('…'));
        assert_eq!(shown(&"x".repeat(SHOWN_MAX)), "x".repeat(SHOWN_MAX));
    }

    #[test]
    fn nothing_but_files_that_the_user_may_read_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let write = |name: &str, owner: u32, mode: u32| {
            fs::write(at(name), "text").unwrap();
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
            // Only root can give files away.
            let _ = chown(at(name), Some(owner), Some(owner));
        };
        let read = |name: &str| read_file(&at(name), 1000, 3);
        write("public", 0, 0o644);
        assert_eq!(read("public").as_deref(), Some(&b"tex"[..]));
        rustix::fs::mknodat(CWD, at("fifo"), FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        symlink("/dev/zero", at("device")).unwrap();
        for name in ["fifo", "socket", "folder", "device", "missing"] {
            assert_eq!(read(name), None, "{name}");
        }
        if !rustix::process::geteuid().is_root() {
            return;
        }
        write("own", 1000, 0o600);
        write("others", 1001, 0o600);
        write("roots", 0, 0o640);
        assert!(read("own").is_some());
        assert_eq!((read("others"), read("roots")), (None, None));
        symlink(at("roots"), at("link")).unwrap();
        assert_eq!(read("link"), None, "a link gives no right");
    }

    proptest! {
        #[test]
        fn no_text_speaks_to_a_terminal(text in "\\PC*|(\\p{C}|.){0,200}") {
            let shown = Untrusted::new(text).shown();
            prop_assert!(shown.chars().count() <= SHOWN_MAX);
            prop_assert!(!shown.contains(char::is_control));
        }
    }
}
