//! Maps against models of the standard library, and the kernel's results in special cases.

use super::errno;
use crate::image::{Image, MapDefinition, MapKind};
use crate::memory::Memory;
use crate::testing::{Bench, map};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

const LOOKUP: &str = "bpf_map_lookup_elem";
const LOOKUP_ON_CPU: &str = "bpf_map_lookup_percpu_elem";
const UPDATE: &str = "bpf_map_update_elem";
const DELETE: &str = "bpf_map_delete_elem";
const PUSH: &str = "bpf_map_push_elem";
const POP: &str = "bpf_map_pop_elem";
const PEEK: &str = "bpf_map_peek_elem";
const GET: &str = "bpf_task_storage_get";
const FORGET: &str = "bpf_task_storage_delete";

fn bench(definition: MapDefinition) -> Bench {
    Bench::new(vec![definition], &[LOOKUP, LOOKUP_ON_CPU, UPDATE, DELETE, PUSH, POP, PEEK, GET, FORGET])
}

const MAP: u64 = Image::MAPS;
const ANY: u64 = 0;

#[derive(Clone, Copy, Debug)]
enum Step {
    Lookup(u64),
    Update(u64, u64, u64),
    Delete(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0..24_u64).prop_map(Step::Lookup),
        (0..24_u64, any::<u64>(), 0..3_u64).prop_map(|(key, value, flags)| Step::Update(key, value, flags)),
        (0..24_u64).prop_map(Step::Delete),
    ];
    prop::collection::vec(step, 0..300)
}

/// The contents of a hash map: keys and values, in the order of insertion or use.
#[derive(Default)]
struct Model {
    elements: Vec<(u64, u64)>,
    replaces: bool,
}

impl Model {
    const ENTRIES_MAX: usize = 12;

    fn position(&self, key: u64) -> Option<usize> {
        self.elements.iter().position(|element| element.0 == key)
    }

    fn use_now(&mut self, position: usize) {
        if self.replaces {
            let element = self.elements.remove(position);
            self.elements.push(element);
        }
    }

    fn lookup(&mut self, key: u64) -> Option<u64> {
        let position = self.position(key)?;
        let value = self.elements[position].1;
        self.use_now(position);
        Some(value)
    }

    fn update(&mut self, key: u64, value: u64, flags: u64) -> u64 {
        match (self.position(key), flags) {
            (Some(_), 1) => errno::EEXIST,
            (None, 2) => errno::ENOENT,
            (Some(position), _) => {
                self.elements[position].1 = value;
                self.use_now(position);
                0
            }
            (None, _) if self.elements.len() == Self::ENTRIES_MAX && !self.replaces => errno::E2BIG,
            (None, _) => {
                if self.elements.len() == Self::ENTRIES_MAX {
                    self.elements.remove(0);
                }
                self.elements.push((key, value));
                0
            }
        }
    }

    fn delete(&mut self, key: u64) -> u64 {
        self.position(key).map_or(errno::ENOENT, |position| {
            self.elements.remove(position);
            0
        })
    }
}

/// Keys longer than a word and not a multiple of it.
fn long_key(key: u64) -> [u8; 13] {
    let mut bytes = [7; 13];
    bytes[5..].copy_from_slice(&key.to_le_bytes());
    bytes
}

fn check_hash(kind: MapKind, steps: &[Step]) {
    let replaces = matches!(kind, MapKind::LruHash | MapKind::LruPerCpuHash);
    let mut model = Model { replaces, ..Model::default() };
    let mut bench = bench(map(kind, 13, 8, Model::ENTRIES_MAX));
    bench.kernel.cpu = 2;
    for &step in steps {
        match step {
            Step::Lookup(key) => {
                let key_address = bench.put(0, &long_key(key));
                let value = bench.call(LOOKUP, &[MAP, key_address]);
                let value = (value != 0).then(|| bench.number(value));
                assert_eq!(value, model.lookup(key), "{step:?}");
            }
            Step::Update(key, value, flags) => {
                let key_address = bench.put(0, &long_key(key));
                let value_address = bench.put_number(16, value);
                let result = bench.call(UPDATE, &[MAP, key_address, value_address, flags]);
                assert_eq!(result, model.update(key, value, flags), "{step:?}");
            }
            Step::Delete(key) => {
                let key_address = bench.put(0, &long_key(key));
                assert_eq!(bench.call(DELETE, &[MAP, key_address]), model.delete(key), "{step:?}");
            }
        }
    }
    let elements = bench.instance.state().maps[0].elements(2).unwrap();
    let values: Vec<u64> = elements.iter().map(|element| bench.number(element.1)).collect();
    assert_eq!(values, model.elements.iter().map(|element| element.1).collect::<Vec<_>>(), "the order");
    for (key, value) in &model.elements {
        let bytes = bench.instance.state().element(0, &long_key(*key), 2);
        assert_eq!(bytes, Some(value.to_le_bytes().as_slice()));
    }
}

proptest! {
    #[test]
    fn hash_maps_are_as_the_model(steps in steps()) {
        check_hash(MapKind::Hash, &steps);
        check_hash(MapKind::PerCpuHash, &steps);
    }

    #[test]
    fn maps_that_replace_are_as_the_model(steps in steps()) {
        check_hash(MapKind::LruHash, &steps);
        check_hash(MapKind::LruPerCpuHash, &steps);
    }

    #[test]
    fn arrays_are_as_the_model(steps in prop::collection::vec((0..10_u32, any::<u64>(), 0..4_usize), 0..100)) {
        let mut shared = bench(map(MapKind::Array, 4, 8, 8));
        let mut each = bench(map(MapKind::PerCpuArray, 4, 8, 8));
        let mut shared_model = BTreeMap::new();
        let mut each_model = BTreeMap::new();
        for (index, value, cpu) in steps {
            for bench in [&mut shared, &mut each] {
                let key = bench.put(0, &index.to_le_bytes());
                let from = bench.put_number(8, value);
                bench.kernel.cpu = cpu;
                let expected = if index < 8 { 0 } else { errno::E2BIG };
                prop_assert_eq!(bench.call(UPDATE, &[MAP, key, from, ANY]), expected);
            }
            if index < 8 {
                shared_model.insert(index, value);
                each_model.insert((index, cpu), value);
            }
        }
        for (index, cpu) in (0..10_u32).flat_map(|index| (0..4_usize).map(move |cpu| (index, cpu))) {
            let value = |model: Option<&u64>| model.copied().unwrap_or(0).to_le_bytes();
            let seen = shared.instance.state().element(0, &index.to_le_bytes(), cpu);
            let expected = value(shared_model.get(&index));
            prop_assert_eq!(seen, (index < 8).then_some(expected.as_slice()));
            let key = each.put(0, &index.to_le_bytes());
            let seen = match each.call(LOOKUP_ON_CPU, &[MAP, key, cpu as u64]) {
                0 => None,
                address => Some(each.number(address)),
            };
            prop_assert_eq!(seen, (index < 8).then_some(each_model.get(&(index, cpu)).copied().unwrap_or(0)));
        }
    }

    #[test]
    fn queues_and_stacks_are_as_the_model(steps in prop::collection::vec((0..4_u8, any::<u64>()), 0..200)) {
        for kind in [MapKind::Queue, MapKind::Stack] {
            let mut bench = bench(map(kind, 0, 8, 5));
            let mut model = VecDeque::new();
            for &(step, value) in &steps {
                let place = bench.put_number(0, value);
                if step < 2 {
                    let replace = step == 1;
                    let is_full = model.len() == 5;
                    if is_full && replace {
                        model.pop_front();
                    }
                    if !is_full || replace {
                        model.push_back(value);
                    }
                    let expected = if is_full && !replace { errno::E2BIG } else { 0 };
                    let flags = if replace { super::EXIST } else { ANY };
                    prop_assert_eq!(bench.call(PUSH, &[MAP, place, flags]), expected);
                } else {
                    let remove = step == 2;
                    let next = if kind == MapKind::Queue { model.front() } else { model.back() }.copied();
                    if remove {
                        if kind == MapKind::Queue { model.pop_front() } else { model.pop_back() };
                    }
                    let result = bench.call(if remove { POP } else { PEEK }, &[MAP, place]);
                    prop_assert_eq!(result, if next.is_some() { 0 } else { errno::ENOENT });
                    prop_assert_eq!(bench.number(place), next.unwrap_or(0));
                }
            }
        }
    }
}

#[test]
fn values_of_other_cpus_begin_as_zeros() {
    let mut bench = bench(map(MapKind::PerCpuHash, 4, 4, 2));
    let key = bench.put(0, &[1, 0, 0, 0]);
    let value = bench.put_number(8, 5);
    bench.kernel.cpu = 1;
    assert_eq!(bench.call(UPDATE, &[MAP, key, value, ANY]), 0);
    let state = bench.instance.state();
    let values: Vec<_> = (0..4).map(|cpu| state.element(0, &[1, 0, 0, 0], cpu).unwrap()[0]).collect();
    assert_eq!(values, [0, 5, 0, 0]);
    assert_eq!(bench.call(LOOKUP_ON_CPU, &[MAP, key, 4]), 0, "there is no CPU 4");
}

#[test]
fn addresses_stay_while_other_elements_come_and_go() {
    let mut bench = bench(map(MapKind::Hash, 8, 8, 1000));
    let key = bench.put_number(0, 0);
    let value = bench.put_number(8, 42);
    bench.call(UPDATE, &[MAP, key, value, ANY]);
    let first = bench.call(LOOKUP, &[MAP, key]);
    for number in 1..1000 {
        bench.put_number(0, number);
        assert_eq!(bench.call(UPDATE, &[MAP, key, value, ANY]), 0);
        if number % 3 == 0 {
            assert_eq!(bench.call(DELETE, &[MAP, key]), 0);
        }
    }
    bench.put_number(0, 0);
    assert_eq!(bench.call(LOOKUP, &[MAP, key]), first);
    assert_eq!(bench.number(first), 42);
}

#[test]
fn flags_and_keys_are_checked_as_in_the_kernel() {
    let mut bench = bench(map(MapKind::Array, 4, 8, 2));
    let key = bench.put(0, &[1, 0, 0, 0]);
    assert_eq!(bench.call(UPDATE, &[MAP, key, key, super::NOEXIST]), errno::EEXIST);
    assert_eq!(bench.call(UPDATE, &[MAP, key, key, 3]), errno::EINVAL);
    assert_eq!(bench.call(UPDATE, &[MAP, key, key, super::LOCK]), 0);
    assert_eq!(bench.call(DELETE, &[MAP, key]), errno::EINVAL);
    assert_eq!(
        bench.fault(LOOKUP, &[MAP, 0]),
        "`bpf_map_lookup_elem`, instruction 0: a null pointer was followed (4 bytes at offset 0)"
    );
    assert!(bench.fault(LOOKUP, &[MAP + 1, key]).contains("is not a map"));
    assert!(bench.fault(PUSH, &[MAP, key]).contains("not possible"));
    let end = Memory::BASE + bench.memory().len() as u64;
    assert!(bench.fault(UPDATE, &[MAP, key, end - 4, ANY]).contains("outside"));
}

#[test]
fn storage_is_made_on_demand_and_goes_with_its_object() {
    let mut bench = bench(map(MapKind::TaskStorage, 4, 16, 0));
    let task = 0x1_2345_6780;
    assert_eq!(bench.call(GET, &[MAP, task, 0, 0]), 0, "nothing yet");
    assert_eq!(bench.call(GET, &[MAP, 0, 0, 1]), 0, "no task");
    let initial = bench.put_number(0, 77);
    let value = bench.call(GET, &[MAP, task, initial, 1]);
    assert_eq!(bench.number(value), 77);
    assert_eq!(bench.call(GET, &[MAP, task, 0, 1]), value, "the same one");
    assert_eq!(bench.instance.state().element(0, &task.to_le_bytes(), 0).unwrap()[0], 77);
    bench.instance.state_mut().forget(task);
    assert_eq!(bench.call(GET, &[MAP, task, 0, 0]), 0);
    let value = bench.call(GET, &[MAP, task, 0, 1]);
    assert_eq!(bench.number(value), 0, "the old content is not visible again");
    assert_eq!(bench.call(FORGET, &[MAP, task]), 0);
    assert_eq!(bench.call(FORGET, &[MAP, task]), errno::ENOENT);
    assert_eq!(bench.call(FORGET, &[MAP, 0]), errno::EINVAL);
}

#[test]
fn the_kernel_reads_and_writes_elements() {
    let mut bench =
        Bench::new(vec![map(MapKind::Hash, 2, 3, 1), map(MapKind::PerCpuArray, 4, 8, 1)], &[LOOKUP]);
    let state = bench.instance.state_mut();
    assert_eq!((state.map("Hash"), state.map("PerCpuArray"), state.map("Stack")), (Some(0), Some(1), None));
    assert_eq!(state.set_element(0, &[1, 2], 0, &[3, 4, 5]), Ok(true));
    assert_eq!(state.set_element(0, &[2, 2], 0, &[3, 4, 5]), Ok(false), "the map is full");
    assert_eq!(state.element(0, &[1, 2], 0), Some([3, 4, 5].as_slice()));
    assert_eq!(state.element(0, &[9, 9], 0), None);
    assert!(state.set_element(0, &[1], 0, &[3, 4, 5]).is_err());
    assert_eq!(state.set_element(1, &[0; 4], 3, &[8; 8]), Ok(true));
    assert_eq!(state.element(1, &[0; 4], 3), Some([8; 8].as_slice()));
    assert_eq!(state.element(1, &[0; 4], 2), Some([0; 8].as_slice()));
    let key = bench.put(0, &[1, 2]);
    let value = bench.call(LOOKUP, &[MAP, key]);
    assert_eq!(bench.memory().slice(value, 3).unwrap(), [3, 4, 5]);
}
