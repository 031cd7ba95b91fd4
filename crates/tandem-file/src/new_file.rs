//! Files that appear when they are complete.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that is being written beside the place where it will be, under a hidden name. It appears under its own name,
/// and takes the place of an older file, with [`NewFile::complete`]; nothing is left of it if it is dropped before.
/// A process that is killed leaves the hidden file behind.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    unfinished: PathBuf,
    path: PathBuf,
    is_complete: bool,
}

impl NewFile {
    /// Starts to write a file.
    ///
    /// # Errors
    /// If no file can be made there.
    pub fn create(path: &Path) -> io::Result<Self> {
        if path.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let Some(name) = path.file_name() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it does not end in the name of a file"));
        };
        let unfinished = path.with_file_name(format!(".{}.{}", name.display(), std::process::id()));
        // What lies there is of a process that was killed, or a link that somebody has laid.
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
    /// If what was written does not reach the disk.
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
            // There is nobody to tell; the error that led here is the one that counts.
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
}
