//! Values of the engine's that files name by a word.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;
use std::borrow::Cow;
use tandem_file::located::quoted_list;

/// A type of the engine's whose values have words in files.
pub trait Words: Copy + 'static {
    /// Each word, its value, and what it means.
    const WORDS: &'static [(&'static str, Self, &'static str)];
}

/// The value that a word of a file names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word<T>(pub T);

impl<T: Words> Word<T> {
    /// The value that the text names.
    pub fn of(text: &str) -> Option<Self> {
        T::WORDS.iter().find(|(word, ..)| *word == text).map(|&(_, value, _)| Self(value))
    }
}

impl<T: Words + PartialEq> Word<T> {
    /// The word that names the value.
    pub fn text(self) -> &'static str {
        T::WORDS.iter().find(|(_, value, _)| *value == self.0).map_or("", |(word, ..)| word)
    }
}

impl<T: Words + PartialEq> Serialize for Word<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text())
    }
}

impl<'de, T: Words> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::of(&text).ok_or_else(|| {
            let known = match T::WORDS {
                [(one, ..), (other, ..)] => format!("`{one}` or `{other}`"),
                words => format!("one of {}", quoted_list(words.iter().map(|&(word, ..)| word))),
            };
            D::Error::custom(format!("unknown variant `{text}`, expected {known}"))
        })
    }
}

impl<T: Words> JsonSchema for Word<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Word".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let words =
            T::WORDS.iter().map(|(word, _, meaning)| json!({ "const": word, "description": meaning }));
        json_schema!({ "oneOf": words.collect::<Vec<_>>() })
    }
}
