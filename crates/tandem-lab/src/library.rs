//! Scenarios by their names: `noisy-neighbour` is `scenarios/noisy-neighbour.toml`, of the source or as installed.

use crate::experiment::{ExperimentFolder, ExperimentFolderError};
use crate::scenario::ScenarioSource;
use std::path::{Path, PathBuf};
use tandem_file::file_error::FileError;
use tandem_file::shown::one_line;

/// The folders of scenarios; where both have a name, the first one counts.
const FOLDERS: [&str; 2] = ["scenarios", "programs"];

/// Where the folders `scenarios`, `programs` and `experiments` are: with what was installed, and here or in the nearest
/// folder above that has them.
#[derive(Clone, Debug, Default)]
pub struct Library {
    /// The folder that has them as installed, if there is one.
    pub installed: Option<PathBuf>,
}

/// Why a name is that of no scenario.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LibraryError {
    /// The scenario cannot be read, or says something that is not allowed.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is no library.
    #[error(
        "there is no folder `scenarios` here, in a folder above, or beside the installed command; name the path of a file"
    )]
    Missing,
    /// There is a library, without that name.
    #[error("there is no file and no scenario `{name}`; there are {}", names.join(", "))]
    Unknown {
        /// The name, to display.
        name: String,
        /// Those that there are, in order.
        names: Vec<String>,
    },
}

impl Library {
    /// Reads a scenario by its path or its name.
    ///
    /// # Errors
    /// If there is none, or it is wrong.
    pub fn scenario(&self, named: &Path) -> Result<ScenarioSource, LibraryError> {
        let path = if is_name(named) { self.find(named)? } else { named.to_owned() };
        Ok(ScenarioSource::read(&path)?)
    }

    /// The names of the ready scenarios, in order.
    ///
    /// # Errors
    /// If there are none.
    pub fn ready(&self) -> Result<Vec<String>, LibraryError> {
        let mut names: Vec<String> = self.of_folder(FOLDERS[0]).into_iter().map(|(name, _)| name).collect();
        names.sort();
        names.dedup();
        if names.is_empty() { Err(LibraryError::Missing) } else { Ok(names) }
    }

    fn find(&self, name: &Path) -> Result<PathBuf, LibraryError> {
        let mut known: Vec<(String, PathBuf)> =
            FOLDERS.into_iter().flat_map(|folder| self.of_folder(folder)).collect();
        if let Some((_, path)) = known.iter().find(|(known, _)| Path::new(known) == name) {
            return Ok(path.clone());
        }
        if known.is_empty() {
            return Err(LibraryError::Missing);
        }
        known.sort();
        known.dedup_by(|one, other| one.0 == other.0);
        let names = known.into_iter().map(|(name, _)| name).collect();
        Err(LibraryError::Unknown { name: one_line(&name.display().to_string()), names })
    }

    /// The scenarios of that folder.
    fn of_folder(&self, folder: &str) -> Vec<(String, PathBuf)> {
        let here = std::env::current_dir().unwrap_or_default();
        let above = here.ancestors().map(|above| above.join(folder)).find(|path| path.is_dir());
        // What a name means must not depend on who has a folder of that name above.
        let found = self.installed(folder).into_iter().chain(above);
        let files = found.filter_map(|path| path.read_dir().ok()).flatten().flatten();
        let named = files.filter_map(|file| {
            let path = file.path();
            let name = path.file_stem()?.to_str()?.to_owned();
            (path.extension()? == "toml").then_some((name, path))
        });
        named.collect()
    }

    /// The folder of experiments: that in `here`, in the nearest folder above, or the installed one.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    pub fn experiments(&self, here: &Path) -> Result<ExperimentFolder, ExperimentFolderError> {
        ExperimentFolder::find_from(here).or_else(|error| {
            self.installed("experiments").map_or(Err(error), |folder| ExperimentFolder::open(&folder))
        })
    }

    /// A folder as installed, such as `experiments`.
    fn installed(&self, folder: &str) -> Option<PathBuf> {
        self.installed.as_ref().map(|installed| installed.join(folder)).filter(|folder| folder.is_dir())
    }
}

/// Whether it can be no path of a scenario file: those end in .toml, or are in a folder that is named, or are there.
fn is_name(named: &Path) -> bool {
    may_be_name(named) && !named.exists()
}

/// Whether it reads as a name, not as a path.
pub(crate) fn may_be_name(named: &Path) -> bool {
    named.extension().is_none() && named.components().count() == 1
}
