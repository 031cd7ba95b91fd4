//! The folder that holds the experiments.

use std::path::{Path, PathBuf};
use thiserror::Error;

/// A folder with experiments: each in a folder of its name.
#[derive(Clone, Debug)]
pub struct ExperimentFolder {
    path: PathBuf,
    names: Vec<String>,
}

/// Why an experiment was not found.
#[derive(Debug, Error)]
pub enum ExperimentFolderError {
    /// No folder was named, and neither the current one nor a folder above has one.
    #[error(
        "there is no folder `experiments` here or in a folder above; go to the project's folder or name it with --experiments"
    )]
    NotFound,
    /// The folder cannot be read.
    #[error("the folder of experiments `{}` cannot be read: {error}", path.display())]
    Unreadable {
        /// The folder.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The folder holds no experiment.
    #[error("there are no experiments in `{}`; each is a folder with an experiment.toml", path.display())]
    Empty {
        /// The folder.
        path: PathBuf,
    },
    /// A path stands in the place of a name.
    #[error("`{}` is a path; give the name `{name}` alone, with --experiments {}", path.display(), folder.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// The folder that its end is in.
        folder: PathBuf,
        /// The end.
        name: String,
    },
    /// The folder has no experiment of that name.
    #[error("there is no experiment `{name}`; there are {}", names.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// Names of its experiments.
        names: Vec<String>,
    },
}

impl ExperimentFolder {
    /// Opens a folder of experiments.
    ///
    /// # Errors
    /// If it cannot be read or holds no experiment.
    pub fn open(path: &Path) -> Result<Self, ExperimentFolderError> {
        let unreadable = |error| ExperimentFolderError::Unreadable { path: path.into(), error };
        let mut names = Vec::new();
        for entry in path.read_dir().map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            if entry.path().join("experiment.toml").is_file() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        if names.is_empty() {
            return Err(ExperimentFolderError::Empty { path: path.into() });
        }
        names.sort();
        Ok(Self { path: path.into(), names })
    }

    /// Opens the folder `experiments` of this folder, or of the nearest one above that has it.
    ///
    /// # Errors
    /// If there is none, or as [`ExperimentFolder::open`].
    pub fn find_from(start: &Path) -> Result<Self, ExperimentFolderError> {
        let path = start.ancestors().map(|folder| folder.join("experiments")).find(|path| path.is_dir());
        Self::open(&path.ok_or(ExperimentFolderError::NotFound)?)
    }

    /// The names of all experiments, sorted.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The folder of an experiment.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn path_of(&self, name: &str) -> Result<PathBuf, ExperimentFolderError> {
        if self.names.iter().any(|known| known == name) {
            return Ok(self.path.join(name));
        }
        let path = Path::new(name);
        if let (Some(folder), Some(end)) = (path.parent(), path.file_name())
            && folder != Path::new("")
            && path.join("experiment.toml").is_file()
        {
            let name = end.to_string_lossy().into_owned();
            return Err(ExperimentFolderError::Path { path: path.into(), folder: folder.into(), name });
        }
        Err(ExperimentFolderError::Unknown { name: name.into(), names: self.names.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn finds_experiments_from_below_and_lists_them_for_unknown_names() {
        let root = tempfile::tempdir().unwrap();
        let below = root.path().join("experiments/b/deep");
        fs::create_dir_all(&below).unwrap();
        assert!(matches!(ExperimentFolder::find_from(&below), Err(ExperimentFolderError::Empty { .. })));
        for name in ["b", "a"] {
            fs::create_dir_all(root.path().join("experiments").join(name)).unwrap();
            fs::write(root.path().join("experiments").join(name).join("experiment.toml"), "").unwrap();
        }
        let folder = ExperimentFolder::find_from(&below).unwrap();
        assert_eq!(folder.names(), ["a", "b"]);
        assert!(folder.path_of("a").unwrap().ends_with("experiments/a"));
        let error = folder.path_of("../a").unwrap_err();
        assert_eq!(error.to_string(), "there is no experiment `../a`; there are a, b");
    }
}
