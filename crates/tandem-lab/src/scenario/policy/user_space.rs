//! What the user space of a scheduler in an object file tells it: values of variables, of operations and of
//! maps' elements, and the programs that it runs.
//!
//! Names are the object's, and its information about types (BTF) says how values become bytes. Words with `@`
//! stand for numbers of the machine ([`super::machine_words`]), so that one file serves any machine.

use super::arena_library;
use super::machine_words::{At, Part};
use super::words::Word;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use tandem_ebpf::{DataTypeId, Image, MapDefinition, MapKind, Value, Variable, listed};
use tandem_machine::Machine;
use tandem_sim::policy::sched_ext::{
    Call, Element, InnerMap, InnerMapContents, KernelVersion, Preparation, environment,
};

/// The value of a setting of a scheduler from a file.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected true, false, a whole number, a text, or an array or a table of such values"
)]
pub enum SettingValue {
    /// Yes or no.
    Switch(bool),
    /// A number.
    Number(i64),
    /// The text of an array of bytes; names of constants, separated by `|`; or a word of the machine, as
    /// "@cpus".
    Text(String),
    /// The elements of an array, from the first one on; of a map, tables with `key` and `value`.
    List(Vec<SettingValue>),
    /// Members of a structure by their names; elements of an array by their positions; `value` for `each` part
    /// of the machine; of a map, how many elements it has room for, `max_entries`, and `elements`.
    Table(BTreeMap<String, SettingValue>),
}

/// Most repetitions of a value by their number.
const TIMES_MAX: i64 = 4096;

impl SettingValue {
    /// Whether something in it is repeated.
    fn repeats(&self) -> bool {
        match self {
            Self::Switch(_) | Self::Number(_) | Self::Text(_) => false,
            Self::List(values) => values.iter().any(Self::repeats),
            Self::Table(values) => values.contains_key("each") || values.values().any(Self::repeats),
        }
    }
}

/// A program of the scheduler that its user space runs.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallTable {
    /// Its name.
    pub program: String,
    /// What its argument points to: members of a structure, or elements of an array. What is absent is 0.
    pub args: Option<SettingValue>,
    /// It runs once for each of these parts of the machine.
    pub each: Option<Word<Part>>,
    /// It runs after the start of the scheduler, not before; false if absent.
    pub started: Option<bool>,
}

/// All of it.
#[derive(Clone, Copy, Default)]
pub struct UserSpace<'a> {
    /// Values, by names of the object.
    pub settings: Option<&'a BTreeMap<String, SettingValue>>,
    /// The structure that is a task's context in scx's library of arenas.
    pub scx_arena: Option<&'a str>,
    /// Programs that it runs.
    pub calls: &'a [CallTable],
}

/// What is written into global data, and what else is done.
pub type Told = (Vec<(u64, Vec<u8>)>, Preparation);

impl UserSpace<'_> {
    /// The same in terms of the image, for a kernel on a machine.
    ///
    /// # Errors
    /// A sentence: what the object does not have, or what does not fit.
    pub fn resolve(self, image: &Image, kernel: KernelVersion, machine: &Machine) -> Result<Told, String> {
        let constants = constants_of(kernel);
        let constant = |name: &str| constants.get(name).copied();
        // A user space that asks for caches gets some everywhere.
        let machine = machine.with_caches();
        let machine = &*machine;
        let resolver = Resolver { image, machine, constant: &constant };
        let (mut data, mut done) = Told::default();
        for (name, value) in self.settings.into_iter().flatten() {
            if let Some(variable) = settable(image).find(|(known, _)| *known == name).map(|(_, it)| it) {
                let value = resolver.value(value, At::Machine)?;
                let patches = image.types.patches(name, (variable.of, variable.size), &value, &constant)?;
                data.extend(patches.into_iter().map(|(at, bytes)| (variable.address + at as u64, bytes)));
            } else if let Some(map) = image.maps.iter().position(|map| map.name == *name) {
                resolver.map(map, value, &mut done)?;
            } else if image.struct_ops.first().is_some_and(|ops| ops.name == *name) {
                resolver.operations(name, value, &mut done.operations)?;
            } else {
                return Err(unknown(image, name));
            }
        }
        if let Some(context) = self.scx_arena {
            let size = image.types.structure_size(context);
            let size = size.ok_or_else(|| {
                format!("`scx_arena` names `struct {context:.60}`, which the object does not have")
            })?;
            done.calls.extend(arena_library::calls(image, machine, size)?);
        }
        for call in self.calls {
            let calls = resolver.calls(call)?;
            match call.started {
                Some(true) => done.calls_after_start.extend(calls),
                _ => done.calls.extend(calls),
            }
        }
        Ok((data, done))
    }
}

/// The variables that user space may set: those with the names of the kernel's constants are filled in
/// anyway.
fn settable(image: &Image) -> impl Iterator<Item = (&String, &Variable)> {
    image.variables.iter().filter(|(name, _)| !name.starts_with("__SCX_"))
}

fn unknown(image: &Image, name: &str) -> String {
    let names = |is_setting: bool| {
        let variables = settable(image).filter(|(_, variable)| variable.is_setting == is_setting);
        listed(variables.map(|(name, _)| name).collect::<Vec<_>>().into_iter())
    };
    let maps = listed(image.maps.iter().map(|map| &map.name));
    let operations = listed(image.struct_ops.iter().take(1).map(|ops| &ops.name));
    format!(
        "there is no setting `{name:.60}`; read-only variables are: {}; variables that programs change: {}; maps: \
         {maps}; operations: {operations}",
        names(true),
        names(false),
    )
}

/// Constants of the kernel. Those that only a later one has are 0, as for scx's user space.
fn constants_of(kernel: KernelVersion) -> BTreeMap<&'static str, u64> {
    let of = |version| {
        let enums = environment(version).enums.into_values();
        enums.flat_map(|found| found.values.iter().copied()).collect::<BTreeMap<_, _>>()
    };
    let mut constants = of(KernelVersion::default());
    constants.values_mut().for_each(|value| *value = 0);
    constants.extend(of(kernel));
    constants
}

struct Resolver<'a> {
    image: &'a Image,
    machine: &'a Machine,
    constant: &'a dyn Fn(&str) -> Option<u64>,
}

impl Resolver<'_> {
    /// A value without words of the machine.
    fn value(&self, value: &SettingValue, at: At) -> Result<Value, String> {
        Ok(match value {
            SettingValue::Switch(on) => Value::Number((*on).into()),
            SettingValue::Number(number) => Value::Number((*number).into()),
            SettingValue::Text(text) => match text.strip_prefix('@') {
                Some(word) => at.meaning(self.machine, word).ok_or_else(|| {
                    let known: Vec<_> = at.words().map(|word| format!("`@{word}`")).collect();
                    format!("there is no `{text:.60}` here; there are {}", known.join(", "))
                })?,
                None => Value::Text(text.clone()),
            },
            SettingValue::List(values) => {
                Value::List(values.iter().map(|value| self.value(value, at)).collect::<Result<_, _>>()?)
            }
            SettingValue::Table(values) => match values.get("each") {
                Some(SettingValue::Number(times)) => self.repeat(*times, values, at)?,
                Some(each) => Value::List(
                    self.for_each(each, values, &["value"], at, |at| self.value(&values["value"], at))?,
                ),
                None => {
                    let resolved = |(name, value): (&String, &SettingValue)| {
                        Ok::<_, String>((name.clone(), self.value(value, at)?))
                    };
                    Value::Table(values.iter().map(resolved).collect::<Result<_, _>>()?)
                }
            },
        })
    }

    /// A value so many times.
    fn repeat(&self, times: i64, table: &BTreeMap<String, SettingValue>, at: At) -> Result<Value, String> {
        let value = table.get("value").filter(|value| table.len() == 2 && !value.repeats());
        let (Some(value), 0..=TIMES_MAX) = (value, times) else {
            return Err(format!(
                "a table with a number as `each`, up to {TIMES_MAX}, has a `value` without another `each` besides"
            ));
        };
        Ok(Value::List(vec![self.value(value, at)?; times as usize]))
    }

    /// Something for each part of the machine, from a table that has these keys besides `each`.
    fn for_each<T>(
        &self,
        each: &SettingValue,
        table: &BTreeMap<String, SettingValue>,
        keys: &[&str],
        at: At,
        of: impl FnMut(At) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        if table.len() != keys.len() + 1 || !keys.iter().all(|key| table.contains_key(*key)) {
            let keys: Vec<_> = keys.iter().map(|key| format!("`{key}`")).collect();
            return Err(format!("a table with `each` has {} besides, and nothing else", keys.join(" and ")));
        }
        // A repetition of repetitions could take any time.
        if at != At::Machine {
            return Err("an `each` stands inside of another one; write it out".to_owned());
        }
        match each {
            SettingValue::Number(times @ 0..=TIMES_MAX) => {
                (0..*times as usize).map(At::Number).map(of).collect()
            }
            SettingValue::Text(word) => {
                let part: Word<Part> = Word::of(word).ok_or_else(|| no_part(word))?;
                At::each(self.machine, part.0).into_iter().map(of).collect()
            }
            _ => Err(no_part("")),
        }
    }

    /// What user space does to a map: how large it makes it, and what it puts there.
    fn map(&self, map: usize, value: &SettingValue, done: &mut Preparation) -> Result<(), String> {
        let definition = &self.image.maps[map];
        let (max_entries, elements) = self.size(&definition.name, value, At::Machine)?;
        if let Some(max_entries) = max_entries {
            let is_array = matches!(definition.kind, MapKind::Array | MapKind::PerCpuArray);
            if is_array && definition.max_entries != 0 {
                return Err(format!(
                    "`{}` has {} elements, as the object says; `max_entries` is for arrays for which it does not",
                    definition.name, definition.max_entries
                ));
            }
            done.sizes.push((map, max_entries));
        }
        match elements {
            Some(elements) if definition.kind.is_of_maps() => {
                done.inner_maps.extend(self.inner_maps(map, elements)?);
            }
            Some(elements) => {
                done.elements.extend(self.elements((map, definition), elements, At::Machine)?);
            }
            None => {}
        }
        Ok(())
    }

    /// The number of elements that a map gets, and the elements.
    fn size<'v>(
        &self,
        name: &str,
        value: &'v SettingValue,
        at: At,
    ) -> Result<(Option<usize>, Option<&'v SettingValue>), String> {
        let SettingValue::Table(table) = value else { return Ok((None, Some(value))) };
        let elements = table.get("elements");
        let Some(max_entries) =
            table.get("max_entries").filter(|_| table.len() == 1 + usize::from(elements.is_some()))
        else {
            return Ok((None, Some(value)));
        };
        match self.value(max_entries, at)? {
            Value::Number(count) if (1..=i128::from(u32::MAX)).contains(&count) => {
                Ok((Some(count as usize), elements))
            }
            _ => Err(format!("`max_entries` of `{name}` is a number from 1 to {}", u32::MAX)),
        }
    }

    /// The maps that a map of maps gets.
    fn inner_maps(&self, map: usize, value: &SettingValue) -> Result<Vec<InnerMap>, String> {
        let outer = &self.image.maps[map];
        let Some(inner) = &outer.inner else { return Ok(Vec::new()) };
        self.entries(&outer.name, value, &[], At::Machine, |table, at| {
            let contents = match &table["value"] {
                SettingValue::Text(name) => {
                    let named = self.image.maps.iter().position(|map| map.name == *name);
                    InnerMapContents::Named(named.ok_or_else(|| {
                        let maps = listed(self.image.maps.iter().map(|map| &map.name));
                        format!("`{}.value` names a map `{name:.60}`; there are {maps}", outer.name)
                    })?)
                }
                value => {
                    let (max_entries, elements) = self.size(&inner.name, value, at)?;
                    let elements = elements.map(|elements| self.elements((0, inner), elements, at));
                    InnerMapContents::New { max_entries, elements: elements.transpose()?.unwrap_or_default() }
                }
            };
            let key = self.key(outer, &table["key"], at)?;
            Ok(InnerMap { map, key, contents })
        })
    }

    fn key(&self, map: &MapDefinition, value: &SettingValue, at: At) -> Result<Vec<u8>, String> {
        self.part_of_element(
            &format!("{}.key", map.name),
            map.types[0],
            map.key_size,
            &self.value(value, at)?,
        )
    }

    /// What each table of a list stands for, which has a `key` and a `value`, maybe some of these keys too, and
    /// maybe `each`.
    fn entries<T>(
        &self,
        name: &str,
        value: &SettingValue,
        optional: &[&'static str],
        at: At,
        entry: impl Fn(&BTreeMap<String, SettingValue>, At) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let form = || {
            let others: Vec<_> = optional.iter().map(|key| format!(" and `{key}`")).collect();
            format!(
                "the elements of the map `{name}` are a list of tables with `key` and `value`, and maybe `each`{}",
                others.concat()
            )
        };
        let SettingValue::List(tables) = value else { return Err(form()) };
        let mut all = Vec::new();
        for table in tables {
            let SettingValue::Table(table) = table else { return Err(form()) };
            let mut keys = vec!["key", "value"];
            keys.extend(optional.iter().filter(|&&key| table.contains_key(key)));
            if !keys.iter().all(|key| table.contains_key(*key)) {
                return Err(form());
            }
            match table.get("each") {
                Some(each) => all.extend(self.for_each(each, table, &keys, at, |at| entry(table, at))?),
                None if table.len() == keys.len() => all.push(entry(table, at)?),
                None => return Err(form()),
            }
        }
        Ok(all)
    }

    /// The elements of a map.
    fn elements(
        &self,
        (map, definition): (usize, &MapDefinition),
        value: &SettingValue,
        at: At,
    ) -> Result<Vec<Element>, String> {
        let name = &definition.name;
        self.entries(name, value, &["cpu"], at, |table, at| {
            let cpu = table.get("cpu").map(|cpu| {
                let number = match self.value(cpu, at)? {
                    Value::Number(cpu) => {
                        usize::try_from(cpu).ok().filter(|&cpu| cpu < self.machine.cpu_count())
                    }
                    _ => None,
                };
                number.ok_or_else(|| format!("`{name}.cpu` is no CPU of the machine"))
            });
            let value = self.part_of_element(
                &format!("{name}.value"),
                definition.types[1],
                definition.value_size,
                &self.value(&table["value"], at)?,
            )?;
            Ok(Element { map, cpu: cpu.transpose()?, key: self.key(definition, &table["key"], at)?, value })
        })
    }

    /// A key or a value of a map, whose type the object may not say.
    fn part_of_element(
        &self,
        name: &str,
        of: Option<DataTypeId>,
        size: usize,
        value: &Value,
    ) -> Result<Vec<u8>, String> {
        match (of, value) {
            (Some(of), value) => self.image.types.bytes(name, (of, size), value, self.constant),
            (None, Value::Number(number)) if matches!(size, 1 | 2 | 4 | 8) => {
                Ok(number.to_le_bytes()[..size].to_vec())
            }
            (None, _) => Err(format!("`{name}` has {size} bytes of a type that the object does not say")),
        }
    }

    fn operations(
        &self,
        name: &str,
        value: &SettingValue,
        operations: &mut Vec<(String, Option<u64>)>,
    ) -> Result<(), String> {
        let SettingValue::Table(table) = value else {
            return Err(format!(
                "the operations `{name}` are a table of numbers, and callbacks that are false"
            ));
        };
        let ops = &self.image.struct_ops[0];
        for (member, value) in table {
            let (is_number, is_callback) =
                (ops.numbers.contains_key(member), ops.callbacks.contains_key(member));
            let number = match value {
                SettingValue::Switch(false) if is_callback => None,
                SettingValue::Number(number) if is_number => Some(*number as u64),
                SettingValue::Text(text) if is_number => {
                    let constants = text.split('|').map(str::trim).map(|name| {
                        (self.constant)(name)
                            .ok_or_else(|| format!("the kernel has no constant `{name:.60}`"))
                    });
                    Some(constants.sum::<Result<u64, _>>()?)
                }
                _ => {
                    return Err(format!(
                        "`{name}.{member:.60}` is neither a number of the operations nor a callback that is false; \
                         numbers are {}, callbacks {}",
                        listed(ops.numbers.keys()),
                        listed(ops.callbacks.keys())
                    ));
                }
            };
            operations.push((member.clone(), number));
        }
        Ok(())
    }

    fn calls(&self, call: &CallTable) -> Result<Vec<Call>, String> {
        let name = &call.program;
        let program = self.image.programs.get(name).ok_or_else(|| {
            format!(
                "there is no program `{name:.60}` to call; there are {}",
                listed(self.image.programs.keys().collect::<Vec<_>>().into_iter())
            )
        })?;
        let argument = |at: At| match (program.argument, &call.args) {
            (None, None) => Ok(Vec::new()),
            (None, Some(_)) => Err(format!("the program `{name}` takes no `args`")),
            (Some((_, size)), None) => Ok(vec![0; size]),
            (Some(typed), Some(value)) => {
                self.image.types.bytes(name, typed, &self.value(value, at)?, self.constant)
            }
        };
        let called = |at: At| Ok(Call { program: name.clone(), argument: argument(at)?, set: None });
        let parts = call.each.map_or(vec![At::Machine], |Word(part)| At::each(self.machine, part));
        parts.into_iter().map(called).collect()
    }
}

fn no_part(word: &str) -> String {
    format!("`each` is one of \"cpu\", \"core\", \"llc\", \"node\" and \"siblings\", not \"{word:.60}\"")
}
