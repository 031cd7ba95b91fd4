//! Arrays in the place of tables.
//!
//! Problem: what reads a table reads an array as well, with the values of the keys in their order, as serde
//! derives it. No file means that: its JSON Schema has no array there, and another key would change what the
//! array says.
//!
//! Approach: the arrays of a file are compared with its schema before it is read. One is a mistake where the
//! schema allows a table and no array. Everything else about the file is for the reader to find.

use crate::located::quoted_list;
use serde_json::Value;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The first array in the place of a table, and what is expected there.
pub(crate) fn array_for_table(table: &DeTable<'_>, schema: &Value) -> Option<(Range<usize>, String)> {
    let walk = Walk { root: schema };
    walk.of_table(table, &walk.alternatives(&[schema]))
}

struct Walk<'a> {
    /// The whole schema.
    root: &'a Value,
}

impl<'a> Walk<'a> {
    fn of_table(&self, table: &DeTable<'_>, schemas: &[&'a Value]) -> Option<(Range<usize>, String)> {
        table.iter().find_map(|(key, value)| {
            let of_key = |schema: &&'a Value| {
                let own = schema.get("properties").and_then(|keys| keys.get(&**key.get_ref()));
                own.or_else(|| schema.get("additionalProperties"))
            };
            self.of_value(value, &schemas.iter().filter_map(of_key).collect::<Vec<_>>())
        })
    }

    fn of_value(
        &self,
        value: &Spanned<DeValue<'_>>,
        schemas: &[&'a Value],
    ) -> Option<(Range<usize>, String)> {
        let schemas = self.alternatives(schemas);
        match value.get_ref() {
            DeValue::Table(table) => self.of_table(table, &schemas),
            DeValue::Array(values) => {
                let allows = |kind| schemas.iter().any(|schema| allows(schema, kind));
                if allows("object") && !allows("array") {
                    return Some((value.span(), expected(&schemas)));
                }
                let items = |schema: &&'a Value| {
                    let each = schema.get("prefixItems").and_then(Value::as_array).into_iter().flatten();
                    each.chain(schema.get("items")).collect::<Vec<_>>()
                };
                let items: Vec<_> = schemas.iter().flat_map(items).collect();
                values.iter().find_map(|value| self.of_value(value, &items))
            }
            _ => None,
        }
    }

    /// All schemas that these refer to or choose from, with themselves.
    fn alternatives(&self, schemas: &[&'a Value]) -> Vec<&'a Value> {
        let mut all: Vec<&'a Value> = Vec::new();
        let mut next = schemas.to_vec();
        while let Some(schema) = next.pop() {
            if all.iter().any(|known| std::ptr::eq(*known, schema)) {
                continue;
            }
            all.push(schema);
            let reference = schema.get("$ref").and_then(Value::as_str).and_then(|it| it.strip_prefix('#'));
            next.extend(reference.and_then(|path| self.root.pointer(path)));
            for key in ["anyOf", "oneOf", "allOf"] {
                next.extend(schema.get(key).and_then(Value::as_array).into_iter().flatten());
            }
        }
        all
    }
}

/// Whether a schema by itself allows a value of that type.
fn allows(schema: &Value, kind: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(one)) => one == kind,
        Some(Value::Array(some)) => some.iter().any(|one| one == kind),
        // Without any rule, all values are allowed.
        _ => match schema {
            Value::Object(rules) => rules.keys().all(|key| key == "description" || key == "default"),
            other => *other == Value::Bool(true),
        },
    }
}

/// What the schemas want in the place of an array.
fn expected(schemas: &[&Value]) -> String {
    let keys = schemas.iter().filter_map(|schema| schema.get("properties")?.as_object());
    let mut keys: Vec<&str> = keys.flat_map(|keys| keys.keys().map(String::as_str)).collect();
    keys.sort_unstable();
    keys.dedup();
    match keys.is_empty() {
        true => "expected a table and not an array".into(),
        false => format!("expected a table with keys of {} and not an array", quoted_list(keys)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemars::{JsonSchema, schema_for};
    use serde::Deserialize;

    #[derive(Deserialize, JsonSchema)]
    #[allow(dead_code)]
    struct File {
        home: Option<Home>,
        homes: Vec<Home>,
        form: Form,
        pair: (u32, Home),
        by_name: std::collections::BTreeMap<String, Home>,
    }

    #[derive(Deserialize, JsonSchema)]
    #[allow(dead_code)]
    struct Home {
        hard: u32,
        soft: u32,
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(untagged)]
    #[allow(dead_code)]
    enum Form {
        Word(String),
        Table(Home),
        Nested { nested: Box<Form> },
    }

    fn found(text: &str) -> Option<String> {
        let schema = schema_for!(File).to_value();
        let (span, message) = array_for_table(DeTable::parse(text).unwrap().get_ref(), &schema)?;
        Some(format!("{}: {message}", &text[span]))
    }

    #[test]
    fn an_array_is_no_table() {
        let message = "expected a table with keys of `hard`, `soft` and not an array";
        for (before, array, after) in [
            ("home = ", "[1, 2]", ""),
            ("homes = [{ hard = 1, soft = 2 }, ", "[1, 2]", "]"),
            ("[by_name]\nx = ", "[1, 2]", ""),
            ("pair = [1, ", "[1, 2]", "]"),
        ] {
            assert_eq!(found(&format!("{before}{array}{after}")), Some(format!("{array}: {message}")));
        }
        let message = "expected a table with keys of `hard`, `nested`, `soft` and not an array";
        for text in ["form = [1, 2]", "form = { nested = { nested = [1, 2] } }"] {
            assert_eq!(found(text), Some(format!("[1, 2]: {message}")));
        }
    }

    #[test]
    fn other_arrays_and_other_mistakes_are_left_alone() {
        for text in [
            "home = { hard = 1, soft = 2 }",
            "homes = [{ hard = 1, soft = 2 }]",
            "homes = []",
            "pair = [1, { hard = 1, soft = 2 }]",
            "home = 1",
            "unknown = [1, 2]",
            "home = { hard = [1] }",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }
}
