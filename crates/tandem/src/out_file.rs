//! A file that a verb writes when its work is done, and that cannot fail for its name then.

use anyhow::Context;
use std::io::Write;
use std::path::Path;
use tandem_file::new_file::NewFile;
use tandemd::error::{BadInput, one_line};

/// The file of `--out`, until it is complete.
pub struct OutFile {
    file: NewFile,
    name: String,
}

impl OutFile {
    /// Begins it, before the work.
    pub fn create(path: &Path) -> Result<Self, BadInput> {
        let name = one_line(&path.display().to_string());
        let file = NewFile::create(path).map_err(|error| BadInput::new(format!("--out {name}: {error}")))?;
        Ok(Self { file, name })
    }

    /// Its name, to display.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Gives it its content.
    pub fn write(mut self, text: &str) -> anyhow::Result<()> {
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.complete());
        written.with_context(|| format!("cannot write {}", self.name))
    }
}
