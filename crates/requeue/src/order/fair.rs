//! A fair order: tenants are served in turn, however many keys one of them adds.
//!
//! ```text
//!   turns: [ b ] [ c ] [ a ]        b is next, and may have `left` more keys in this turn
//!            |     |     |
//!           b1    c1    a1          first in, first out within a tenant
//!            |           |
//!           b2          a2
//! ```
//!
//! This is weighted deficit round robin in which every key costs the same. In its turn, a
//! tenant has as many keys handed out as its weight, then goes to the end. A tenant without
//! keys leaves, and the rest of its turn is lost. So the `p`-th key of a tenant of weight `w`
//! is handed out within `⌈p / w⌉ + 1` rounds (its tenant may be in the middle of a turn), and a
//! round is at most the sum of the weights of all tenants that have keys.
//!
//! Every operation touches a few neighbours and one hash entry: its cost does not depend on the
//! number of tenants or keys.

use super::{Order, Slot};
use std::collections::HashMap;
use std::hash::Hash;

const NONE: u32 = u32::MAX;

/// An [`Order`] that serves tenants in turn, so that a tenant that adds 50,000 keys does not
/// delay the keys of the others. Within a tenant, keys are first in, first out.
///
/// ```
/// use requeue::{Fair, Options, Queue};
///
/// let tenant = |key: &&str| key.split('/').next().unwrap_or_default().to_owned();
/// let queue = Queue::with_order(Fair::by(tenant), Options::new());
/// for key in ["noisy/1", "noisy/2", "noisy/3", "quiet/1"] {
///     queue.add(key);
/// }
/// let order = queue.get_many(4).wait();
/// let order: Vec<&str> = order.iter().map(|held| *held.key()).collect();
/// assert_eq!(order, ["noisy/1", "quiet/1", "noisy/2", "noisy/3"]);
/// ```
pub struct Fair<T, F, W = fn(&T) -> u32> {
    tenant_of: F,
    weight_of: W,
    /// The index in `tenants` of each tenant that has keys. Invariant: exactly the tenants that
    /// are linked into `turns`.
    tenant_index: HashMap<T, u32>,
    tenants: Vec<Tenant<T>>,
    free_tenants: Vec<u32>,
    /// The tenant whose turn it is, and the last one.
    turns: Ends,
    /// By slot: the neighbours of a ready key, and its tenant.
    keys: Vec<Link>,
}

struct Tenant<T> {
    name: Option<T>,
    /// Its ready keys, by slot.
    keys: Ends,
    /// The number of keys that it may still have handed out in this turn.
    left: u32,
    before: u32,
    behind: u32,
}

/// The first and the last of a list.
#[derive(Clone, Copy)]
struct Ends {
    first: u32,
    last: u32,
}

const EMPTY: Ends = Ends { first: NONE, last: NONE };

#[derive(Clone, Copy)]
struct Link {
    before: u32,
    behind: u32,
    tenant: u32,
}

const UNLINKED: Link = Link { before: NONE, behind: NONE, tenant: NONE };

impl<T, F> Fair<T, F> {
    /// Creates an order with one turn per tenant. `tenant_of` returns the tenant of a key. It
    /// is called under the queue's lock and must always return the same tenant for the same
    /// key.
    pub fn by<K>(tenant_of: F) -> Self
    where
        F: Fn(&K) -> T,
    {
        Fair {
            tenant_of,
            weight_of: |_| 1,
            tenant_index: HashMap::new(),
            tenants: Vec::new(),
            free_tenants: Vec::new(),
            turns: EMPTY,
            keys: Vec::new(),
        }
    }

    /// Sets the number of keys that a tenant has handed out per turn. `weight_of` is called
    /// when a turn begins; a weight of 0 counts as 1. Default: every tenant has weight 1.
    ///
    /// ```
    /// use requeue::{Fair, Options, Queue};
    ///
    /// let fair = Fair::by(|key: &(char, u32)| key.0).weighted(|&tenant| if tenant == 'a' { 2 } else { 1 });
    /// let queue = Queue::with_order(fair, Options::new());
    /// for n in 0..4 {
    ///     queue.add(('a', n));
    ///     queue.add(('b', n));
    /// }
    /// let order = queue.get_many(6).wait();
    /// let order: String = order.iter().map(|held| held.key().0).collect();
    /// assert_eq!(order, "aabaab");
    /// ```
    pub fn weighted<W: Fn(&T) -> u32>(self, weight_of: W) -> Fair<T, F, W> {
        let Fair { tenant_of, tenant_index, tenants, free_tenants, turns, keys, .. } = self;
        Fair { tenant_of, weight_of, tenant_index, tenants, free_tenants, turns, keys }
    }
}

impl<T: Clone + Eq + Hash, F, W: Fn(&T) -> u32> Fair<T, F, W> {
    /// Returns the index of the tenant `name`, and adds it to the turns if it is new.
    fn tenant(&mut self, name: T) -> u32 {
        if let Some(&tenant) = self.tenant_index.get(&name) {
            return tenant;
        }
        let left = (self.weight_of)(&name).max(1);
        let new =
            Tenant { name: Some(name.clone()), keys: EMPTY, left, before: NONE, behind: NONE };
        let tenant = match self.free_tenants.pop() {
            Some(free) => {
                self.tenants[free as usize] = new;
                free
            }
            None => {
                self.tenants.push(new);
                self.tenants.len() as u32 - 1
            }
        };
        self.tenant_index.insert(name, tenant);
        self.join(tenant);
        tenant
    }

    /// Appends a tenant to the turns.
    fn join(&mut self, tenant: u32) {
        let before = std::mem::replace(&mut self.turns.last, tenant);
        let joined = &mut self.tenants[tenant as usize];
        (joined.before, joined.behind) = (before, NONE);
        match self.tenants.get_mut(before as usize) {
            Some(before) => before.behind = tenant,
            None => self.turns.first = tenant,
        }
    }

    fn leave(&mut self, tenant: u32) {
        let Tenant { before, behind, .. } = self.tenants[tenant as usize];
        match self.tenants.get_mut(before as usize) {
            Some(before) => before.behind = behind,
            None => self.turns.first = behind,
        }
        match self.tenants.get_mut(behind as usize) {
            Some(behind) => behind.before = before,
            None => self.turns.last = before,
        }
    }

    /// Moves a tenant to the end of the turns. Its next turn begins when it reaches the front.
    fn end_turn(&mut self, tenant: u32) {
        let ending = &mut self.tenants[tenant as usize];
        ending.left = ending.name.as_ref().map_or(1, |name| (self.weight_of)(name).max(1));
        self.leave(tenant);
        self.join(tenant);
    }

    /// Removes a ready key from its tenant's list, and a tenant without keys from the turns.
    fn unlink(&mut self, slot: u32) {
        let Some(link) = self.keys.get_mut(slot as usize) else { return };
        let Link { before, behind, tenant } = std::mem::replace(link, UNLINKED);
        if tenant == NONE {
            return;
        }
        let keys = &mut self.tenants[tenant as usize].keys;
        match self.keys.get_mut(before as usize) {
            Some(before) => before.behind = behind,
            None => keys.first = behind,
        }
        match self.keys.get_mut(behind as usize) {
            Some(behind) => behind.before = before,
            None => keys.last = before,
        }
        if keys.first == NONE {
            self.leave(tenant);
            self.free_tenants.push(tenant);
            if let Some(name) = self.tenants[tenant as usize].name.take() {
                self.tenant_index.remove(&name);
            }
        }
    }
}

impl<K, T, F, W> Order<K> for Fair<T, F, W>
where
    T: Clone + Eq + Hash + Send + 'static,
    F: Fn(&K) -> T + Send + 'static,
    W: Fn(&T) -> u32 + Send + 'static,
{
    fn push(&mut self, key: &K, slot: Slot) {
        let name = (self.tenant_of)(key);
        let tenant = self.tenant(name);
        let index = slot.0 as usize;
        if index >= self.keys.len() {
            self.keys.resize((index + 1).next_power_of_two(), UNLINKED);
        }
        let keys = &mut self.tenants[tenant as usize].keys;
        let before = std::mem::replace(&mut keys.last, slot.0);
        self.keys[index] = Link { before, behind: NONE, tenant };
        match self.keys.get_mut(before as usize) {
            Some(before) => before.behind = slot.0,
            None => keys.first = slot.0,
        }
    }

    fn pop(&mut self) -> Option<Slot> {
        let turn = self.turns.first;
        let tenant = self.tenants.get_mut(turn as usize)?;
        let slot = tenant.keys.first;
        if tenant.left == 1 {
            self.end_turn(turn);
        } else {
            tenant.left -= 1;
        }
        self.unlink(slot);
        Some(Slot(slot))
    }

    fn remove(&mut self, _key: &K, slot: Slot) {
        self.unlink(slot.0);
    }
}

#[cfg(all(test, not(requeue_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// (tenant, number)
    type Key = (u8, u16);

    fn weight(tenant: u8) -> u32 {
        u32::from(tenant % 4)
    }

    /// A simple model: turns as a list of lists.
    #[derive(Default)]
    struct FairModel {
        turns: Vec<(u8, u32, Vec<Key>)>,
    }

    impl FairModel {
        fn push(&mut self, key: Key) {
            match self.turns.iter_mut().find(|(tenant, ..)| *tenant == key.0) {
                Some((_, _, keys)) => keys.push(key),
                None => self.turns.push((key.0, weight(key.0).max(1), vec![key])),
            }
        }

        fn pop(&mut self) -> Option<Key> {
            let (tenant, left, keys) = self.turns.first_mut()?;
            let key = keys.remove(0);
            *left -= 1;
            if keys.is_empty() {
                self.turns.remove(0);
            } else if *left == 0 {
                *left = weight(*tenant).max(1);
                self.turns.rotate_left(1);
            }
            Some(key)
        }

        fn remove(&mut self, key: Key) {
            for (_, _, keys) in &mut self.turns {
                keys.retain(|&other| other != key);
            }
            self.turns.retain(|(_, _, keys)| !keys.is_empty());
        }

        /// The number of ready keys of `tenant`.
        fn standing(&self, tenant: u8) -> usize {
            self.turns.iter().find(|turn| turn.0 == tenant).map_or(0, |(_, _, keys)| keys.len())
        }
    }

    #[derive(Debug, Clone)]
    enum Op {
        Push(Key),
        Pop,
        Remove(Key),
    }

    fn op() -> impl Strategy<Value = Op> {
        let key = (0..6u8, 0..12u16);
        prop_oneof![
            5 => key.clone().prop_map(Op::Push),
            3 => Just(Op::Pop),
            1 => key.prop_map(Op::Remove),
        ]
    }

    proptest! {
        #[test]
        fn tenants_take_turns_as_in_a_list_of_lists(ops in prop::collection::vec(op(), 1..300)) {
            let mut fair = Fair::by(|key: &Key| key.0).weighted(|&tenant| weight(tenant));
            let mut model = FairModel::default();
            let slot = |(tenant, number): Key| Slot(u32::from(tenant) * 100 + u32::from(number));
            let mut ready: Vec<Key> = Vec::new();
            for op in ops {
                match op {
                    Op::Push(key) if !ready.contains(&key) => {
                        ready.push(key);
                        fair.push(&key, slot(key));
                        model.push(key);
                    }
                    Op::Remove(key) if ready.contains(&key) => {
                        ready.retain(|&other| other != key);
                        Order::remove(&mut fair, &key, slot(key));
                        model.remove(key);
                    }
                    Op::Pop => {
                        let popped = model.pop();
                        prop_assert_eq!(Order::<Key>::pop(&mut fair), popped.map(slot));
                        ready.retain(|&other| Some(other) != popped);
                    }
                    Op::Push(_) | Op::Remove(_) => {}
                }
                prop_assert_eq!(fair.tenant_index.len(), model.turns.len(), "a tenant without keys is removed");
            }
        }

        /// However many keys others add meanwhile, a key is handed out within its bound.
        #[test]
        fn no_key_waits_longer_than_the_bound(
            backlog in prop::collection::vec(0..6u8, 1..200),
            later in prop::collection::vec(0..6u8, 0..400),
        ) {
            let round: usize = (0..6).map(|tenant| weight(tenant).max(1) as usize).sum();
            let mut fair = Fair::by(|key: &Key| key.0).weighted(|&tenant| weight(tenant));
            let mut model = FairModel::default();
            // Per slot: the number of keys that may have been handed out before it.
            let mut bounds: Vec<usize> = Vec::new();
            let mut popped = 0;
            let mut backlog = backlog.into_iter().chain(later);
            let mut arriving = 200;
            loop {
                for tenant in backlog.by_ref().take(arriving) {
                    let key = (tenant, bounds.len() as u16);
                    Order::push(&mut fair, &key, Slot(bounds.len() as u32));
                    model.push(key);
                    let rounds = model.standing(tenant).div_ceil(weight(tenant).max(1) as usize) + 1;
                    bounds.push(popped + rounds * round);
                }
                arriving = 2;
                let Some(Slot(slot)) = Order::<Key>::pop(&mut fair) else { break };
                model.pop();
                popped += 1;
                let bound = bounds[slot as usize];
                prop_assert!(popped <= bound, "slot {slot} was {popped}th, not {bound}th");
            }
            prop_assert_eq!(popped, bounds.len());
        }
    }

    #[test]
    fn a_weight_that_panics_changes_nothing() {
        let fail = std::rc::Rc::new(std::cell::Cell::new(false));
        let failing = std::rc::Rc::clone(&fail);
        let weight = move |_: &u32| {
            assert!(!failing.get(), "weight");
            1
        };
        let mut fair = Fair::by(|key: &u32| *key).weighted(weight);
        let tenant = fair.tenant(7);
        fair.tenants[tenant as usize].keys = Ends { first: 0, last: 0 };
        fair.keys.push(Link { before: NONE, behind: NONE, tenant });
        fail.set(true);
        // Does what `pop` does, without the bounds of an order that is sent to other threads.
        let turn = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            fair.end_turn(tenant);
        }));
        assert!(turn.is_err());
        assert_eq!((fair.tenants[tenant as usize].left, fair.turns.first), (1, tenant));
    }

    #[test]
    fn a_hundred_thousand_tenants_come_and_go_without_a_trace() {
        let mut fair = Fair::by(|key: &u32| *key);
        for round in 0..3 {
            for key in 0..100_000 {
                Order::push(&mut fair, &key, Slot(key));
            }
            for key in 0..100_000 {
                assert_eq!(Order::<u32>::pop(&mut fair), Some(Slot(key)), "round {round}");
            }
            assert_eq!(Order::<u32>::pop(&mut fair), None);
        }
        assert!(fair.tenant_index.is_empty());
        assert_eq!(fair.tenants.len(), 100_000, "tenant_index are used again");
    }
}
