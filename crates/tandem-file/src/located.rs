//! Values that remember their file and their place in it, so that errors can name the line.

use crate::file_error::{FileError, read_text};
use crate::shape::array_for_table;
use crate::shown::is_unreadable;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The text of a TOML file that a user wrote.
#[derive(Clone, Debug)]
pub struct SourceFile {
    path: PathBuf,
    text: String,
}

impl SourceFile {
    /// Uses a text as that of a file, without reading the file.
    pub fn new(path: &Path, text: impl Into<String>) -> Self {
        Self { path: path.into(), text: text.into() }
    }

    /// Reads the file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        Ok(Self::new(path, read_text(path)?))
    }

    /// Deserialises the text.
    ///
    /// # Errors
    /// If the text is not TOML, has an unknown key or a value of the wrong type; the error names the line.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, FileError> {
        self.deserialize(toml::de::Deserializer::parse(&self.text))
    }

    /// Deserialises the text after it has replaced every string "$name" outside the table `[parameters]` with
    /// the TOML value of that name. The strings are names that appear on terminals.
    ///
    /// # Errors
    /// As [`SourceFile::parse`]; also if a name has no value, or a string has a control character.
    pub fn parse_with<T: DeserializeOwned>(&self, values: &BTreeMap<String, String>) -> Result<T, FileError> {
        let mut table = match DeTable::parse(&self.text) {
            Ok(table) => table,
            Err(error) => return self.deserialize(Err(error)),
        };
        for (key, value) in table.get_mut().iter_mut() {
            if key.get_ref() != "parameters" {
                self.fill_in(value, values)?;
            }
        }
        self.check_table(table.get_ref(), &[])?;
        self.deserialize(Ok(table.into()))
    }

    /// Checks that no key and no string has a control character, with which a file could make a terminal do
    /// something, and that every number is finite. Texts of several lines may have line ends.
    ///
    /// # Errors
    /// If one has a control character, or is no finite number; the error names the line. No error if the text is not TOML:
    /// [`SourceFile::parse`] reports that.
    pub fn check_texts(&self) -> Result<(), FileError> {
        match DeTable::parse(&self.text) {
            Ok(table) => self.check_table(table.get_ref(), &['\n', '\t']),
            Err(_) => Ok(()),
        }
    }

    /// Checks that no array stands where the JSON Schema of the file has a table only, which reading the file
    /// would accept.
    ///
    /// # Errors
    /// The first such array, by its line. No error if the text is not TOML: [`SourceFile::parse`] reports that.
    pub fn check_shape(&self, schema: &serde_json::Value) -> Result<(), FileError> {
        let Ok(table) = DeTable::parse(&self.text) else { return Ok(()) };
        match array_for_table(table.get_ref(), schema) {
            Some((span, message)) => Err(self.error(span, message)),
            None => Ok(()),
        }
    }

    fn check_table(&self, table: &DeTable<'_>, allowed: &[char]) -> Result<(), FileError> {
        table.iter().try_for_each(|(key, value)| {
            self.check_characters(key.get_ref(), key.span(), allowed)?;
            self.check_value(value, allowed)
        })
    }

    fn check_value(&self, value: &Spanned<DeValue<'_>>, allowed: &[char]) -> Result<(), FileError> {
        match value.get_ref() {
            DeValue::Table(table) => self.check_table(table, allowed),
            DeValue::Array(array) => array.iter().try_for_each(|value| self.check_value(value, allowed)),
            DeValue::String(text) => self.check_characters(text, value.span(), allowed),
            DeValue::Float(number) if number.as_str().ends_with(|last: char| last.is_ascii_alphabetic()) => {
                let message = format!("`{}` is no finite number; give one that is", number.as_str());
                Err(self.error(value.span(), message))
            }
            _ => Ok(()),
        }
    }

    fn check_characters(&self, text: &str, span: Range<usize>, allowed: &[char]) -> Result<(), FileError> {
        match text.chars().find(|it| is_unreadable(*it) && !allowed.contains(it)) {
            Some(character) => {
                let name = character.escape_default();
                let kind = if character.is_control() { "control" } else { "invisible" };
                Err(self.error(span, format!("the {kind} character `{name}` is not allowed; remove it")))
            }
            None => Ok(()),
        }
    }

    /// Replaces each string that begins with a dollar sign with the value of that name; descends into tables
    /// and arrays.
    fn fill_in<'a>(
        &self,
        place: &mut Spanned<DeValue<'a>>,
        values: &'a BTreeMap<String, String>,
    ) -> Result<(), FileError> {
        let span = place.span();
        match place.get_mut() {
            DeValue::Table(table) => table.iter_mut().try_for_each(|(_, value)| self.fill_in(value, values)),
            DeValue::Array(array) => array.iter_mut().try_for_each(|value| self.fill_in(value, values)),
            DeValue::String(text) => {
                let Some(name) = text.strip_prefix('$') else { return Ok(()) };
                let Some(value) = values.get(name) else {
                    let known: Vec<_> = values.keys().map(|name| format!("${name}")).collect();
                    let known = quoted_list(known.iter().map(String::as_str));
                    let message =
                        format!("there is no parameter `{text}`; parameters under [parameters]: {known}");
                    return Err(self.error(span, message));
                };
                let value = DeValue::parse(value).map_err(|error| self.error(span, error.message()))?;
                *place.get_mut() = value.into_inner();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn deserialize<'a, T: DeserializeOwned>(
        &self,
        text: Result<toml::de::Deserializer<'a>, toml::de::Error>,
    ) -> Result<T, FileError> {
        text.and_then(T::deserialize).map_err(|error| {
            let mut error = FileError::from_toml(&self.name(), &self.text, &error);
            // The TOML library's message if a table chooses from alternatives more than once, or not at all.
            if error.message.starts_with("wanted exactly 1 element") {
                error.message = "needs exactly one key; write one table for each".into();
            }
            error
        })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// An error about the part of the text that the span covers.
    pub fn error(&self, span: Range<usize>, message: impl Into<String>) -> FileError {
        FileError::at(&self.name(), &self.text, span, message)
    }

    /// An error about the file as a whole.
    pub fn error_in_file(&self, message: impl Into<String>) -> FileError {
        FileError::whole(&self.name(), message)
    }

    /// The folder that contains the file.
    pub fn directory(&self) -> PathBuf {
        self.path.with_file_name("")
    }

    /// The path of a file that this one names: relative to this file's folder.
    pub fn sibling(&self, path: &str) -> PathBuf {
        self.directory().join(path)
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

/// A value of a TOML file and its place in the file.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct Located<T>(Spanned<T>);

impl<T> Located<T> {
    /// The bytes of the file that hold the value.
    pub fn span(&self) -> Range<usize> {
        self.0.span()
    }

    /// A value at that place of a file.
    pub fn at(span: Range<usize>, value: T) -> Self {
        Self(Spanned::new(span, value))
    }

    /// Changes the value and keeps its place.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Located<U> {
        let span = self.span();
        Located(Spanned::new(span, change(self.0.into_inner())))
    }
}

impl<T: Default> Default for Located<T> {
    /// The default value, at the beginning of the file.
    fn default() -> Self {
        Self(Spanned::new(0..0, T::default()))
    }
}

impl<T> Deref for Located<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.get_ref()
    }
}

impl<T: JsonSchema> JsonSchema for Located<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// Tables by name, in the order of the file.
#[derive(Clone, Debug)]
pub struct Named<T>(Vec<(Located<String>, T)>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Named<T> {
    /// The tables with their names, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &(Located<String>, T)> {
        self.0.iter()
    }

    /// The table of that name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.iter().find(|(key, _)| **key == name).map(|(_, table)| table)
    }

    /// The names in backticks, for errors: "`a`, `b`".
    pub fn list(&self) -> String {
        quoted_list(self.0.iter().map(|(name, _)| name.as_str()))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let tables = BTreeMap::<Spanned<String>, T>::deserialize(deserializer)?;
        let mut tables: Vec<_> = tables.into_iter().map(|(name, table)| (Located(name), table)).collect();
        tables.sort_by_key(|(name, _)| name.span().start);
        Ok(Self(tables))
    }
}

impl<T: JsonSchema> JsonSchema for Named<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Named_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        BTreeMap::<String, T>::json_schema(generator)
    }
}

/// Names in backticks, for errors: "`a`, `b`", or "none".
pub fn quoted_list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let list: Vec<_> = names.into_iter().map(|name| format!("`{name}`")).collect();
    if list.is_empty() { "none".into() } else { list.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_refused_in_keys_and_strings() {
        let none = BTreeMap::new();
        let message = |text: &str| {
            let file = SourceFile::new(Path::new("f"), text);
            let named = file.parse_with::<toml::Table>(&none).err().map(|error| error.to_string());
            (named, file.check_texts().err().map(|error| error.to_string()))
        };
        let refused = |line: u32, character: &str| {
            Some(format!("f:{line}: the control character `{character}` is not allowed; remove it"))
        };
        for (text, line, character) in [
            ("a = \"\\u001b[31m\"", 1, "\\u{1b}"),
            ("a = 1\n[b]\n\"\\u0007\" = 2", 3, "\\u{7}"),
            ("a = 1\nb = [1, { c = \"\\u009b\" }]", 2, "\\u{9b}"),
            ("a = \"\u{7f}\"", 1, "\\u{7f}"),
        ] {
            let (named, any) = message(text);
            // TOML itself allows the last one as an escape only.
            if character != "\\u{7f}" {
                assert_eq!(named, refused(line, character));
                assert_eq!(any, refused(line, character));
            }
            assert!(named.is_some());
        }
        assert_eq!(message("a = \"1\\n2\""), (refused(1, "\\n"), None));
        assert_eq!(message("a = \"ü\""), (None, None));
        // The rules apply to values from outside, too.
        let file = SourceFile::new(Path::new("f"), "a = \"$x\"");
        let values = BTreeMap::from([("x".to_owned(), "\"\\u001b\"".to_owned())]);
        assert!(file.parse_with::<toml::Table>(&values).is_err());
    }

    #[test]
    fn tables_keep_the_order_of_the_file() {
        let tables: BTreeMap<String, Named<u32>> = toml::from_str("[x]\nb = 1\na = 2\n").unwrap();
        let x = &tables["x"];
        assert_eq!(x.list(), "`b`, `a`");
        assert_eq!(x.get("a"), Some(&2));
        assert_eq!(x.iter().map(|(name, _)| name.span().start).collect::<Vec<_>>(), [4, 10]);
    }
}
