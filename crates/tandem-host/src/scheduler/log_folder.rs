//! The folder of files that outlive the scheduler: [`LOG_FOLDER`], which belongs to the service's user alone,
//! or to root.
//!
//! If it does not exist, it is created for its owner alone. In a folder that other users may write to, one of
//! them could place a link, so nothing is written or read there. No link is followed, not even one of the
//! service's user: merely opening a device may have an effect. A root shell that runs the command by hand
//! takes over what belongs to the service's user; the service gets it back when it starts.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, fchown, fstat, mkdir, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use tandem_file::units::Size;

/// The path of the folder; the service has it as its `LogsDirectory=`.
pub const LOG_FOLDER: &str = "/var/log/tandem";

/// Flags with which everything here is opened.
const ONLY: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

/// Writes a file of the folder, and replaces the previous one; returns its path.
///
/// # Errors
/// If the folder belongs to another user, or the file cannot be written.
pub(super) fn write(folder: &Path, name: &str, text: &str) -> io::Result<PathBuf> {
    match mkdir(folder, Mode::RWXU) {
        Err(Errno::EXIST) => {}
        made => made?,
    }
    let directory = open(folder)?;
    if fstat(&directory)?.st_uid != geteuid().as_raw() {
        fchown(&directory, Some(geteuid()), Some(getegid()))?;
    }
    let unfinished = format!(".{name}");
    match unlinkat(&directory, &unfinished, AtFlags::empty()) {
        Err(Errno::NOENT) => {}
        removed => removed?,
    }
    let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | ONLY;
    let mut file = File::from(openat(&directory, &unfinished, new, Mode::RUSR | Mode::WUSR)?);
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    renameat(&directory, &unfinished, &directory, name)?;
    Ok(folder.join(name))
}

/// Reads a text file of the folder.
///
/// # Errors
/// If there is none, it is not a regular file, not a text of at most `most` bytes, or the folder belongs to
/// another user.
pub(super) fn read(folder: &Path, name: &str, most: Size) -> io::Result<String> {
    let file =
        File::from(openat(open(folder)?, name, OFlags::RDONLY | OFlags::NONBLOCK | ONLY, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut text = String::new();
    match file.take(most.bytes + 1).read_to_string(&mut text)? as u64 > most.bytes {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(text),
    }
}

/// Opens the folder, if no other user may write to it.
fn open(folder: &Path) -> io::Result<OwnedFd> {
    let directory = openat(CWD, folder, OFlags::DIRECTORY | OFlags::RDONLY | ONLY, Mode::empty())?;
    match is_own_alone(&fstat(&directory)?) {
        true => Ok(directory),
        false => {
            let message = format!("{} is writable by other users", folder.display());
            Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
        }
    }
}

/// Root may use a folder that belongs to one user alone.
fn is_own_alone(found: &Stat) -> bool {
    let may_others_write = Mode::from_raw_mode(found.st_mode).intersects(Mode::WGRP | Mode::WOTH);
    let user = geteuid();
    (user.is_root() || found.st_uid == user.as_raw()) && !may_others_write
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    const MOST: Size = Size { bytes: 5 };

    #[test]
    fn a_file_takes_the_place_of_the_one_before_and_is_its_owners() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("tandem");
        write(&folder, "a", "before").unwrap();
        let file = write(&folder, "a", "after").unwrap();
        assert_eq!(file, folder.join("a"));
        assert_eq!(fs::read_to_string(&file).unwrap(), "after");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&file)), (0o700, 0o600));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn no_link_leads_astray() {
        let outside = tempfile::tempdir().unwrap();
        let victim = outside.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let folder = outside.path().join("tandem");
        fs::create_dir(&folder).unwrap();
        for name in ["a", ".a"] {
            symlink(&victim, folder.join(name)).unwrap();
        }
        assert!(read(&folder, "a", MOST).is_err());
        write(&folder, "a", "text").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert_eq!(read(&folder, "a", MOST).unwrap(), "text");

        let link = outside.path().join("link");
        symlink(&folder, &link).unwrap();
        assert!(write(&link, "a", "text").is_err(), "the folder itself is a link");
        assert!(read(&link, "a", MOST).is_err());
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o770)).unwrap();
        let error = write(&folder, "a", "text").unwrap_err().to_string();
        assert!(error.ends_with("tandem is writable by other users"), "{error}");
        assert!(read(&folder, "a", MOST).is_err());
    }

    #[test]
    fn only_short_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str| read(folder.path(), name, MOST).map_err(|error| error.kind());
        fs::write(folder.path().join("full"), "12345").unwrap();
        fs::write(folder.path().join("long"), "123456").unwrap();
        rustix::fs::mkfifoat(CWD, folder.path().join("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
        assert_eq!(of("full"), Ok("12345".into()));
        assert_eq!(of("long"), Err(io::ErrorKind::FileTooLarge));
        assert_eq!(of("pipe"), Err(io::ErrorKind::InvalidInput));
        assert_eq!(of("none"), Err(io::ErrorKind::NotFound));
    }
}
