//! The headers that come with the program, as files that only a child process sees.
//!
//! Problem: a compiler reads files, and whatever is unpacked to a file system is left behind when the command is
//! killed.
//!
//! Approach: each header is an unnamed file in memory, which the child inherits, and an overlay of the file system
//! (`-ivfsoverlay`) gives clang the path of each. The paths do not depend on the run,
//! so objects do not either.
//!
//! Limits: the paths exist for that clang alone; in its messages they stand beside the line that is quoted.

use crate::Error;
use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::json;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use tandem_bpf::headers::HEADERS;

/// The folder in which clang finds them.
pub const FOLDER: &str = "/tandem/include";

/// All headers, for as long as this lives.
pub struct Headers {
    /// The overlay, for `-ivfsoverlay`.
    pub overlay: PathBuf,
    _files: Vec<File>,
}

impl Headers {
    /// Unpacks them into memory. Every child process of this one inherits them.
    ///
    /// # Errors
    /// If there is no memory, or there are too many open files.
    pub fn unpack() -> Result<Self, Error> {
        Self::in_memory().map_err(|error| Error::machine("the headers cannot be unpacked into memory", error))
    }

    fn in_memory() -> io::Result<Self> {
        let mut files = Vec::new();
        let mut found = Vec::new();
        for (name, packed) in HEADERS {
            let (file, path) = in_memory(&text(packed)?)?;
            files.push(file);
            found.push(
                json!({ "type": "file", "name": format!("{FOLDER}/{name}"), "external-contents": path }),
            );
        }
        // The names of the overlay are those in messages and in the object.
        let overlay = json!({ "version": 0, "use-external-names": false, "roots": found });
        let (file, overlay) = in_memory(overlay.to_string().as_bytes())?;
        files.push(file);
        Ok(Self { overlay, _files: files })
    }
}

/// The text of a header from its packed form.
///
/// # Errors
/// If it is none.
pub fn text(packed: &[u8]) -> io::Result<Vec<u8>> {
    zstd::decode_all(packed)
}

/// A file in memory with this content, and a path to it, for this process and its children.
fn in_memory(content: &[u8]) -> io::Result<(File, PathBuf)> {
    let mut file = File::from(memfd_create("tandem", MemfdFlags::empty())?);
    file.write_all(content)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
    Ok((file, path))
}
