//! Untrusted text: the names, arguments and paths of other users' processes.
//!
//! **Problem.** A user who can start a process chooses its name, its arguments and the files that these name.
//! A tool that runs as root and prints such a text passes the user's control characters to a terminal or a
//! log. If it opens such a path, it may wait at a FIFO, read a device without an end, or reveal a file that
//! the user may not read.
//!
//! **Approach.** Such a text has the type [`Untrusted`], which neither a terminal nor a file system accepts.
//! It has three accessors: [`Untrusted::text`], to compare and to parse; [`Untrusted::shown`], escaped and of
//! limited length; and [`read_file`], for a path, which opens only a file that its owner could have read, and
//! reads a limited part of it.
//!
//! **Limits.** A name that imitates another one in another alphabet is shown as it is. A file system may
//! block a reader: see [`guarded`](crate::guarded).

use rustix::fs::{
    CWD, FileType, Mode, OFlags, PROC_SUPER_MAGIC, Stat, fstat, fstatfs, open, openat, readlinkat,
};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use tandem_file::shown::readable;

/// Longest text that is shown, characters: names of libvirt's VMs have at most 255 bytes.
pub const SHOWN_MAX: usize = 255;

/// Folders of managers that run as root, with files that others may not read: `driver_qemu.go` of LXD and
/// Incus.
const MANAGERS: [&str; 6] =
    ["/run/incus/", "/var/log/incus/", "/var/lib/incus/", "/var/snap/lxd/", "/var/log/lxd/", "/var/lib/lxd/"];

/// Most symbolic links on the way to a file: the kernel's `MAXSYMLINKS`.
const LINKS_MAX: u32 = 40;

/// A text that an untrusted user wrote.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Untrusted(String);

impl Untrusted {
    /// Marks a text as untrusted.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, to compare and parse it; not for display, and not as a path.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The text for display: one line of at most [`SHOWN_MAX`] characters, with escapes for characters that
    /// control a terminal, are invisible, or change the direction of writing.
    pub fn shown(&self) -> String {
        // Characters beyond the limit need no escapes; a text may have a million of them.
        let start: String = self.0.chars().take(SHOWN_MAX + 1).collect();
        // Two blanks in a row would look like columns of a table.
        let text = readable(&start, &[]).replace("  ", " \\u{20}");
        match text.char_indices().nth(SHOWN_MAX) {
            None => text,
            Some(_) => text.chars().take(SHOWN_MAX - 1).chain(['…']).collect(),
        }
    }
}

/// The start of a file that a process of `user` has named, by its path from a folder on, at most `max_bytes`.
/// `None` if there is no such file, it is not a regular file, or the user could not have read it: it is
/// neither the user's own, nor readable for all in folders that all may enter, nor root's in a folder of a
/// manager. Rights of groups do not count.
///
/// This opens no FIFO, device or socket, and no file of `/proc`, which may have side effects when it is read.
pub fn read_file(start: &Path, path: &str, user: u32, max_bytes: u64) -> Option<Vec<u8>> {
    let found = Walk::from(start, user)?.go(path)?;
    let stat = fstat(&found.file).ok()?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_size > 0;
    let is_for_all = found.is_for_all && Mode::from_raw_mode(stat.st_mode).contains(Mode::ROTH);
    // In another root, anything may be at the paths of the managers' folders.
    let is_of_manager = || start == Path::new("/") && stat.st_uid == 0 && is_of_manager(&found.file);
    if !is_file || !(stat.st_uid == user || is_for_all || is_of_manager()) {
        return None;
    }
    if fstatfs(&found.file).is_ok_and(|system| system.f_type == PROC_SUPER_MAGIC) {
        return None;
    }
    let same = format!("/proc/self/fd/{}", found.file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(open(same, flags, Mode::empty()).ok()?);
    let mut bytes = Vec::new();
    file.take(max_bytes).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Whether a file really is in one of the managers' folders, whatever its path.
fn is_of_manager(file: &OwnedFd) -> bool {
    let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap_or_default();
    path.to_str().is_some_and(|path| MANAGERS.iter().any(|folder| path.starts_with(folder)))
}

/// Follows a path folder by folder, as the kernel does; but with a user's rights, and with descriptors that
/// open nothing. Root, as which this runs, may enter any folder.
struct Walk {
    start: OwnedFd,
    at: OwnedFd,
    user: u32,
    /// All users, or this user, may enter the folders so far.
    is_for_all: bool,
}

/// The target of a path.
struct WalkTarget {
    file: OwnedFd,
    /// Whether the user may enter all folders on the way.
    is_for_all: bool,
}

impl Walk {
    fn from(start: &Path, user: u32) -> Option<Self> {
        let open =
            || openat(CWD, start, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok();
        Some(Self { start: open()?, at: open()?, user, is_for_all: true })
    }

    fn go(mut self, path: &str) -> Option<WalkTarget> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut links = 0;
        // The rest of the path, its next part last.
        let mut parts: Vec<Vec<u8>> = parts_of(path.as_bytes()).collect();
        while let Some(part) = parts.pop() {
            let folder = fstat(&self.at).ok()?;
            let mode = Mode::from_raw_mode(folder.st_mode);
            let may_enter =
                mode.contains(Mode::XOTH) || folder.st_uid == self.user && mode.contains(Mode::XUSR);
            self.is_for_all &= may_enter;
            if part == b".." && is_same(&folder, &fstat(&self.start).ok()?) {
                continue;
            }
            let next = openat(&self.at, &part[..], flags, Mode::empty()).ok()?;
            match FileType::from_raw_mode(fstat(&next).ok()?.st_mode) {
                FileType::Symlink => {
                    links += 1;
                    if links > LINKS_MAX {
                        return None;
                    }
                    let target = readlinkat(&next, "", Vec::new()).ok()?.into_bytes();
                    if target.starts_with(b"/") {
                        self.at = self.start.try_clone().ok()?;
                    }
                    parts.extend(parts_of(&target));
                }
                FileType::Directory => self.at = next,
                _ if parts.is_empty() => return Some(WalkTarget { file: next, is_for_all: self.is_for_all }),
                _ => return None,
            }
        }
        // The path leads to a folder.
        None
    }
}

/// The parts of a path, the last one first.
fn parts_of(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    path.rsplit(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".").map(<[u8]>::to_vec)
}

fn is_same(a: &Stat, b: &Stat) -> bool {
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
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
        assert_eq!(shown("a   b\u{a0}\u{3000}c"), "a \\u{20} b\\u{a0}\\u{3000}c");
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
            // Only root can change the owner of files.
            let _ = chown(at(name), Some(owner), Some(owner));
        };
        // The folder is the test's alone.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let read = |name: &str| read_file(folder.path(), name, 1000, 3);
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
        // Absolute within the start, as links of another root are.
        symlink("/roots", at("link")).unwrap();
        symlink("../own", at("up")).unwrap();
        symlink("loop", at("loop")).unwrap();
        assert_eq!((read("link"), read("loop")), (None, None), "a link gives no right");
        assert!(read("up").is_some(), "above the start is the start");

        fs::create_dir(at("closed")).unwrap();
        write("closed/public", 0, 0o644);
        write("closed/own", 1000, 0o644);
        symlink("closed/public", at("into")).unwrap();
        fs::set_permissions(at("closed"), fs::Permissions::from_mode(0o700)).unwrap();
        for name in ["closed/public", "./closed//public", "closed/../closed/public", "into"] {
            assert_eq!(read(name), None, "{name}: only root may enter the folder");
        }
        assert!(read("closed/own").is_some());
        fs::set_permissions(at("closed"), fs::Permissions::from_mode(0o711)).unwrap();
        assert!(read("closed/public").is_some() && read("into").is_some());
    }

    #[test]
    fn files_with_side_effects_are_not_read() {
        let root = Path::new("/");
        assert_eq!(read_file(root, "proc/version", 1000, 3), None);
        // In another root, which a process may create.
        let fake = tempfile::tempdir().unwrap();
        let folder = fake.path().join("run/incus/x");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("qemu.conf"), "text").unwrap();
        fs::set_permissions(folder.join("qemu.conf"), fs::Permissions::from_mode(0o600)).unwrap();
        let stranger = rustix::process::getuid().as_raw() + 1;
        assert_eq!(read_file(fake.path(), "run/incus/x/qemu.conf", stranger, 3), None);
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
