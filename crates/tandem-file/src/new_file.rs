//! Files that appear under their name when they are complete.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file under construction, beside its final place and under a hidden name. [`NewFile::complete`] gives it
/// its own name and replaces an older file; dropping it before removes it. A process that is killed leaves
/// the hidden file behind.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    unfinished: PathBuf,
    path: PathBuf,
    is_complete: bool,
}

impl NewFile {
    /// Creates the hidden file.
    ///
    /// # Errors
    /// If no file can be created there, or what is there is no regular file.
    pub fn create(path: &Path) -> io::Result<Self> {
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
        let unfinished = path.with_file_name(format!(".{}.{}", name.display(), std::process::id()));
        // A killed process left a file of this name, or another user placed a link here.
        match fs::remove_file(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = File::create_new(&unfinished)?;
        Ok(Self { file, unfinished, path: path.to_owned(), is_complete: false })
    }

    /// Makes the file appear under its name.
    ///
    /// # Errors
    /// If the content does not reach the disk.
    pub fn complete(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.unfinished, &self.path)?;
        self.is_complete = true;
        Ok(())
    }
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
        if !self.is_complete {
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
