//! A scenario by its path, or by its name in the library: `noisy-neighbour` is `scenarios/noisy-neighbour.toml`, of the
//! source or as installed. `-` is standard input, whose paths begin in the current folder.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tandem_file::file_error::{FileError, read_text};
use tandem_lab::scenario::ScenarioSource;
use tandemd::error::{BadInput, one_line};

/// The folders of the library; where both have a name, the first one counts.
const FOLDERS: [&str; 2] = ["scenarios", "programs"];

/// What messages call a scenario that comes from there.
const STDIN: &str = "standard input";

/// Reads the scenario.
pub fn read(named: &Path) -> Result<ScenarioSource, BadInput> {
    if named == Path::new("-") {
        return ScenarioSource::parse(Path::new(STDIN), standard_input()?).map_err(BadInput::new);
    }
    let path = if is_name(named) { find(named)? } else { named.to_owned() };
    ScenarioSource::read(&path).map_err(BadInput::new)
}

/// The text that comes from there; the same one each time.
fn standard_input() -> Result<&'static str, BadInput> {
    static TEXT: OnceLock<Result<String, FileError>> = OnceLock::new();
    let text = TEXT.get_or_init(|| {
        read_text(Path::new("/dev/stdin")).map_err(|error| FileError { file: STDIN.to_owned(), ..error })
    });
    text.as_deref().map_err(|error| BadInput::new(error.clone()))
}

/// The names of the ready scenarios, in order.
pub fn ready() -> Result<Vec<PathBuf>, BadInput> {
    let mut names: Vec<PathBuf> = of_folder(FOLDERS[0]).into_iter().map(|(name, _)| name.into()).collect();
    names.sort();
    if names.is_empty() { Err(missing()) } else { Ok(names) }
}

/// Whether it can be no path of a scenario file: those end in .toml, or are in a folder that is named, or are there.
fn is_name(named: &Path) -> bool {
    named.extension().is_none() && named.components().count() == 1 && !named.exists()
}

fn find(name: &Path) -> Result<PathBuf, BadInput> {
    let mut known: Vec<(String, PathBuf)> = FOLDERS.into_iter().flat_map(of_folder).collect();
    if let Some((_, path)) = known.iter().find(|(known, _)| Path::new(known) == name) {
        return Ok(path.clone());
    }
    if known.is_empty() {
        return Err(missing());
    }
    known.sort();
    known.dedup_by(|one, other| one.0 == other.0);
    let names: Vec<String> = known.into_iter().map(|(name, _)| name).collect();
    let name = one_line(&name.display().to_string());
    let message = format!("there is no file and no scenario `{name}`; there are {}", names.join(", "));
    Err(BadInput::new(message))
}

fn missing() -> BadInput {
    BadInput::new(
        "there is no folder `scenarios` here, in a folder above, or beside the installed command; name the path of a file",
    )
}

/// The scenarios of that folder, here, in the nearest folder above that has it, or of what was installed.
fn of_folder(folder: &str) -> Vec<(String, PathBuf)> {
    let here = std::env::current_dir().unwrap_or_default();
    let found = here.ancestors().map(|above| above.join(folder)).find(|path| path.is_dir());
    let found = found.or_else(|| crate::reproduce::installed(folder));
    let files = found.and_then(|path| path.read_dir().ok()).into_iter().flatten().flatten();
    let named = files.filter_map(|file| {
        let path = file.path();
        let name = path.file_stem()?.to_str()?.to_owned();
        (path.extension()? == "toml").then_some((name, path))
    });
    named.collect()
}
