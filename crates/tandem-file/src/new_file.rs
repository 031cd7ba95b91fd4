//! Files that appear under their name when they are complete.

use rustix::fs::{AtFlags, CWD, OFlags, linkat};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Who may read and write a new file, before the umask.
const MODE: u32 = 0o666;

/// A file under construction. [`NewFile::complete`] gives it its own name and replaces an older file; dropping
/// it before removes it.
///
/// It has no name until then, so that nothing is left of it however the process ends. Where the file system
/// cannot have such files, it has a hidden name beside its final place, which a process that is killed leaves
/// behind.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    unfinished: PathBuf,
    path: PathBuf,
    /// There is something under the hidden name.
    is_named: bool,
}

impl NewFile {
    /// Creates it, for those to read whom the umask lets.
    ///
    /// # Errors
    /// If no file can be created there, or what is there is no regular file.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::create_for(path, MODE)
    }

    /// Creates it with this mode, less what the umask takes away.
    ///
    /// # Errors
    /// As [`NewFile::create`].
    pub fn create_for(path: &Path, mode: u32) -> io::Result<Self> {
        let wrong = |message: &str| io::Error::new(io::ErrorKind::InvalidInput, message);
        match fs::metadata(path) {
            Ok(known) if known.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            // A device, or a pipe, would be gone.
            Ok(known) if !known.is_file() => return Err(wrong("it is no regular file")),
            _ => {}
        }
        if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(wrong("the path ends in a slash, as that of a folder"));
        }
        let Some(name) = path.file_name() else {
            return Err(wrong("the path does not end in the name of a file"));
        };
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}", std::process::id()));
        let unfinished = path.with_file_name(hidden);
        // A killed process left a file of this name, or another user placed a link here.
        match fs::remove_file(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let (file, is_named) = match unnamed(path, mode) {
            Some(file) => (file, false),
            None => {
                let mut options = OpenOptions::new();
                (options.write(true).create_new(true).mode(mode).open(&unfinished)?, true)
            }
        };
        Ok(Self { file, unfinished, path: path.to_owned(), is_named })
    }

    /// Makes the file appear under its name.
    ///
    /// # Errors
    /// If the content does not reach the disk.
    pub fn complete(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        if !self.is_named {
            // A link replaces no older file, but renaming does.
            linkat(CWD, by_number(&self.file), CWD, &self.unfinished, AtFlags::SYMLINK_FOLLOW)?;
            self.is_named = true;
        }
        fs::rename(&self.unfinished, &self.path)?;
        self.is_named = false;
        Ok(())
    }
}

/// A file without a name in the folder of that path, if it can be given one later.
fn unnamed(path: &Path, mode: u32) -> Option<File> {
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let flags = OFlags::TMPFILE.bits().cast_signed();
    let file = OpenOptions::new().write(true).custom_flags(flags).mode(mode).open(folder).ok()?;
    by_number(&file).symlink_metadata().is_ok().then_some(file)
}

/// The path of an open file, as proc(5) has it.
fn by_number(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if self.is_named {
            // The error that led here is the one that counts.
            let _ = fs::remove_file(&self.unfinished);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_takes_the_place_of_the_old_one_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        fs::write(&path, "old").unwrap();
        let mut file = NewFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        file.complete().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(names(folder.path()), ["a.txt"]);
    }

    #[test]
    fn an_unfinished_file_leaves_no_name_and_has_the_mode_that_it_was_given() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        let mut file = NewFile::create_for(&path, 0o600).unwrap();
        // As on a process that is killed here; file systems without such files are another matter.
        if !file.is_named {
            assert_eq!(names(folder.path()), [""; 0]);
        }
        file.write_all(b"new").unwrap();
        file.complete().unwrap();
        assert_eq!(names(folder.path()), ["a.txt"]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn names_that_are_no_text_are_names() {
        use std::os::unix::ffi::OsStrExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(std::ffi::OsStr::from_bytes(b"\xff"));
        NewFile::create(&path).unwrap().complete().unwrap();
        assert!(path.exists());
    }

    #[test]
    fn no_link_leads_astray() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let path = folder.path().join("a.txt");
        for name in ["a.txt".to_owned(), format!(".a.txt.{}", std::process::id())] {
            std::os::unix::fs::symlink(&victim, folder.path().join(name)).unwrap();
        }
        let mut file = NewFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        file.complete().unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert!(!path.is_symlink());
    }

    #[test]
    fn nothing_is_left_of_a_file_that_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        drop(NewFile::create(&folder.path().join("a.txt")).unwrap());
        assert_eq!(names(folder.path()), [""; 0]);
    }

    #[test]
    fn what_can_never_become_a_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().to_owned(), folder.path().join("no folder/a.txt"), PathBuf::from("..")] {
            assert!(NewFile::create(&path).is_err(), "{}", path.display());
        }
    }

    #[test]
    fn a_device_and_a_folder_to_be_are_refused() {
        assert!(NewFile::create(Path::new("/dev/null")).is_err());
        let folder = tempfile::tempdir().unwrap();
        let slash = format!("{}/new/", folder.path().display());
        assert!(NewFile::create(Path::new(&slash)).is_err());
        assert!(names(folder.path()).is_empty());
    }
}
