//! Writes archives in cpio's "new ASCII" format, from which Linux makes the first file system of a guest.
//!
//! Each entry is a header of hexadecimal numbers, the name and the contents, both padded to four bytes. The
//! kernel's `Documentation/driver-api/early-userspace/buffer-format.rst` describes the format.

use std::collections::BTreeSet;
use std::path::{Component, Path};

const MAGIC: &str = "070701";
const DIRECTORY: u32 = 0o040755;
const EXECUTABLE: u32 = 0o100755;
const SYMBOLIC_LINK: u32 = 0o120777;
/// Name of the entry that ends an archive.
const TRAILER: &str = "TRAILER!!!";

/// An archive in memory. Paths are those in the guest, absolute.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: BTreeSet<String>,
}

impl Archive {
    /// Adds a directory and those above it, unless they are there.
    pub fn directory(&mut self, path: &Path) {
        if let Some(parent) = path.parent() {
            self.directory(parent);
            self.entry(path, DIRECTORY, &[]);
        }
    }

    /// Adds a file that may be executed, unless it is there.
    pub fn file(&mut self, path: &Path, contents: &[u8]) {
        self.directory(path.parent().expect("a file has a directory"));
        self.entry(path, EXECUTABLE, contents);
    }

    /// Adds a symbolic link, unless it is there.
    pub fn link(&mut self, path: &Path, target: &str) {
        self.directory(path.parent().expect("a link has a directory"));
        self.entry(path, SYMBOLIC_LINK, target.as_bytes());
    }

    /// Whether there is an entry for the path.
    pub fn contains(&self, path: &Path) -> bool {
        self.entries.contains(&name(path))
    }

    /// The complete archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.append(TRAILER, 0, 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &Path, mode: u32, contents: &[u8]) {
        let name = name(path);
        if self.entries.insert(name.clone()) {
            // Files without a number of their own would count as links to each other.
            let number = u32::try_from(self.entries.len()).expect("few files");
            self.append(&name, number, mode, contents);
        }
    }

    fn append(&mut self, name: &str, number: u32, mode: u32, contents: &[u8]) {
        let size = u32::try_from(contents.len()).expect("no file of 4 GiB");
        let name_size = u32::try_from(name.len() + 1).expect("short names");
        let [owner, group, links, time, device] = [0, 0, 1, 0, 0];
        let check = 0;
        let fields =
            [number, mode, owner, group, links, time, size, device, device, device, device, name_size, check];
        self.bytes.extend(MAGIC.bytes());
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// The path without the leading slash, as archives name it.
fn name(path: &Path) -> String {
    let parts = path.components().filter(|part| *part != Component::RootDir);
    parts.collect::<std::path::PathBuf>().to_str().expect("paths in the guest are text").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_header_name_and_contents_on_boundaries_of_four() {
        let mut archive = Archive::default();
        archive.file(Path::new("/init"), b"abc");
        let bytes = archive.finish();
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.len() % 4, 0);
        let header = "07070100000001000081ed00000000000000000000000100000000\
                      0000000300000000000000000000000000000000\
                      0000000500000000";
        assert_eq!(&text[..110], header);
        // Header and name are 115 bytes, the contents 3.
        assert_eq!(&text[110..120], "init\0\0abc\0");
        assert!(text[120..].starts_with(MAGIC));
        assert!(text.trim_end_matches('\0').ends_with(TRAILER));
    }

    #[test]
    fn directories_come_before_what_is_in_them_and_once() {
        let mut archive = Archive::default();
        archive.file(Path::new("/usr/bin/a"), b"");
        archive.link(Path::new("/usr/bin/b"), "a");
        archive.file(Path::new("/usr/bin/a"), b"again");
        assert!(archive.contains(Path::new("/usr/bin/b")) && !archive.contains(Path::new("/usr/bin/c")));
        let text = String::from_utf8(archive.finish()).unwrap();
        let position = |name: &str| text.find(&format!("{name}\0")).unwrap();
        assert!(position("usr") < position("usr/bin") && position("usr/bin") < position("usr/bin/a"));
        assert_eq!(text.matches("usr/bin/a\0").count(), 1);
        assert!(!text.contains("again"));
    }
}
