//! Errors in files that users write, with the line.

use crate::named_file::{TEXT_MAX, read_string};
use crate::shown::readable;
use std::fmt;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;

/// A mistake in a file that a user wrote. Displayed as `FILE:LINE: message`, with escapes for control
/// characters, because messages quote the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// The file, as the user named it.
    pub file: String,
    /// Line number, from 1; `None` if the error concerns the whole file.
    pub line: Option<usize>,
    /// One sentence: what is wrong, and what is allowed.
    pub message: String,
}

impl FileError {
    /// An error that concerns the whole file, such as that it cannot be read.
    pub fn whole(file: &str, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line: None, message: message.into() }
    }

    /// An error in the part of `text` that `span` (in bytes) covers.
    pub fn at(file: &str, text: &str, span: Range<usize>, message: impl Into<String>) -> Self {
        let before = &text.as_bytes()[..span.start.min(text.len())];
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
        Self { file: file.to_owned(), line: Some(line), message: message.into() }
    }

    /// An error that the TOML reader found in `text`.
    pub fn from_toml(file: &str, text: &str, error: &toml::de::Error) -> Self {
        // The TOML reader's message may have several lines; an error is one sentence.
        let message = error.message().trim().replace('\n', ", ");
        let message = in_words_of_toml(&message, error.span().and_then(|span| text.get(span)));
        match error.span() {
            Some(span) => Self::at(file, text, span, message),
            None => Self::whole(file, message),
        }
    }
}

/// The message with the words of TOML in the place of Rust's, by which serde and the reader of TOML name
/// types; `value` is the part of the file that it is about.
fn in_words_of_toml(message: &str, value: Option<&str>) -> String {
    if message == "invalid type: unit variant, expected newtype variant" {
        return "the word needs a value; write { WORD = VALUE }".into();
    }
    // The value is quoted before the type that was expected.
    let Some((before, expected)) = message.rsplit_once(", expected ") else {
        return match message {
            "wanted string or table" => "expected a word or a table".into(),
            _ => message.into(),
        };
    };
    let about_types = ["invalid type: ", "invalid length ", "invalid value: "];
    if !about_types.iter().any(|beginning| message.starts_with(beginning)) {
        return message.into();
    }
    let is_struct = expected.starts_with("struct ");
    let is_date = value.is_some_and(|value| value.starts_with(|first: char| first.is_ascii_digit()));
    let before = match before {
        "invalid type: map" if is_date => "invalid type: date",
        "invalid type: map" => "invalid type: table",
        "invalid type: sequence" => "invalid type: array",
        _ if is_struct && before.starts_with("invalid length ") => "invalid type: array",
        _ => before,
    };
    let before = before.replacen("invalid type: floating point ", "invalid type: float ", 1);
    let expected = match expected {
        _ if is_struct => "a table",
        "a sequence" => "an array",
        "a map" => "a table",
        "string" => "a string",
        "path string" => "a path",
        "f32" | "f64" => "a number",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
        other => other,
    };
    format!("{before}, expected {expected}")
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, message) = (readable(&self.file, &[]), readable(&self.message, &[]));
        match self.line {
            Some(line) => write!(f, "{file}:{line}: {message}"),
            None => write!(f, "{file}: {message}"),
        }
    }
}

impl std::error::Error for FileError {}

/// Reads a text file of at most [`TEXT_MAX`].
pub fn read_text(path: &Path) -> Result<String, FileError> {
    read_string(path, TEXT_MAX).map_err(|error| {
        let message = match error.kind() {
            ErrorKind::InvalidData => "is not a text file in UTF-8".to_owned(),
            _ => format!("cannot be read: {error}"),
        };
        FileError::whole(&path.display().to_string(), message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Any text, often with control characters.
    fn quoted() -> impl Strategy<Value = String> {
        let character = prop_oneof![any::<char>(), (0..0xa0_u8).prop_map(char::from)];
        prop::collection::vec(character, 0..20).prop_map(String::from_iter)
    }

    proptest! {
        #[test]
        fn whatever_it_quotes_is_shown_in_one_line(file in quoted(), message in quoted()) {
            let shown = FileError::at(&file, "", 0..0, message).to_string();
            prop_assert!(!shown.contains(char::is_control), "{shown:?}");
        }
    }

    #[test]
    fn lines_count_from_one_and_a_span_past_the_end_is_harmless() {
        let text = "a = 1\nb = 2\n";
        assert_eq!(FileError::at("f", text, 0..1, "m").to_string(), "f:1: m");
        assert_eq!(FileError::at("f", text, 6..7, "m").to_string(), "f:2: m");
        assert_eq!(FileError::at("f", text, 99..100, "m").to_string(), "f:3: m");
        assert_eq!(FileError::whole("f", "m").to_string(), "f: m");
    }

    #[test]
    fn types_have_the_names_of_toml() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code)]
        struct Inner {
            a: u8,
            b: Vec<u8>,
        }
        type Outer = std::collections::BTreeMap<String, Inner>;
        for (text, says) in [
            ("x = 3", "f:1: invalid type: integer `3`, expected a table"),
            ("x = [1]", "f:1: invalid type: array, expected a table"),
            ("x = { a = 1, b = {} }", "f:1: invalid type: table, expected an array"),
            ("x = { a = 1, b = 2020-01-01 }", "f:1: invalid type: date, expected an array"),
            ("x = { a = [], b = [] }", "f:1: invalid type: array, expected a whole number, 0 or more"),
            ("x = { a = 1.5, b = [] }", "f:1: invalid type: float `1.5`, expected a whole number, 0 or more"),
            (
                "x = \"a, expected struct X\"",
                "f:1: invalid type: string \"a, expected struct X\", expected a table",
            ),
            (
                "x = \"invalid type: map\"",
                "f:1: invalid type: string \"invalid type: map\", expected a table",
            ),
            ("x = { c = 1 }", "f:1: unknown field `c`, expected `a` or `b`"),
            (
                "x = { \"expected struct F\" = 1 }",
                "f:1: unknown field `expected struct F`, expected `a` or `b`",
            ),
        ] {
            let error = toml::from_str::<Outer>(text).unwrap_err();
            assert_eq!(FileError::from_toml("f", text, &error).to_string(), says);
        }
    }

    #[test]
    fn a_toml_error_keeps_its_line() {
        let text = "a = 1\nb = oops\n";
        let error = toml::from_str::<toml::Table>(text).unwrap_err();
        assert_eq!(FileError::from_toml("f", text, &error).line, Some(2));
    }
}
