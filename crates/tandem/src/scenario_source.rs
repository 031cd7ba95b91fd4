//! A scenario by its path, or by its name in the [library](Library). `-` is standard input, whose paths begin in the
//! current folder.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tandem_file::file_error::{FileError, read_text};
use tandem_lab::library::Library;
use tandem_lab::scenario::ScenarioSource;
use tandemd::error::BadInput;

/// What messages call a scenario that comes from there.
const STDIN: &str = "standard input";

/// Reads the scenario.
pub fn read(named: &Path) -> Result<ScenarioSource, BadInput> {
    if named == Path::new("-") {
        return ScenarioSource::parse(Path::new(STDIN), standard_input()?).map_err(BadInput::new);
    }
    library().scenario(named).map_err(BadInput::new)
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
    let names = library().ready().map_err(BadInput::new)?;
    Ok(names.into_iter().map(PathBuf::from).collect())
}

/// What was installed with the command, as `scripts/stage` does: PREFIX/bin has the one, and PREFIX/share the other.
pub fn library() -> Library {
    let command = std::env::current_exe().ok();
    let prefix = command.as_deref().and_then(|command| command.parent()?.parent());
    Library { installed: prefix.map(|prefix| prefix.join("share/tandem")) }
}
