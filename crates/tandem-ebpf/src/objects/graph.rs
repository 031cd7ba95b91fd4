//! Lists and trees of objects: which nodes are in them, and the rules that both share.

use super::Objects;
use super::tree::{TreeNode, in_order};
use crate::fault::Fault;
use crate::image::NodeKind;
use std::collections::{BTreeMap, VecDeque};

/// A list or a tree that is not empty. All its nodes are at one offset in objects of one type.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    pub contents: Contents,
    /// The type of its objects, and the offset of their nodes.
    pub of: (u64, u64),
}

/// Addresses of nodes.
#[derive(Clone, Debug)]
pub(crate) enum Contents {
    List(VecDeque<u64>),
    /// The node at the top.
    Tree(u64),
}

/// A node in a list or tree.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// The address of the list or tree.
    pub root: u64,
    /// Its place in a tree.
    pub place: TreeNode,
}

impl Root {
    fn kind(&self) -> NodeKind {
        match self.contents {
            Contents::List(_) => NodeKind::List,
            Contents::Tree(_) => NodeKind::Tree,
        }
    }

    /// All nodes.
    pub fn nodes(&self, nodes: &BTreeMap<u64, Node>) -> Vec<u64> {
        match &self.contents {
            Contents::List(list) => list.iter().copied().collect(),
            Contents::Tree(top) => in_order(nodes, *top),
        }
    }
}

impl Objects {
    /// Checks that a list or tree may be at an address, and may get nodes of objects of that type, at an offset.
    pub fn check_root(
        &self,
        function: &str,
        root: u64,
        kind: NodeKind,
        of: Option<(u64, u64)>,
    ) -> Result<(), Fault> {
        let Some(known) = self.roots.get(&root) else { return Ok(()) };
        if known.kind() != kind {
            return Err(Fault(format!(
                "`{function}` got a {} instead of a {}",
                known.kind().what(),
                kind.what()
            )));
        }
        match of {
            Some(of) if of != known.of => {
                Err(Fault(format!("`{function}` got an object of another type than the {} has", kind.what())))
            }
            _ => Ok(()),
        }
    }

    /// Appends or prepends a node, which is in no list yet.
    pub fn push(&mut self, root: u64, node: u64, of: (u64, u64), at_front: bool) {
        let new = || Root { contents: Contents::List(VecDeque::new()), of };
        if let Contents::List(list) = &mut self.roots.entry(root).or_insert_with(new).contents {
            match at_front {
                true => list.push_front(node),
                false => list.push_back(node),
            }
            self.nodes.insert(node, Node { root, place: TreeNode::default() });
        }
    }

    /// The first or last node of a list; 0 if it is empty.
    pub fn end_of_list(&self, root: u64, front: bool) -> u64 {
        match self.roots.get(&root).map(|root| &root.contents) {
            Some(Contents::List(list)) => {
                if front { list.front() } else { list.back() }.copied().unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Removes the first or last node of a list, and returns it; 0 if it is empty.
    pub fn pop(&mut self, root: u64, front: bool) -> u64 {
        let Some(Root { contents: Contents::List(list), .. }) = self.roots.get_mut(&root) else { return 0 };
        let node = if front { list.pop_front() } else { list.pop_back() };
        if list.is_empty() {
            self.roots.remove(&root);
        }
        node.inspect(|node| _ = self.nodes.remove(node)).unwrap_or(0)
    }
}
