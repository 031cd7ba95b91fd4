//! Safe reading of files that a user names.
//!
//! Problem: a name may refer to anything. A device such as `/dev/zero` never ends, opening a named pipe
//! without a writer blocks for ever, and a file of many gigabytes fills the memory.
//!
//! Approach: read only regular files and pipes without a name, which a shell creates for `<(command)` and for
//! standard input, and at most as many bytes as a file of that kind may have.

use crate::units::Size;
use rustix::fs::{OFlags, fcntl_setfl, fstatfs};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Maximum size of a text that a person writes, such as a scenario. The largest in this project has less than
/// 100 KiB.
pub const TEXT_MAX: Size = Size { bytes: 16 << 20 };
/// Maximum size of a topology from lstopo, which writes about 30 MiB for a machine of 8192 CPUs.
pub const HWLOC_MAX: Size = Size { bytes: 256 << 20 };
/// Maximum size of an object file with a scheduler. Those of sched-ext/scx have less than 4 MiB.
pub const OBJECT_MAX: Size = Size { bytes: 64 << 20 };

/// The file system of pipes without a name (`PIPEFS_MAGIC` of `linux/magic.h`).
const PIPEFS: u64 = 0x5049_5045;

/// Reads a file of at most `most` bytes.
///
/// # Errors
/// If the file cannot be read, is not a regular file, or is larger. Does not wait for the other end of a
/// named pipe.
pub fn read_bytes(path: &Path, most: Size) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(most.bytes + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most.bytes {
        true => Err(io::Error::new(ErrorKind::FileTooLarge, format!("it is larger than {most}"))),
        false => Ok(bytes),
    }
}

/// Reads a UTF-8 text file of at most `most` bytes.
///
/// # Errors
/// As [`read_bytes`]; also if the file is not UTF-8.
pub fn read_string(path: &Path, most: Size) -> io::Result<String> {
    String::from_utf8(read_bytes(path, most)?).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let kind = file.metadata()?;
    if kind.is_file() {
        return Ok(file);
    }
    if kind.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if fstatfs(&file)?.f_type as u64 == PIPEFS {
        // The writer of a pipe may take its time.
        fcntl_setfl(&file, OFlags::empty())?;
        return Ok(file);
    }
    Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode};
    use std::io::Write;
    use std::os::fd::AsRawFd;

    const MOST: Size = Size { bytes: 5 };

    fn message(path: &Path) -> String {
        read_bytes(path, MOST).unwrap_err().to_string()
    }

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_string(&path, MOST).unwrap(), "12345");
        std::fs::write(&path, "123456").unwrap();
        assert_eq!(message(&path), "it is larger than 5 B");
        assert_eq!(read_bytes(folder.path(), MOST).unwrap_err().kind(), ErrorKind::IsADirectory);
    }

    #[test]
    fn devices_and_named_pipes_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        for path in [&pipe, Path::new("/dev/zero"), Path::new("/dev/null")] {
            assert_eq!(message(path), "it is not a regular file", "{}", path.display());
        }
    }

    #[test]
    fn a_pipe_of_a_shell_is_read_to_its_end() {
        let (reader, mut writer) = io::pipe().unwrap();
        let path = format!("/dev/fd/{}", reader.as_raw_fd());
        let path = Path::new(&path);
        let text = std::thread::scope(|scope| {
            let text = scope.spawn(|| read_string(path, MOST));
            for part in ["1", "2", "3"] {
                std::thread::sleep(std::time::Duration::from_millis(5));
                writer.write_all(part.as_bytes()).unwrap();
            }
            drop(writer);
            text.join().unwrap()
        });
        assert_eq!(text.unwrap(), "123");
    }
}
