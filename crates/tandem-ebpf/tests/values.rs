//! Values that user space gives, against what programs read.

mod common;

use common::{compile, environment};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use tandem_ebpf::{Code, Engine, Fault, Image, Instance, Kernel, KernelFunction, State, Value};

/// A variable of a type with all forms, and a program that reads each part of it by its number.
const SOURCE: &str = r#"
struct inner { u8 small; s16 negative; u64 words[3]; };
enum kind { FIRST = 3, SECOND = 1000 };
struct outer {
    u32 number;
    struct inner inner[2];
    struct { u16 hidden; union { u32 either; u32 other; }; };
    char text[8];
    enum kind kind;
    bool yes;
};
struct outer told = { .number = 77 };
struct key { u32 a; u8 b; };
struct {
    __uint(type, 1);
    __uint(max_entries, 8);
    __type(key, struct key);
    __type(value, struct outer);
} elements SEC(".maps");
static void *(*lookup)(void *, void *) = (void *)1;
SEC("syscall") u64 part(u64 *context)
{
    switch (context[0]) {
    case 0: return told.number;
    case 1: return told.inner[0].small;
    case 2: return told.inner[1].negative & 0xffff;
    case 3: return told.inner[0].words[0];
    case 4: return told.inner[1].words[2];
    case 5: return told.hidden;
    case 6: return told.other;
    case 7: return told.text[0];
    case 8: return told.kind;
    case 9: return told.yes;
    }
    return -1ULL;
}
"#;

static IMAGE: LazyLock<Image> =
    LazyLock::new(|| Image::link(&compile(SOURCE, "v3"), &environment()).expect("it is a valid object"));

/// Paths and sizes, in bytes, of the parts, in the order of the program. A number is a position.
const PARTS: [(&[&str], usize); 10] = [
    (&["number"], 4),
    (&["inner", "0", "small"], 1),
    (&["inner", "1", "negative"], 2),
    (&["inner", "0", "words", "0"], 8),
    (&["inner", "1", "words", "2"], 8),
    (&["hidden"], 2),
    (&["either"], 4),
    (&["text", "0"], 1),
    (&["kind"], 4),
    (&["yes"], 1),
];

struct Nothing;

impl Kernel for Nothing {
    fn cpu(&self) -> usize {
        0
    }
    fn clock_ns(&self) -> u64 {
        0
    }
    fn call(&mut self, _: &mut State, _: KernelFunction, _: [u64; 5]) -> Result<u64, Fault> {
        Err(Fault("there is none".into()))
    }
    fn start_timer(&mut self, _: u64, _: u64, _: bool) -> bool {
        false
    }
    fn cancel_timer(&mut self, _: u64) -> bool {
        false
    }
}

fn no_constant(_: &str) -> Option<u64> {
    None
}

fn patches(value: &Value) -> Result<Vec<(usize, Vec<u8>)>, String> {
    let told = &IMAGE.variables["told"];
    IMAGE.types.patches("told", (told.of, told.size), value, &no_constant)
}

/// Puts a number at a path into a table of tables.
fn insert(table: &mut BTreeMap<String, Value>, path: &[&str], number: i128) {
    let [first, rest @ ..] = path else { return };
    if rest.is_empty() {
        table.insert((*first).into(), Value::Number(number));
        return;
    }
    let inner = table.entry((*first).into()).or_insert_with(|| Value::Table(BTreeMap::new()));
    if let Value::Table(inner) = inner {
        insert(inner, rest, number);
    }
}

/// The numbers that parts get, or `None` for those that keep theirs.
fn numbers() -> impl Strategy<Value = Vec<Option<i128>>> {
    let number = |size: usize| proptest::option::of(-(1_i128 << (8 * size - 1))..1_i128 << (8 * size));
    PARTS.map(|(_, size)| number(size)).to_vec()
}

/// Names of parts and of values, and one of neither.
const NAMES: &[&str] =
    &["number", "inner", "words", "text", "kind", "0", "1", "9", "FIRST", "SECOND|FIRST", "nobody"];

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(|number| Value::Number(number.into())),
        any::<i128>().prop_map(Value::Number),
        select(NAMES).prop_map(|name| Value::Text(name.into())),
        "\\PC{0,12}".prop_map(Value::Text),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::List),
            btree_map(select(NAMES).prop_map(String::from), inner, 0..5).prop_map(Value::Table),
        ]
    })
}

proptest! {
    #[test]
    fn programs_read_what_was_told(numbers in numbers()) {
        let mut table = BTreeMap::new();
        for ((path, _), number) in PARTS.iter().zip(&numbers) {
            number.iter().for_each(|&number| insert(&mut table, path, number));
        }
        let patches = patches(&Value::Table(table)).unwrap();
        let code = Arc::new(Code::new(IMAGE.clone(), Engine::Interpreted).unwrap());
        let mut instance = Instance::new(code, 1).unwrap();
        let address = IMAGE.variables["told"].address;
        for (offset, bytes) in &patches {
            let place = instance.state_mut().memory.slice_mut(address + *offset as u64, bytes.len());
            place.unwrap().copy_from_slice(bytes);
        }
        let argument = instance.state_mut().memory.allocate(8).unwrap();
        for (at, ((path, size), number)) in PARTS.iter().zip(&numbers).enumerate() {
            instance.state_mut().memory.store(argument, 8, at as u64).unwrap();
            let read = instance.call(&mut Nothing, IMAGE.programs["part"].function, [argument, 0, 0, 0, 0]);
            let initially = if at == 0 { 77 } else { 0 };
            let mask = u64::MAX >> (64 - 8 * size);
            let mut expected = number.map_or(initially, |number| number as u64) & mask;
            // A boolean is what its lowest bit says, and a byte of a text has a sign.
            if path[0] == "yes" {
                expected &= 1;
            }
            let read = read.unwrap() & if path[0] == "yes" { 1 } else { mask };
            prop_assert_eq!(read, expected, "{:?}", path);
        }
    }

    #[test]
    fn any_value_fits_or_has_an_error(value in any_value()) {
        match patches(&value) {
            Ok(patches) => {
                let size = IMAGE.variables["told"].size;
                prop_assert!(patches.iter().all(|(offset, bytes)| offset + bytes.len() <= size));
            }
            Err(error) => prop_assert!(error.contains("`told"), "{}", error),
        }
    }

    #[test]
    fn damaged_types_do_no_harm(
        damages in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..40),
        value in any_value(),
    ) {
        static OBJECT: LazyLock<Vec<u8>> = LazyLock::new(|| compile(SOURCE, "v3"));
        let mut object = OBJECT.clone();
        for (index, byte) in damages {
            let at = index.index(object.len());
            object[at] = byte;
        }
        let Ok(image) = Image::link(&object, &environment()) else { return Ok(()) };
        for variable in image.variables.values() {
            let patches = image.types.patches("it", (variable.of, variable.size), &value, &no_constant);
            for (offset, bytes) in patches.unwrap_or_default() {
                prop_assert!(offset + bytes.len() <= variable.size);
            }
        }
    }
}

#[test]
fn a_number_may_be_named() {
    let kind = |name: &str| {
        let table = BTreeMap::from([("kind".to_owned(), Value::Text(name.into()))]);
        let told = &IMAGE.variables["told"];
        let constant = |name: &str| (name == "KERNEL").then_some(1 << 20);
        IMAGE.types.patches("told", (told.of, told.size), &Value::Table(table), &constant)
    };
    let number = |name: &str| u32::from_le_bytes(kind(name).unwrap()[0].1[..].try_into().unwrap());
    assert_eq!(number("SECOND"), 1000);
    assert_eq!(number("FIRST | KERNEL"), 3 | 1 << 20);
    assert!(kind("THIRD").unwrap_err().contains("`told.kind` is a number, and `THIRD` is no constant"));
}

#[test]
fn types_of_maps_and_arguments_are_known() {
    let map = &IMAGE.maps[0];
    let key = Value::Table(BTreeMap::from([("b".to_owned(), Value::Number(5))]));
    let bytes = IMAGE.types.bytes("key", (map.types[0].unwrap(), map.key_size), &key, &no_constant);
    assert_eq!(bytes.unwrap(), [0, 0, 0, 0, 5, 0, 0, 0]);
    assert_eq!(IMAGE.types.structure_size("inner"), Some(32));
    // A pointer to numbers: the size is that of one.
    assert_eq!(IMAGE.programs["part"].argument.unwrap().1, 8);
}
