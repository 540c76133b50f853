//! The order in which ready keys are handed out.

mod fair;

pub use fair::Fair;

use crate::keys::NIL;
use std::collections::VecDeque;

/// The order of the ready keys, like client-go's `Queue` storage (`Touch`, `Push`, `Pop`).
///
/// An order stores slots, not keys: the queue keeps the key and passes a reference to it. The
/// queue calls the order under its lock, so the order must not use the queue. A key is in the
/// order at most once.
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
    /// Adds the slot of `key`, which became ready.
    fn push(&mut self, key: &K, slot: Slot);

    /// Removes and returns the next slot to hand out. `None` means that nothing is handed out
    /// now.
    fn pop(&mut self) -> Option<Slot>;

    /// Removes the slot of `key`, which was ready and was cancelled. The slot will be reused
    /// for other keys.
    fn remove(&mut self, key: &K, slot: Slot);

    /// Called if `key` is ready and is added again. Does nothing by default.
    fn touch(&mut self, key: &K, slot: Slot) {
        let _ = (key, slot);
    }
}

/// Identifies a ready key within its queue. An [`Order`] sorts slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot(pub(crate) u32);

/// The order that a queue uses: FIFO without dynamic dispatch, or a custom one.
pub(crate) enum Ready<K> {
    Fifo(VecDeque<u32>),
    Given(Box<dyn Order<K>>),
}

impl<K: 'static> Ready<K> {
    pub(crate) fn fifo() -> Self {
        Ready::Fifo(VecDeque::new())
    }

    #[inline]
    pub(crate) fn push(&mut self, key: &K, slot: u32) {
        debug_assert!(slot != NIL);
        match self {
            Ready::Fifo(slots) => slots.push_back(slot),
            Ready::Given(order) => order.push(key, Slot(slot)),
        }
    }
}
