//! What a priority queue stores with each key.

use crate::clock::Moment;
use crate::keys::Keys;
use crate::wheel::{Node, Nodes};

/// The key is to run. It is in the ready list, unless it is held.
pub(super) const READY: u8 = 1;
/// The key becomes ready later and is in the wheel.
pub(super) const WAITS: u8 = 2;
/// The key was handed out and is not done.
pub(super) const HELD: u8 = 4;

/// The state of a key. Invariant: not both `READY` and `WAITS`; some flag or some failures,
/// otherwise the key has no entry.
pub(crate) struct Item {
    /// Its time is when the key falls due, or when it became ready.
    pub(super) node: Node,
    /// Its position among the keys of one priority.
    pub(super) number: u64,
    pub(super) priority: i32,
    /// The priority with which the key was handed out.
    pub(super) held_priority: i32,
    /// The number of the current hold, if the key is held.
    pub(super) hold: u32,
    pub(super) failures: u32,
    pub(super) flags: u8,
}

impl Item {
    pub(super) fn new() -> Self {
        let node = Node::new(0);
        Item { node, number: 0, priority: 0, held_priority: 0, hold: 0, failures: 0, flags: 0 }
    }

    pub(super) fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn time(&self) -> Moment {
        Moment::from_nanos(self.node.due())
    }
}

impl<K> Nodes for Keys<K, Item> {
    #[inline]
    fn node(&self, index: u32) -> Option<&Node> {
        self.get(index).map(|item| &item.node)
    }

    #[inline]
    fn node_mut(&mut self, index: u32) -> &mut Node {
        &mut self[index].node
    }
}
