//! What a task descends from, and the children that it waits for.

use crate::engine::random::child_key;
use tandem_machine::ids::TaskId;

/// A task of a guest's past or present: numbers of tasks are used again, births are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Birth {
    pub task: TaskId,
    /// How many tasks of the kernel were born before.
    pub number: u32,
}

/// A task among its relatives.
#[derive(Clone, Debug)]
pub(crate) struct Lineage {
    /// Its own birth's number.
    pub birth: u32,
    parent: Option<Birth>,
    /// The process of the start that it descends from.
    family: u32,
    /// Where the channels of its family begin, less the number of channels that the VM shares.
    family_channels: u32,
    /// Key of its random numbers, and how many children have got theirs from it.
    random_key: u64,
    children: u32,
    /// Children that have ended and that it has not waited for.
    ended_children: u32,
    waits_for_child: bool,
    /// The signal of a child's end wakes it.
    is_signalled: bool,
    /// Its memory is its parent's until one of them writes: it has not begun another program since its fork.
    shares_memory: bool,
}

impl Lineage {
    /// That of a task without relatives.
    pub fn new(random_key: u64) -> Self {
        Self {
            birth: 0,
            parent: None,
            family: 0,
            family_channels: 0,
            random_key,
            children: 0,
            ended_children: 0,
            waits_for_child: false,
            is_signalled: false,
            shares_memory: false,
        }
    }

    /// Makes the task the first of a family, whose channels begin there.
    pub fn found(&mut self, family: u32, family_channels: u32) {
        (self.family, self.family_channels) = (family, family_channels);
    }

    /// That of a child of the task, whose own birth this is.
    pub fn fork(&mut self, birth: Birth) -> Self {
        self.children = self.children.wrapping_add(1);
        Self {
            parent: Some(birth),
            family: self.family,
            family_channels: self.family_channels,
            shares_memory: true,
            ..Self::new(child_key(self.random_key, self.children))
        }
    }

    pub fn random_key(&self) -> u64 {
        self.random_key
    }

    pub fn parent(&self) -> Option<Birth> {
        self.parent
    }

    pub fn is_same_family(&self, other: &Self) -> bool {
        self.family == other.family
    }

    /// Where the channels of its family begin, less the number of channels that the VM shares.
    pub fn family_channels(&self) -> u32 {
        self.family_channels
    }

    pub fn shares_memory(&self) -> bool {
        self.shares_memory
    }

    /// Its memory is its own from now on.
    pub fn own_memory(&mut self) {
        self.shares_memory = false;
    }

    /// Takes note of a child's end. If the task waits for that, it waits no more; returns whether a signal
    /// wakes it then.
    pub fn end_child(&mut self) -> Option<bool> {
        if std::mem::take(&mut self.waits_for_child) {
            return Some(self.is_signalled);
        }
        self.ended_children += 1;
        None
    }

    /// Waits for a child to end, which a signal reports or not; whether one has already.
    pub fn wait_child(&mut self, by_signal: bool) -> bool {
        if self.ended_children == 0 {
            (self.waits_for_child, self.is_signalled) = (true, by_signal);
            return false;
        }
        self.ended_children -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_waits_for_children_in_whatever_order_they_end() {
        let mut parent = Lineage::new(1);
        let birth = Birth { task: TaskId(3), number: 0 };
        let [first, second] = [parent.fork(birth), parent.fork(birth)];
        assert_ne!(first.random_key(), second.random_key());
        assert!(first.is_same_family(&parent) && first.shares_memory() && !parent.shares_memory());
        assert_eq!(parent.end_child(), None, "it does not wait yet");
        assert!(parent.wait_child(false), "that one has ended already");
        assert!(!parent.wait_child(true));
        assert_eq!(parent.end_child(), Some(true));
        assert_eq!(parent.end_child(), None, "it waits for one only");
    }
}
