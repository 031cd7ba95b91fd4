//! Storage that machine code finds by itself: the interpreter and a model of the standard library say the same.

use super::image;
use crate::image::{FunctionId, Image, MapKind};
use crate::instance::{Engine, Instance};
use crate::maps::{Recent, errno};
use crate::memory::Memory;
use crate::op::Op;
use crate::testing::{self, TestKernel, address, imm, mov};
use proptest::prelude::*;
use std::collections::BTreeMap;

const MAPS: usize = 2;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// With this number in its flags.
    Get(u64),
    Delete,
    /// The kernel's object ends.
    End,
    /// The program writes into the value, if there is one.
    Write(u64),
}

/// Objects of which three each have the same place.
fn objects() -> Vec<u64> {
    let place = |object: u64| object.wrapping_mul(Recent::FACTOR) >> (u64::BITS - Recent::BITS);
    let all = (1..10_000u64).map(|number| Memory::BASE + 0x10_0000 + 64 * number);
    let mut of_place: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for object in all {
        of_place.entry(place(object)).or_default().push(object);
    }
    let alike = of_place.into_values().take(3).flat_map(|objects| objects.into_iter().take(3));
    // None, and what is no address.
    alike.chain([0, 1, u64::MAX]).collect()
}

/// For each map, a function for each value of flags, and one that deletes.
fn programs(engine: Engine) -> Instance {
    let get = |map: usize, flags: i64| {
        vec![
            address(1, Image::MAPS + map as u64),
            mov(3, imm(0)),
            mov(4, imm(flags)),
            Op::CallKernel { import: 0 },
            Op::Exit,
        ]
    };
    let delete =
        |map: usize| vec![address(1, Image::MAPS + map as u64), Op::CallKernel { import: 1 }, Op::Exit];
    let of_map = |map| [get(map, 0), get(map, 1), get(map, 2), delete(map)];
    let functions: Vec<Vec<Op>> = (0..MAPS).flat_map(of_map).collect();
    let named: Vec<(&str, &[Op])> = functions.iter().map(|ops| ("f", &**ops)).collect();
    let mut image = image(&named);
    image.imports = testing::runtime(&["bpf_task_storage_get", "bpf_task_storage_delete"]);
    image.maps = vec![testing::map(MapKind::TaskStorage, 4, 8, 0); MAPS];
    testing::instance(image, engine)
}

fn call(instance: &mut Instance, map: usize, function: u64, object: u64) -> u64 {
    let function = FunctionId((4 * map as u64 + function) as u32);
    instance.call(&mut TestKernel::default(), function, [0, object, 0, 0, 0]).unwrap()
}

fn steps() -> impl Strategy<Value = Vec<(usize, usize, Step)>> {
    let step = prop_oneof![
        4 => (0..3u64).prop_map(Step::Get),
        1 => Just(Step::Delete),
        1 => Just(Step::End),
        2 => any::<u64>().prop_map(Step::Write),
    ];
    prop::collection::vec((0..MAPS, any::<usize>(), step), 0..200)
}

proptest! {
    #[test]
    fn storage_is_what_a_model_says(steps in steps()) {
        let objects = objects();
        let mut both = [Engine::Compiled, Engine::Interpreted].map(programs);
        // Of each map and object: its value.
        let mut model: BTreeMap<(usize, u64), u64> = BTreeMap::new();
        for (map, at, step) in steps {
            let object = objects[at % objects.len()];
            match step {
                Step::Get(flags) => {
                    let found = both.each_mut().map(|it| call(it, map, flags, object));
                    prop_assert_eq!(found[0], found[1], "{:?} of {:#x}", step, object);
                    if flags == 1 && object != 0 {
                        model.entry((map, object)).or_insert(0);
                    }
                    let expected = model.get(&(map, object)).filter(|_| flags < 2);
                    let value = (found[0] != 0).then(|| both[0].state().memory.load(found[0], 8).unwrap());
                    prop_assert_eq!(value.as_ref(), expected, "{:?} of {:#x} in map {}", step, object, map);
                }
                Step::Delete => {
                    let existed = model.remove(&(map, object)).is_some();
                    let expected = match existed {
                        _ if object == 0 => errno::EINVAL,
                        true => 0,
                        false => errno::ENOENT,
                    };
                    prop_assert_eq!(both.each_mut().map(|it| call(it, map, 3, object)), [expected; 2]);
                }
                Step::End => {
                    both.iter_mut().for_each(|it| it.state_mut().forget(object));
                    model.retain(|&(_, known), _| known != object);
                }
                Step::Write(number) => {
                    for it in &mut both {
                        let value = call(it, map, 0, object);
                        if value != 0 {
                            it.state_mut().memory.store(value, 8, number).unwrap();
                        }
                    }
                    model.entry((map, object)).and_modify(|value| *value = number);
                }
            }
        }
        let memory = both.each_ref().map(|it| {
            let memory = &it.state().memory;
            memory.slice(Memory::BASE, memory.len()).unwrap().to_vec()
        });
        prop_assert!(memory[0] == memory[1], "memory differs");
    }
}
