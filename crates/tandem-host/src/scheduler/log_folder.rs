//! The folder of what outlives the scheduler: [`LOG_FOLDER`], which is root's alone.
//!
//! It is made for its owner alone if it is not there. In one that others may write to, somebody could have laid a link: nothing is
//! written there, and no link is followed.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, fstat, lstat, mkdir, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Where it is; the service has it as its `LogsDirectory=`.
pub const LOG_FOLDER: &str = "/var/log/tandem";

/// Writes a file of the folder, in the place of the one before; returns its path.
///
/// # Errors
/// If the folder is somebody else's, or the file cannot be written.
pub(super) fn write(folder: &Path, name: &str, text: &str) -> io::Result<PathBuf> {
    match mkdir(folder, Mode::RWXU) {
        Err(Errno::EXIST) => {}
        made => made?,
    }
    let only = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = openat(CWD, folder, OFlags::DIRECTORY | OFlags::RDONLY | only, Mode::empty())?;
    if !is_own_alone(&fstat(&directory)?) {
        let message = format!("{} may be written to by others", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    let unfinished = format!(".{name}");
    match unlinkat(&directory, &unfinished, AtFlags::empty()) {
        Err(Errno::NOENT) => {}
        removed => removed?,
    }
    let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | only;
    let mut file = File::from(openat(&directory, &unfinished, new, Mode::RUSR | Mode::WUSR)?);
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    renameat(&directory, &unfinished, &directory, name)?;
    Ok(folder.join(name))
}

/// Whether the folder is the user's, and nobody else may write to it.
pub(super) fn is_own(folder: &Path) -> bool {
    lstat(folder).is_ok_and(|found| is_own_alone(&found))
}

fn is_own_alone(found: &Stat) -> bool {
    let may_others_write = Mode::from_raw_mode(found.st_mode).intersects(Mode::WGRP | Mode::WOTH);
    found.st_uid == geteuid().as_raw() && !may_others_write
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

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
        write(&folder, "a", "text").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert!(!folder.join("a").is_symlink());

        let link = outside.path().join("link");
        symlink(&folder, &link).unwrap();
        assert!(write(&link, "a", "text").is_err(), "the folder itself is a link");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o770)).unwrap();
        let error = write(&folder, "a", "text").unwrap_err().to_string();
        assert!(error.ends_with("tandem may be written to by others"), "{error}");
    }
}
