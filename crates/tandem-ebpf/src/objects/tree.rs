//! Red-black trees of nodes, balanced as the kernel's are (lib/rbtree.c has the textbook's cases): programs see
//! their shape, and the number of comparisons of an insertion depends on it.

use super::Objects;
use super::graph::{Contents, Node, Root};
use std::collections::BTreeMap;

/// The place of a node in a tree: addresses of nodes, 0 for none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TreeNode {
    pub parent: u64,
    /// To the left and to the right.
    pub children: [u64; 2],
    pub is_red: bool,
}

pub(crate) const LEFT: usize = 0;
pub(crate) const RIGHT: usize = 1;

/// All nodes below and at one, in order.
pub(super) fn in_order(nodes: &BTreeMap<u64, Node>, top: u64) -> Vec<u64> {
    let child = |at: u64, side: usize| nodes.get(&at).map_or(0, |node| node.place.children[side]);
    let (mut found, mut path, mut at) = (Vec::new(), Vec::new(), top);
    while at != 0 || !path.is_empty() {
        while at != 0 {
            path.push(at);
            at = child(at, LEFT);
        }
        if let Some(next) = path.pop() {
            found.push(next);
            at = child(next, RIGHT);
        }
    }
    found
}

impl Objects {
    /// The node at the top of a tree; 0 if it is empty.
    pub fn top(&self, root: u64) -> u64 {
        match self.roots.get(&root).map(|root| &root.contents) {
            Some(Contents::Tree(top)) => *top,
            _ => 0,
        }
    }

    /// The first node of a tree; 0 if it is empty.
    pub fn first(&self, root: u64) -> u64 {
        let mut at = self.top(root);
        while at != 0 && self.child(at, LEFT) != 0 {
            at = self.child(at, LEFT);
        }
        at
    }

    /// A child of a node; 0 if it has none there.
    pub fn child(&self, node: u64, side: usize) -> u64 {
        self.nodes.get(&node).map_or(0, |node| node.place.children[side])
    }

    /// Puts a node that is in no tree below another one, or at the top (0). There must be no node yet.
    pub fn insert(&mut self, root: u64, node: u64, of: (u64, u64), (parent, side): (u64, usize)) {
        let place = TreeNode { parent, is_red: true, ..TreeNode::default() };
        self.nodes.insert(node, Node { root, place });
        match parent {
            0 => _ = self.roots.insert(root, Root { contents: Contents::Tree(node), of }),
            _ => self.place(parent).children[side] = node,
        }
        self.balance_insertion(root, node);
    }

    fn balance_insertion(&mut self, root: u64, mut node: u64) {
        loop {
            let parent = self.parent(node);
            if parent == 0 {
                self.place(node).is_red = false;
                return;
            }
            if !self.is_red(parent) {
                return;
            }
            // A red node is not at the top.
            let grandparent = self.parent(parent);
            let side = self.side(grandparent, parent);
            let uncle = self.child(grandparent, 1 - side);
            if self.is_red(uncle) {
                self.place(parent).is_red = false;
                self.place(uncle).is_red = false;
                self.place(grandparent).is_red = true;
                node = grandparent;
                continue;
            }
            let mut upper = parent;
            if self.side(parent, node) != side {
                self.rotate(root, parent, side);
                upper = node;
            }
            self.place(upper).is_red = false;
            self.place(grandparent).is_red = true;
            self.rotate(root, grandparent, 1 - side);
            return;
        }
    }

    /// Removes a node that is in the tree.
    pub fn remove(&mut self, root: u64, node: u64) {
        let own = *self.place(node);
        // The place that loses a black node: its parent, and the side; `child` is there now.
        let (parent, side, child, was_red);
        if own.children[LEFT] != 0 && own.children[RIGHT] != 0 {
            let mut next = own.children[RIGHT];
            while self.child(next, LEFT) != 0 {
                next = self.child(next, LEFT);
            }
            let place = *self.place(next);
            (child, was_red) = (place.children[RIGHT], place.is_red);
            if place.parent == node {
                (parent, side) = (next, RIGHT);
            } else {
                (parent, side) = (place.parent, LEFT);
                self.place(parent).children[LEFT] = child;
                self.set_parent(child, parent);
                self.place(next).children[RIGHT] = own.children[RIGHT];
                self.set_parent(own.children[RIGHT], next);
            }
            self.place(next).children[LEFT] = own.children[LEFT];
            self.set_parent(own.children[LEFT], next);
            self.place(next).is_red = own.is_red;
            self.replace(root, own.parent, node, next);
        } else {
            child = own.children[LEFT] | own.children[RIGHT];
            (parent, was_red) = (own.parent, own.is_red);
            side = if parent == 0 { LEFT } else { self.side(parent, node) };
            self.replace(root, parent, node, child);
        }
        self.nodes.remove(&node);
        if self.top(root) == 0 {
            self.roots.remove(&root);
        } else if self.is_red(child) {
            self.place(child).is_red = false;
        } else if !was_red {
            self.balance_removal(root, parent, side);
        }
    }

    /// Paths through one side of a node have a black node less than those through the other.
    fn balance_removal(&mut self, root: u64, mut parent: u64, mut side: usize) {
        while parent != 0 {
            let other = 1 - side;
            let mut sibling = self.child(parent, other);
            if self.is_red(sibling) {
                self.place(sibling).is_red = false;
                self.place(parent).is_red = true;
                self.rotate(root, parent, side);
                sibling = self.child(parent, other);
            }
            let (near, far) = (self.child(sibling, side), self.child(sibling, other));
            if !self.is_red(far) {
                if !self.is_red(near) {
                    self.place(sibling).is_red = true;
                    if self.is_red(parent) {
                        self.place(parent).is_red = false;
                        return;
                    }
                    let above = self.parent(parent);
                    side = if above == 0 { LEFT } else { self.side(above, parent) };
                    parent = above;
                    continue;
                }
                self.place(near).is_red = false;
                self.place(sibling).is_red = true;
                self.rotate(root, sibling, other);
                sibling = near;
            }
            let far = self.child(sibling, other);
            self.place(sibling).is_red = self.is_red(parent);
            self.place(parent).is_red = false;
            if far != 0 {
                self.place(far).is_red = false;
            }
            self.rotate(root, parent, side);
            return;
        }
    }

    /// Moves a node down to a side; its child on the other side takes its place.
    fn rotate(&mut self, root: u64, node: u64, side: usize) {
        let (upper, above) = (self.child(node, 1 - side), self.parent(node));
        let between = self.child(upper, side);
        self.place(node).children[1 - side] = between;
        self.set_parent(between, node);
        self.place(upper).children[side] = node;
        self.replace(root, above, node, upper);
        self.place(node).parent = upper;
    }

    /// Puts a node, or none, below `parent` (or at the top) in the place of another one.
    fn replace(&mut self, root: u64, parent: u64, node: u64, by: u64) {
        if parent == 0 {
            if let Some(Root { contents: Contents::Tree(top), .. }) = self.roots.get_mut(&root) {
                *top = by;
            }
        } else {
            let side = self.side(parent, node);
            self.place(parent).children[side] = by;
        }
        self.set_parent(by, parent);
    }

    fn set_parent(&mut self, node: u64, parent: u64) {
        if node != 0 {
            self.place(node).parent = parent;
        }
    }

    fn parent(&self, node: u64) -> u64 {
        self.nodes.get(&node).map_or(0, |node| node.place.parent)
    }

    fn is_red(&self, node: u64) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.place.is_red)
    }

    /// The side of a node on which a child is.
    fn side(&self, node: u64, child: u64) -> usize {
        if self.child(node, LEFT) == child { LEFT } else { RIGHT }
    }

    /// The place of a node of a tree.
    fn place(&mut self, node: u64) -> &mut TreeNode {
        &mut self.nodes.get_mut(&node).expect("neighbours of a node of a tree are in the tree").place
    }
}
