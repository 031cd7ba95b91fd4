//! Small files with lists and numbers. A missing file is `None`, one that cannot be read is an error.

use crate::topology::TopologyError;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tandem_file::named_file::{TEXT_MAX, read_string};
use tandem_machine::{MAX_NUMBER, parse_cpulist};

/// The numbers N of the entries `prefixN` of a directory, in ascending order; empty without the directory.
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

/// The numbers of a file such as `0-3,8`, or if there is none, those of a mask such as `00000001,000000ff`.
pub fn read_list_or_mask(list: &Path, mask: &Path) -> Result<Option<Vec<u32>>, TopologyError> {
    if let Some(numbers) = read_list(list)? {
        return Ok(Some(numbers));
    }
    let Some(text) = read_text(mask)? else { return Ok(None) };
    match parse_mask(&text) {
        Some(numbers) => Ok(Some(numbers)),
        None => malformed(mask, format!("`{text:.40}` is not a mask such as 00000001,000000ff")),
    }
}

/// The numbers of the bits that are set. The last 32 bits come last; leading zeros of each 32 may be missing.
fn parse_mask(text: &str) -> Option<Vec<u32>> {
    let mut numbers = Vec::new();
    for (at, word) in (0..).zip(text.rsplit(',')) {
        let is_hex = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bits = u32::from_str_radix(word, 16).ok().filter(|_| is_hex)?;
        let first = 32 * at;
        if bits != 0 && first > MAX_NUMBER {
            return None;
        }
        numbers.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| first + bit));
    }
    Some(numbers)
}

/// The only number of a file.
pub fn read_number<T: FromStr>(file: &Path) -> Result<Option<T>, TopologyError> {
    let Some(text) = read_text(file)? else {
        return Ok(None);
    };
    match text.parse() {
        Ok(number) => Ok(Some(number)),
        Err(_) => malformed(file, format!("`{text:.40}` is not a number in the allowed range")),
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

/// Some kernels and copies fill a buffer up with NUL bytes.
fn is_padding(character: char) -> bool {
    character.is_whitespace() || character == '\0'
}

/// The text of a file without surrounding white space and NUL bytes; `None` if there is no such file.
pub fn read_text(file: &Path) -> Result<Option<String>, TopologyError> {
    match read_string(file, TEXT_MAX) {
        Ok(text) => Ok(Some(text.trim_matches(is_padding).to_owned())),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(cause) => Err(TopologyError::Unreadable { file: PathBuf::from(file), cause }),
    }
}

/// The error of a malformed file.
pub fn malformed<T>(file: &Path, message: impl Into<String>) -> Result<T, TopologyError> {
    Err(TopologyError::Malformed { place: file.display().to_string(), message: message.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tandem_machine::format_cpulist;

    #[test]
    fn masks_have_their_last_bits_last() {
        let list = |mask| parse_mask(mask).map(format_cpulist);
        assert_eq!(list("ff").as_deref(), Some("0-7"));
        assert_eq!(list("1,00000000,80000001").as_deref(), Some("0,31,64"));
        assert_eq!(list("0").as_deref(), Some(""));
        for bad in ["", ",", "ff,", "g", "+f", "123456789", "0x1"] {
            assert_eq!(list(bad), None, "{bad}");
        }
        assert_eq!(parse_mask(&format!("1{}", ",0".repeat(4000))), None, "more CPUs than there can be");
    }

    proptest! {
        #[test]
        fn a_mask_equals_its_list(words in prop::collection::vec(any::<u32>(), 1..9)) {
            let mask: Vec<String> = words.iter().rev().map(|word| format!("{word:08x}")).collect();
            let numbers: Vec<u32> =
                (0..).zip(&words).flat_map(|(at, word)| (0..32).filter(move |bit| word & 1 << bit != 0).map(move |bit| 32 * at + bit)).collect();
            prop_assert_eq!(parse_mask(&mask.join(",")), Some(numbers));
        }
    }
}
