//! Objects that programs allocate, in fields, lists and trees: against models of the standard library, and what
//! becomes of mistakes.

mod common;
#[path = "common/running.rs"]
mod running;

use proptest::prelude::*;
use running::Both;
use std::collections::{BTreeMap, VecDeque};
use std::sync::LazyLock;
use tandem_ebpf::Image;

const SOURCE: &str = include_str!("sources/objects.bpf.c");

static IMAGE: LazyLock<Image> = LazyLock::new(|| {
    Image::link(&common::compile(SOURCE, "v3"), &common::environment())
        .unwrap_or_else(|error| panic!("{error}"))
});

/// What each byte of an object that has gone contains.
const GONE: u64 = 0xa5a5_a5a5_a5a5_a5a5;
const ENOENT: u64 = -2_i64 as u64;

/// The maps that have fields.
const HASH: u64 = 0;
const LRU: u64 = 1;
const ARRAY: u64 = 2;

#[derive(Clone, Debug)]
enum Step {
    Push(u64, bool),
    Add(u64),
    Both(u64, bool),
    Twice(u64),
    Pop(bool),
    TakeFirst,
    TakeKey(u64),
    /// Into a map, by its key; or none.
    Put(u64, u64, bool),
    Overwrite(u64, u64),
    Remove(u64, u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0..40u64;
    let map = || prop::sample::select(vec![HASH, LRU, ARRAY]);
    let step = prop_oneof![
        3 => (key(), any::<bool>()).prop_map(|(key, front)| Step::Push(key, front)),
        5 => key().prop_map(Step::Add),
        3 => (key(), any::<bool>()).prop_map(|(key, front)| Step::Both(key, front)),
        1 => key().prop_map(Step::Twice),
        5 => any::<bool>().prop_map(Step::Pop),
        3 => Just(Step::TakeFirst),
        4 => key().prop_map(Step::TakeKey),
        5 => (map(), 0..6u64, any::<bool>()).prop_map(|(map, key, is_item)| Step::Put(map, key, is_item)),
        1 => (map(), 0..6u64).prop_map(|(map, key)| Step::Overwrite(map, key)),
        2 => (prop::sample::select(vec![HASH, LRU]), 0..6u64).prop_map(|(map, key)| Step::Remove(map, key)),
    ];
    prop::collection::vec(step, 0..150)
}

/// What the program should have: serial numbers of items.
#[derive(Default)]
struct Model {
    list: VecDeque<u64>,
    /// In order: keys and serial numbers.
    tree: Vec<(u64, u64)>,
    /// Of each map: keys, with the serial number of the item, or 0; the one used last at the end.
    maps: BTreeMap<u64, Vec<(u64, u64)>>,
}

impl Model {
    fn push(&mut self, serial: u64, front: bool) {
        match front {
            true => self.list.push_front(serial),
            false => self.list.push_back(serial),
        }
    }

    fn add(&mut self, key: u64, serial: u64) {
        let at = self.tree.partition_point(|&(other, _)| other <= key);
        self.tree.insert(at, (key, serial));
    }

    /// The element of a map, which is made if there is none, and room.
    fn element(&mut self, map: u64, key: u64) -> Option<&mut u64> {
        let elements = self.maps.entry(map).or_default();
        match elements.iter().position(|element| element.0 == key) {
            Some(at) => {
                let element = elements.remove(at);
                elements.push(element);
            }
            None if map == ARRAY && key >= 4 || map == HASH && elements.len() == 4 => return None,
            None => {
                if map == LRU && elements.len() == 2 {
                    elements.remove(0);
                }
                elements.push((key, 0));
            }
        }
        elements.last_mut().map(|element| &mut element.1)
    }

    fn object_count(&self) -> usize {
        let in_maps = self.maps.values().flatten().map(|element| element.1).filter(|&serial| serial != 0);
        let all: std::collections::BTreeSet<_> =
            self.list.iter().copied().chain(self.tree.iter().map(|node| node.1)).chain(in_maps).collect();
        all.len()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn fields_lists_and_trees_are_what_models_say(steps in steps()) {
        let mut both = Both::of(&IMAGE);
        let mut model = Model::default();
        for (serial, step) in (1..).zip(steps) {
            match step {
                Step::Push(key, front) => {
                    prop_assert_eq!(both.call("push_new", &[key, serial, front.into()]), 0);
                    model.push(serial, front);
                }
                Step::Add(key) => {
                    prop_assert_eq!(both.call("add_new", &[key, serial]), 0);
                    model.add(key, serial);
                }
                Step::Both(key, front) => {
                    prop_assert_eq!(both.call("both_new", &[key, serial, front.into()]), 0);
                    model.push(serial, front);
                    model.add(key, serial);
                }
                Step::Twice(key) => {
                    prop_assert_eq!(both.call("twice", &[key, serial]), 0);
                    model.push(serial, false);
                }
                Step::Pop(front) => {
                    let expected = if front { model.list.pop_front() } else { model.list.pop_back() };
                    prop_assert_eq!(both.call("pop", &[front.into()]), expected.unwrap_or(0));
                }
                Step::TakeFirst => {
                    let expected = if model.tree.is_empty() { 0 } else { model.tree.remove(0).1 };
                    prop_assert_eq!(both.call("take_first", &[]), expected);
                }
                Step::TakeKey(key) => {
                    // Any of those with this key.
                    let found = both.call("take_key", &[key]);
                    let at = model.tree.iter().position(|&node| node == (key, found));
                    prop_assert_eq!(at.is_some(), model.tree.iter().any(|node| node.0 == key));
                    at.map(|at| model.tree.remove(at));
                }
                Step::Put(map, key, is_item) => {
                    let serial = if is_item { serial } else { 0 };
                    let expected = model.element(map, key).map(|place| std::mem::replace(place, serial));
                    let found = both.call("put", &[0, serial, map, key]);
                    prop_assert_eq!(found, expected.unwrap_or(u64::MAX));
                }
                Step::Overwrite(map, key) => {
                    let expected = model.element(map, key).map(|place| *place = 0);
                    let result = both.call("overwrite", &[0, serial, map, key]);
                    prop_assert_eq!(result == 0, expected.is_some());
                }
                Step::Remove(map, key) => {
                    let elements = model.maps.entry(map).or_default();
                    let at = elements.iter().position(|element| element.0 == key);
                    at.map(|at| elements.remove(at));
                    let result = both.call("remove", &[0, 0, map, key]);
                    prop_assert_eq!(result, if at.is_some() { 0 } else { ENOENT });
                }
            }
            prop_assert_eq!(both.object_count(), model.object_count());
        }
        both.memory();
    }
}

#[test]
fn what_is_in_an_object_goes_with_it() {
    let mut both = Both::of(&IMAGE);
    assert_eq!(both.call("chain", &[1, 1, 100_000]), 0);
    assert_eq!(both.call("queue_in_map", &[0]), 0);
    assert_eq!(both.call("queue_in_map", &[1]), 0);
    assert_eq!(both.call("on_each_cpu", &[]), 0);
    assert_eq!(both.object_count(), 0);
}

#[test]
fn memory_is_bounded() {
    let mut both = Both::of(&IMAGE);
    for _ in 0..100 {
        assert_eq!(both.call("churn", &[10_000]), 0);
    }
    assert!(both.memory() < 16 << 20, "{} bytes for 1000000 objects, one at a time", both.memory());
    let count = both.call("fill", &[]);
    assert!((10_000..100_000).contains(&count), "{count} objects of about 4 KiB");
    assert_eq!(both.call("fill", &[]), 0);
}

#[test]
fn memory_of_an_object_that_has_gone_is_never_that_of_another() {
    let mut both = Both::of(&IMAGE);
    assert_eq!(both.call("keep", &[]), GONE);
    for _ in 0..30 {
        assert_eq!(both.call("churn", &[10_000]), 0);
        assert_eq!(both.call("read_kept", &[]), GONE);
    }
    // What nobody points to any more comes back: `churn` uses no more memory from now on.
    let before = both.memory();
    for _ in 0..30 {
        both.call("churn", &[10_000]);
    }
    assert!(both.memory() <= before + (4 << 20));
    assert!(both.fault("drop_kept", &[]).contains("`bpf_obj_drop` got an object that has been dropped"));
}

#[test]
fn a_mistake_is_a_fault_that_names_the_function() {
    for (program, expected) in [
        ("leak", "`leak` returned with 1 references to objects that it neither dropped nor put away"),
        ("drop_twice", "`bpf_obj_drop` got an object that has been dropped"),
        ("drop_null", "`bpf_obj_drop` got a null pointer instead of an object"),
        ("drop_number", "which is no object from `bpf_obj_new`"),
        ("push_twice", "`bpf_list_push_back` got an object that the program does not own"),
        ("drop_listed", "`bpf_obj_drop` got an object that the program does not own"),
        ("unlocked", "`bpf_list_pop_front` is called without the lock of the list"),
        ("wrongly_locked", "`bpf_rbtree_first` is called without the lock of the tree"),
        ("not_a_node", "not that of a `struct bpf_list_node` in an object, but offset 0 of `struct plain`"),
        ("of_another_type", "`bpf_list_push_back` got an object of another type than the list has"),
        ("tree_as_list", "`bpf_list_pop_front` got a tree instead of a list"),
        ("uncounted", "`bpf_refcount_acquire` got an object without a `struct bpf_refcount`"),
        ("unknown_type", "`bpf_obj_new` got 12345, which is not the number of a structure"),
        ("overwritten", "`bpf_kptr_xchg` got a field that the program has written to by other means"),
        ("change_tree", "the tree changed while `bpf_rbtree_add` compared its nodes"),
    ] {
        let fault = Both::of(&IMAGE).fault(program, &[12345, 1]);
        assert!(fault.contains(expected), "{program}: {fault}");
        assert!(fault.contains(&format!("`{program}`")), "{fault}");
    }
    let mut both = Both::of(&IMAGE);
    both.call("keep", &[]);
    assert!(both.fault("put_kept", &[]).contains("`bpf_kptr_xchg` got an object that has been dropped"));
}
