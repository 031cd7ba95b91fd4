//! Small files with lists and numbers. A file that is missing is `None`, one that cannot be read is an error.

use crate::topology::TopologyError;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tandem_file::named_file::{TEXT_MAX, read_string};
use tandem_sim::machine::parse_cpulist;

/// The numbers N of the entries `prefixN` of a directory, in ascending order; none without the directory.
pub fn numbered_dirs(dir: &Path, prefix: &str) -> Result<Vec<u32>, TopologyError> {
    let unreadable = |cause| TopologyError::Unreadable { file: dir.to_owned(), cause };
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    let mut numbers = BTreeSet::new();
    for entry in entries {
        let name = entry.map_err(unreadable)?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.strip_prefix(prefix)?.parse::<u32>().ok()));
    }
    Ok(numbers.into_iter().collect())
}

/// The numbers of a file such as `0-3,8`.
pub fn read_list(file: &Path) -> Result<Option<Vec<u32>>, TopologyError> {
    let Some(text) = read_text(file)? else {
        return Ok(None);
    };
    match parse_cpulist(&text) {
        Ok(numbers) => Ok(Some(numbers)),
        Err(error) => malformed(file, error.to_string()),
    }
}

/// The only number of a file.
pub fn read_number<T: FromStr>(file: &Path) -> Result<Option<T>, TopologyError> {
    let Some(text) = read_text(file)? else {
        return Ok(None);
    };
    match text.parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => malformed(file, format!("`{text:.40}` is not a number in the range that belongs here")),
    }
}

/// The numbers of a file, between white space.
pub fn read_row(file: &Path) -> Result<Option<Vec<u32>>, TopologyError> {
    let Some(text) = read_text(file)? else {
        return Ok(None);
    };
    match text.split_whitespace().map(str::parse).collect() {
        Ok(numbers) => Ok(Some(numbers)),
        Err(_) => malformed(file, format!("`{text:.40}` is not a row of numbers")),
    }
}

/// The text of a file without surrounding white space; `None` if there is no such file.
pub fn read_text(file: &Path) -> Result<Option<String>, TopologyError> {
    match read_string(file, TEXT_MAX) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(cause) => Err(TopologyError::Unreadable { file: PathBuf::from(file), cause }),
    }
}

/// The error that a file does not say what it should.
pub fn malformed<T>(file: &Path, message: impl Into<String>) -> Result<T, TopologyError> {
    Err(TopologyError::Malformed { place: file.display().to_string(), message: message.into() })
}
