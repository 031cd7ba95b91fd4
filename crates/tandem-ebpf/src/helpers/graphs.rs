//! Lists and trees of objects.

use super::Table;
use super::objects::{give, take};
use crate::fault::Fault;
use crate::image::NodeKind;
use crate::maps::errno;
use crate::objects::tree::{LEFT, RIGHT};
use crate::runtime::Run;

pub(super) const TABLE: Table = &[
    ("bpf_list_push_front_impl", |run, arguments, _| push(run, "bpf_list_push_front", arguments, true)),
    ("bpf_list_push_front", |run, arguments, _| push(run, "bpf_list_push_front", arguments, true)),
    ("bpf_list_push_back_impl", |run, arguments, _| push(run, "bpf_list_push_back", arguments, false)),
    ("bpf_list_push_back", |run, arguments, _| push(run, "bpf_list_push_back", arguments, false)),
    ("bpf_list_pop_front", |run, arguments, _| pop(run, "bpf_list_pop_front", arguments, true)),
    ("bpf_list_pop_back", |run, arguments, _| pop(run, "bpf_list_pop_back", arguments, false)),
    ("bpf_list_front", |run, arguments, _| peek(run, "bpf_list_front", arguments, true)),
    ("bpf_list_back", |run, arguments, _| peek(run, "bpf_list_back", arguments, false)),
    ("bpf_rbtree_add_impl", add),
    ("bpf_rbtree_add", add),
    ("bpf_rbtree_remove", remove),
    ("bpf_rbtree_first", first),
    ("bpf_rbtree_root", top),
    ("bpf_rbtree_left", |run, arguments, _| child(run, "bpf_rbtree_left", arguments, LEFT)),
    ("bpf_rbtree_right", |run, arguments, _| child(run, "bpf_rbtree_right", arguments, RIGHT)),
];

/// Checks that a list or tree is at an address, and that the program holds the lock beside it.
fn check(run: &Run, function: &str, root: u64, kind: NodeKind) -> Result<(), Fault> {
    run.state.memory.slice(root, ROOT_BYTES)?;
    if !run.held.lock().is_some_and(|lock| are_together(run, lock, root)) {
        return Err(Fault(format!("`{function}` is called without the lock of the {}", kind.what())));
    }
    run.state.objects.check_root(function, root, kind, None)
}

/// Bytes of a `struct bpf_list_head` or `struct bpf_rb_root`.
const ROOT_BYTES: usize = 16;

/// Whether a lock and what it protects are in one object, or one section of data; elsewhere they are in values
/// of maps, which have one lock each.
fn are_together(run: &Run, lock: u64, root: u64) -> bool {
    let place = |address: u64| {
        let mut sections = run.image.sections.iter();
        let inside = sections.position(|section| {
            address.checked_sub(section.address).is_some_and(|offset| offset < section.bytes.len() as u64)
        });
        (inside, run.state.objects.around(address))
    };
    place(lock) == place(root)
}

/// Takes the object of a node from the program, to put it into a list or tree: its type with the node's offset;
/// `None` if the node is in one already, and the program's reference has been dropped.
fn take_node(
    run: &mut Run,
    function: &str,
    (root, node): (u64, u64),
    kind: NodeKind,
) -> Result<Option<(u64, u64)>, Fault> {
    check(run, function, root, kind)?;
    let (object, offset) = run.state.objects.of_node(function, node, kind, &run.image.objects)?;
    let of = (run.state.objects.expect(function, object)?.of, offset);
    run.state.objects.check_root(function, root, kind, Some(of))?;
    take(run, function, object)?;
    if run.state.objects.nodes.contains_key(&node) {
        run.state.objects.release(&mut run.state.memory, object)?;
        return Ok(None);
    }
    Ok(Some(of))
}

/// Gives the program the object of a node that has been removed from a list or tree; 0 is none.
fn give_node(run: &mut Run, node: u64) -> u64 {
    if let Some(object) = run.state.objects.around(node) {
        give(run, object);
    }
    node
}

fn push(run: &mut Run, function: &str, [root, node, ..]: [u64; 5], at_front: bool) -> Result<u64, Fault> {
    let Some(of) = take_node(run, function, (root, node), NodeKind::List)? else { return Ok(errno::EINVAL) };
    run.state.objects.push(root, node, of, at_front);
    Ok(0)
}

fn pop(run: &mut Run, function: &str, [root, ..]: [u64; 5], front: bool) -> Result<u64, Fault> {
    check(run, function, root, NodeKind::List)?;
    let node = run.state.objects.pop(root, front);
    Ok(give_node(run, node))
}

fn peek(run: &mut Run, function: &str, [root, ..]: [u64; 5], front: bool) -> Result<u64, Fault> {
    check(run, function, root, NodeKind::List)?;
    Ok(run.state.objects.end_of_list(root, front))
}

/// Adds a node behind all that are not greater, as the program's function compares them.
fn add(run: &mut Run, [root, node, less, ..]: [u64; 5], frame: u64) -> Result<u64, Fault> {
    const NAME: &str = "bpf_rbtree_add";
    let Some(of) = take_node(run, NAME, (root, node), NodeKind::Tree)? else { return Ok(errno::EINVAL) };
    let (mut parent, mut side, mut at) = (0, LEFT, run.state.objects.top(root));
    while at != 0 {
        let is_less = run.call_address(less, [node, at, 0, 0, 0], frame)? != 0;
        if run.state.objects.nodes.get(&at).is_none_or(|at| at.root != root) {
            return Err(changed(NAME));
        }
        side = if is_less { LEFT } else { RIGHT };
        (parent, at) = (at, run.state.objects.child(at, side));
    }
    // The function that compares cannot change the tree, unless it is called as another function too.
    let objects = &run.state.objects;
    let is_free = match parent {
        0 => objects.top(root) == 0,
        _ => objects.child(parent, side) == 0 && objects.around(node).is_some(),
    };
    if !is_free || objects.nodes.contains_key(&node) {
        return Err(changed(NAME));
    }
    run.state.objects.insert(root, node, of, (parent, side));
    Ok(0)
}

#[cold]
fn changed(function: &str) -> Fault {
    Fault(format!("the tree changed while `{function}` compared its nodes"))
}

/// Removes a node, which the program owns then; 0 if it is not in the tree.
fn remove(run: &mut Run, [root, node, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    const NAME: &str = "bpf_rbtree_remove";
    if !is_in(run, NAME, root, node)? {
        return Ok(0);
    }
    run.state.objects.remove(root, node);
    Ok(give_node(run, node))
}

fn first(run: &mut Run, [root, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    check(run, "bpf_rbtree_first", root, NodeKind::Tree)?;
    Ok(run.state.objects.first(root))
}

fn top(run: &mut Run, [root, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    check(run, "bpf_rbtree_root", root, NodeKind::Tree)?;
    Ok(run.state.objects.top(root))
}

fn child(run: &mut Run, function: &str, [root, node, ..]: [u64; 5], side: usize) -> Result<u64, Fault> {
    match is_in(run, function, root, node)? {
        true => Ok(run.state.objects.child(node, side)),
        false => Ok(0),
    }
}

/// Whether a node of an object is in a tree.
fn is_in(run: &mut Run, function: &str, root: u64, node: u64) -> Result<bool, Fault> {
    check(run, function, root, NodeKind::Tree)?;
    run.state.objects.of_node(function, node, NodeKind::Tree, &run.image.objects)?;
    Ok(run.state.objects.nodes.get(&node).is_some_and(|node| node.root == root))
}
