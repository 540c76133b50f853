//! Values for the lists of a kind, of which most kinds use one.

use requeue_jobs::Priority;
use requeue_jobs::rules::List;

/// A value for each list: either of leased jobs, or of all other jobs.
///
/// The list of jobs without a priority has a place of its own, because most kinds use no other. The
/// others have a value since they were first used.
#[derive(Default)]
pub(crate) struct PerList<T> {
    plain: T,
    others: Vec<(List, T)>,
}

/// Whether this is the list of pending or leased jobs without a priority.
#[inline]
fn is_plain(list: List) -> bool {
    matches!(list, List::Pending(priority) | List::Leased(priority) if priority.get() == 0)
}

impl<T: Default> PerList<T> {
    /// The value of a list.
    #[inline]
    pub(crate) fn of(&mut self, list: List) -> &mut T {
        if is_plain(list) { &mut self.plain } else { self.other(list) }
    }

    #[inline(never)]
    fn other(&mut self, list: List) -> &mut T {
        let at = self.others.iter().position(|(of, _)| *of == list).unwrap_or_else(|| {
            // There may be 10,000 kinds.
            self.others.reserve_exact(1);
            self.others.push((list, T::default()));
            self.others.len() - 1
        });
        &mut self.others[at].1
    }
}

impl<T> PerList<T> {
    /// The value of a list, if the list was used.
    #[inline]
    pub(crate) fn get(&self, list: List) -> Option<&T> {
        if is_plain(list) {
            return Some(&self.plain);
        }
        self.others.iter().find(|(of, _)| *of == list).map(|(_, value)| value)
    }

    /// The number of lists that were used, and of the one without a priority.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        1 + self.others.len()
    }

    /// The values of all lists that were used, if they are not lists of leased jobs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (List, &T)> {
        let plain = (List::Pending(Priority::default()), &self.plain);
        std::iter::once(plain).chain(self.others.iter().map(|(list, value)| (*list, value)))
    }

    /// The values of all lists that were used, if they are not lists of leased jobs.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (List, &mut T)> {
        let plain = (List::Pending(Priority::default()), &mut self.plain);
        std::iter::once(plain).chain(self.others.iter_mut().map(|(list, value)| (*list, value)))
    }
}
