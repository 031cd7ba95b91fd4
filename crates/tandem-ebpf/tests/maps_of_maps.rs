//! Maps of maps: what the object puts into them, and what user space does.

mod common;
#[path = "common/running.rs"]
mod running;

use common::{compile, environment};
use proptest::prelude::*;
use running::Both;
use std::collections::VecDeque;
use std::sync::LazyLock;
use tandem_ebpf::{Image, MapKind};

const SOURCE: &str = r#"
#define __array(name, val) typeof(val) *name[]
static void *(*lookup)(void *, const void *) = (void *)1;
static long (*update)(void *, const void *, const void *, u64) = (void *)2;
static long (*push)(void *, const void *, u64) = (void *)87;
static long (*pop)(void *, void *) = (void *)88;
struct queue { __uint(type, 22); __uint(max_entries, 3); __type(value, u32); };
struct queue first SEC(".maps"), second SEC(".maps");
struct {
    __uint(type, 12);
    __uint(max_entries, 4);
    __type(key, u32);
    __array(values, struct queue);
} queues SEC(".maps") = { .values = { [0] = &first, [2] = (void *)&second } };
struct counts { __uint(type, 2); __uint(max_entries, 2); __type(key, u32); __type(value, u64); };
struct {
    __uint(type, 13);
    __uint(max_entries, 2);
    __type(key, u64);
    __array(values, struct counts);
} by_name SEC(".maps");
struct { __uint(type, 2); __type(key, u32); __type(value, u64); } sized SEC(".maps");

SEC("syscall") u64 put(u64 *args)
{
    u32 key = args[0], value = args[1];
    void *queue = lookup(&queues, &key);
    return queue ? push(queue, &value, 0) : 1;
}
SEC("syscall") u64 take(u64 *args)
{
    u32 key = args[0], value = 0;
    void *queue = lookup(&queues, &key);
    return queue && pop(queue, &value) == 0 ? value : 0;
}
SEC("syscall") u64 put_directly(u64 *args) { u32 value = args[0]; return push(&first, &value, 0); }
SEC("syscall") u64 count(u64 *args)
{
    void *counts = lookup(&by_name, &args[0]);
    u32 at = args[1];
    u64 *number = counts ? lookup(counts, &at) : 0;
    return number ? ++*number : 0;
}
SEC("syscall") u64 count_sized(u64 *args)
{
    u32 at = args[0];
    u64 *number = lookup(&sized, &at);
    return number ? ++*number : 0;
}
SEC("syscall") u64 change(u64 *args) { u32 key = args[0], value = 0; return update(&queues, &key, &value, 0); }
"#;

static IMAGE: LazyLock<Image> = LazyLock::new(|| {
    Image::link(&compile(SOURCE, "v3"), &environment()).unwrap_or_else(|error| panic!("{error}"))
});

fn map(name: &str) -> usize {
    IMAGE.maps.iter().position(|map| map.name == name).unwrap()
}

const E2BIG: u64 = -7_i64 as u64;

#[test]
fn the_object_says_what_is_in_them() {
    let queues = &IMAGE.maps[map("queues")];
    assert_eq!((queues.kind, queues.key_size, queues.max_entries), (MapKind::ArrayOfMaps, 4, 4));
    let inner = queues.inner.as_ref().unwrap();
    assert_eq!((inner.kind, inner.value_size, inner.max_entries), (MapKind::Queue, 4, 3));
    assert_eq!(queues.initial, [(0, map("first")), (2, map("second"))]);
    let by_name = &IMAGE.maps[map("by_name")];
    assert_eq!((by_name.kind, by_name.key_size, by_name.initial.len()), (MapKind::HashOfMaps, 8, 0));
}

proptest! {
    #[test]
    fn queues_in_an_array_are_queues(steps in prop::collection::vec((0..5usize, any::<bool>()), 0..100)) {
        let mut both = Both::of(&IMAGE);
        // User space adds one, of another length.
        for instance in &mut both.0 {
            let state = instance.state_mut();
            let new = state.make_inner_map(map("queues"), Some(5)).unwrap();
            prop_assert_eq!(state.set_inner_map(map("queues"), &3u32.to_le_bytes(), new), Ok(true));
            prop_assert_eq!(state.set_inner_map(map("queues"), &4u32.to_le_bytes(), new), Ok(false));
        }
        let mut model: [VecDeque<u64>; 5] = Default::default();
        for (number, (at, is_put)) in (1..).zip(steps) {
            let room = [3, 0, 3, 5, 0][at];
            if !is_put {
                prop_assert_eq!(both.call("take", &[at as u64]), model[at].pop_front().unwrap_or(0));
                continue;
            }
            let direct = at == 0 && number % 2 == 0;
            let result = match direct {
                true => both.call("put_directly", &[number]),
                false => both.call("put", &[at as u64, number]),
            };
            let expected = match room {
                0 => 1,
                _ if model[at].len() == room => E2BIG,
                _ => {
                    model[at].push_back(number);
                    0
                }
            };
            prop_assert_eq!(result, expected);
        }
        both.memory();
    }
}

#[test]
fn user_space_puts_maps_there_by_keys_of_any_size() {
    let mut both = Both::of(&IMAGE);
    for instance in &mut both.0 {
        let state = instance.state_mut();
        for key in [7u64, 1 << 40] {
            let new = state.make_inner_map(map("by_name"), None).unwrap();
            assert_eq!(state.set_inner_map(map("by_name"), &key.to_le_bytes(), new), Ok(true));
            assert_eq!(state.set_element(new, &1u32.to_le_bytes(), 0, &key.to_le_bytes()), Ok(true));
        }
        let first = state.make_inner_map(map("by_name"), None).unwrap();
        assert_eq!(state.set_inner_map(map("by_name"), &8u64.to_le_bytes(), first), Ok(false), "it is full");
        let error = |result: Result<_, tandem_ebpf::Fault>| result.map(|_: bool| ()).unwrap_err().0;
        let wrong = error(state.set_inner_map(map("by_name"), &7u64.to_le_bytes(), map("first")));
        assert!(wrong.contains("the map `first` cannot be in the map `by_name`"), "{wrong}");
        let none = error(state.set_inner_map(map("first"), &[], map("second")));
        assert!(none.contains("the map `first` has no maps in it"), "{none}");
        let key = error(state.set_inner_map(map("by_name"), &[1], first));
        assert!(key.contains("a key of the map `by_name` does not have 1 bytes"), "{key}");
        let longer = state.make_inner_map(map("by_name"), Some(3)).unwrap_err().0;
        assert!(longer.contains("of another type or size"), "an array has one length: {longer}");
    }
    assert_eq!([1, 1].map(|_| both.call("count", &[7, 1])), [8, 9]);
    assert_eq!(both.call("count", &[1 << 40, 1]), (1 << 40) + 1);
    assert_eq!(both.call("count", &[1 << 40, 0]), 1);
    assert_eq!(both.call("count", &[8, 0]), 0);
    assert_eq!(both.object_count(), 0);
    assert!(
        both.fault("change", &[0]).contains("updating an element is not possible with a map of this type")
    );
}

#[test]
fn user_space_says_how_long_an_array_is_if_the_object_does_not() {
    let mut both = Both::of(&IMAGE);
    assert_eq!(both.call("count_sized", &[0]), 0);
    for instance in &mut both.0 {
        instance.state_mut().resize_map(map("sized"), 6).unwrap();
        let error = instance.state_mut().resize_map(map("sized"), 7).unwrap_err().0;
        assert!(error.contains("the map `sized` has 6 elements"), "{error}");
    }
    assert_eq!([5, 5, 6].map(|at| both.call("count_sized", &[at])), [1, 2, 0]);
}

#[test]
fn definitions_that_are_wrong_are_errors() {
    let error = |source: &str| {
        let object = compile(&format!("#define __array(name, val) typeof(val) *name[]\n{source}"), "v3");
        Image::link(&object, &environment()).expect_err(source).to_string()
    };
    let outer = |more: &str| {
        format!(
            "struct {{ __uint(type, 12); __uint(max_entries, 1); __type(key, u32); {more} }} outer SEC(\".maps\")"
        )
    };
    assert_eq!(
        error(&(outer("") + ";")),
        "map `outer` does not say which maps are in it: declare them with __array(values, ...)"
    );
    let queue = "struct queue { __uint(type, 22); __uint(max_entries, 1); __type(value, u64); };";
    let inner = "__array(values, struct queue);";
    let stack =
        "struct { __uint(type, 23); __uint(max_entries, 1); __type(value, u64); } other SEC(\".maps\");";
    assert_eq!(
        error(&format!("{queue} {stack} {} = {{ .values = {{ (void *)&other }} }};", outer(inner))),
        "map `outer` has map `other` in it, which is of another type"
    );
    assert_eq!(
        error(&format!("{queue} u64 number; {} = {{ .values = {{ (void *)&number }} }};", outer(inner))),
        "map `outer` has `number` in it, which is not a map of the object"
    );
    assert_eq!(
        error(&format!(
            "{queue} struct queue a SEC(\".maps\"); {} = {{ .values = {{ [1] = &a }} }};",
            outer(inner)
        )),
        "map `outer` has no place 1 for map `a`"
    );
    let nested = "struct middle { __uint(type, 12); __uint(max_entries, 1); __type(key, u32); __array(values, struct queue); };";
    assert_eq!(
        error(&format!("{queue} {nested} {};", outer("__array(values, struct middle);"))),
        "map `outer.inner` is in a map of maps, and a map of maps itself"
    );
}
