//! Values for the lists of a kind, of which most kinds use one or two.

use requeue_jobs::rules::List;

/// A value for each list that was used. In the order of first use, so that the list of jobs without a
/// priority is usually found first.
pub(crate) struct PerList<T>(Vec<(List, T)>);

impl<T> Default for PerList<T> {
    fn default() -> Self {
        PerList(Vec::new())
    }
}

impl<T: Default> PerList<T> {
    /// The value of a list.
    #[inline]
    pub(crate) fn of(&mut self, list: List) -> &mut T {
        let at = self.0.iter().position(|(of, _)| *of == list).unwrap_or_else(|| {
            self.0.push((list, T::default()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }
}

impl<T> PerList<T> {
    /// The value of a list, if the list was used.
    #[inline]
    pub(crate) fn get(&self, list: List) -> Option<&T> {
        self.0.iter().find(|(of, _)| *of == list).map(|(_, value)| value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (List, &T)> {
        self.0.iter().map(|(list, value)| (*list, value))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (List, &mut T)> {
        self.0.iter_mut().map(|(list, value)| (*list, value))
    }
}
