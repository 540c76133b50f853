//! Which ready key comes next.

mod fair;

pub use fair::Fair;

use crate::keys::NIL;
use std::collections::VecDeque;

/// The order of ready keys: client-go's `Queue` storage (`Touch`, `Push`, `Pop`).
///
/// It holds slots, not keys: the queue hands in the key for the order to look at
/// and keeps it. Called under the queue's lock, so it must not use the queue.
/// A key stands in the order at most once.
///
/// ```
/// use requeue::{Options, Order, Queue, Slot};
///
/// /// Last in, first out.
/// #[derive(Default)]
/// struct Stack(Vec<Slot>);
///
/// impl<K> Order<K> for Stack {
///     fn push(&mut self, _key: &K, slot: Slot) {
///         self.0.push(slot);
///     }
///     fn pop(&mut self) -> Option<Slot> {
///         self.0.pop()
///     }
///     fn remove(&mut self, _key: &K, slot: Slot) {
///         self.0.retain(|&other| other != slot);
///     }
/// }
///
/// let queue = Queue::with_order(Stack::default(), Options::new());
/// queue.add("a");
/// queue.add("b");
/// assert_eq!(*queue.try_get()?.key(), "b");
/// # Ok::<(), requeue::TryGetError>(())
/// ```
pub trait Order<K>: Send + 'static {
    /// `key` became ready.
    fn push(&mut self, key: &K, slot: Slot);

    /// The next to hand out. `None`: nothing is to be handed out now.
    fn pop(&mut self) -> Option<Slot>;

    /// `key` is ready and was cancelled: forget its slot, which will be used for others.
    fn remove(&mut self, key: &K, slot: Slot);

    /// `key` is ready and was added again.
    fn touch(&mut self, key: &K, slot: Slot) {
        let _ = (key, slot);
    }
}

/// Where a queue keeps a ready key: what an [`Order`] puts in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot(pub(crate) u32);

/// The order a queue uses: first in, first out, without a call through a table
/// of functions; or one that was given.
pub(crate) enum Ready<K> {
    Fifo(VecDeque<u32>),
    Given(Box<dyn Order<K>>),
}

impl<K: 'static> Ready<K> {
    #[inline]
    pub(crate) fn push(&mut self, key: &K, slot: u32) {
        debug_assert!(slot != NIL);
        match self {
            Ready::Fifo(slots) => slots.push_back(slot),
            Ready::Given(order) => order.push(key, Slot(slot)),
        }
    }
}
