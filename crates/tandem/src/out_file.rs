//! A file that a verb makes from others: written when its work is done, it cannot fail for its name then, and nobody
//! may read it who may not read those others, such as a recording, which names everybody's tasks.

use anyhow::Context;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tandem_file::new_file::NewFile;
use tandemd::error::{BadInput, one_line};

/// The file of `--out`, until it is complete.
pub struct OutFile {
    file: NewFile,
    name: String,
}

impl OutFile {
    /// Begins it, before the work. Whoever may not read all of `sources` may not read it, as it says what they say.
    pub fn create(path: &Path, sources: &[&Path]) -> Result<Self, BadInput> {
        let name = one_line(&path.display().to_string());
        let file = NewFile::create_for(path, mode_beside(sources))
            .map_err(|error| BadInput::new(format!("--out {name}: {error}")))?;
        Ok(Self { file, name })
    }

    /// Its name, to display.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives it its content.
    pub fn write(mut self, content: impl AsRef<[u8]>) -> anyhow::Result<()> {
        let written = self.file.write_all(content.as_ref()).and_then(|()| self.file.complete());
        written.with_context(|| format!("cannot write {}", self.name))
    }
}

/// The mode of a file that says what these files say, less the umask. Where not everybody may read them all, it is
/// for its user alone: groups of files differ.
fn mode_beside(sources: &[&Path]) -> u32 {
    let is_public = |path: &&Path| {
        path.metadata().is_ok_and(|source| source.permissions().mode() & READ_BY_ALL == READ_BY_ALL)
    };
    if sources.iter().all(is_public) { 0o666 } else { 0o600 }
}

/// The group and all others may read a file.
const READ_BY_ALL: u32 = 0o044;
