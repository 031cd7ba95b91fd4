//! A setting that is "off" or a table.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// Something that can be switched off, or on with the settings of a table; {} is its defaults.
#[derive(Clone, Debug)]
pub enum Switch<T> {
    /// The word "off".
    Off,
    /// On, with these settings.
    On(T),
}

impl<T> Switch<T> {
    /// The settings, if it is on.
    pub fn on(&self) -> Option<&T> {
        match self {
            Self::Off => None,
            Self::On(table) => Some(table),
        }
    }

    /// This switch on top of `base`: tables of both become one, in any other case this one counts.
    pub fn over(self, base: Self, merge: impl FnOnce(T, T) -> T) -> Self {
        match (self, base) {
            (Self::On(top), Self::On(base)) => Self::On(merge(top, base)),
            (top, _) => top,
        }
    }
}

// Not an untagged enum: that would forget where the settings stand, and which of them it does not know.
impl<'de, T: Deserialize<'de>> Deserialize<'de> for Switch<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SwitchVisitor(PhantomData))
    }
}

struct SwitchVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for SwitchVisitor<T> {
    type Value = Switch<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"off\" or a table of settings")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        match text {
            "off" => Ok(Switch::Off),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Switch::On)
    }
}

impl<T: JsonSchema> JsonSchema for Switch<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Switch_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [{ "const": "off" }, table] })
    }
}
