//! The shape of trees.

use super::Objects;
use super::tree::{LEFT, RIGHT};
use proptest::prelude::*;

const ROOT: u64 = 1;

/// Checks that both children of a red node are black, and that all paths down have as many black nodes; returns
/// how many, and the nodes in order.
fn check(objects: &Objects, node: u64, parent: u64) -> (usize, Vec<u64>) {
    let Some(found) = objects.nodes.get(&node) else { return (0, Vec::new()) };
    let place = found.place;
    assert_eq!((found.root, place.parent), (ROOT, parent));
    assert!(!place.is_red || parent != 0 && !objects.nodes[&parent].place.is_red, "red below red");
    let [(left, mut before), (right, after)] =
        [LEFT, RIGHT].map(|side| check(objects, place.children[side], node));
    assert_eq!(left, right, "black nodes below {node}");
    before.push(node);
    before.extend(after);
    (left + usize::from(!place.is_red), before)
}

fn add(objects: &mut Objects, node: u64) {
    let (mut parent, mut side, mut at) = (0, LEFT, objects.top(ROOT));
    while at != 0 {
        side = if node < at { LEFT } else { RIGHT };
        (parent, at) = (at, objects.child(at, side));
    }
    objects.insert(ROOT, node, (0, 0), (parent, side));
}

proptest! {
    #[test]
    fn trees_stay_balanced_and_in_order(numbers in prop::collection::vec(2..60u64, 0..300)) {
        let mut objects = Objects::default();
        let mut model = std::collections::BTreeSet::new();
        for number in numbers {
            match model.remove(&number) {
                true => objects.remove(ROOT, number),
                false => {
                    model.insert(number);
                    add(&mut objects, number);
                }
            }
            let (_, all) = check(&objects, objects.top(ROOT), 0);
            prop_assert_eq!(&all, &model.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(objects.first(ROOT), model.first().copied().unwrap_or(0));
            prop_assert_eq!(objects.roots.get(&ROOT).map_or(vec![], |root| root.nodes(&objects.nodes)), all);
            prop_assert_eq!(objects.nodes.len(), model.len());
        }
    }
}

/// By hand, as the textbook has it: 4 is between, so that two rotations balance it; then 2 has two children.
#[test]
fn shapes_are_those_of_the_textbook() {
    let mut objects = Objects::default();
    let shape = |objects: &Objects, node: u64| (objects.child(node, LEFT), objects.child(node, RIGHT));
    for node in [2, 6, 4, 8, 10] {
        add(&mut objects, node);
    }
    assert_eq!((objects.top(ROOT), shape(&objects, 4), shape(&objects, 8)), (4, (2, 8), (6, 10)));
    // The next one takes the place of one with two children.
    objects.remove(ROOT, 4);
    assert_eq!((objects.top(ROOT), shape(&objects, 6), shape(&objects, 8)), (6, (2, 8), (0, 10)));
    objects.remove(ROOT, 2);
    assert_eq!((objects.top(ROOT), shape(&objects, 8)), (8, (6, 10)));
}
