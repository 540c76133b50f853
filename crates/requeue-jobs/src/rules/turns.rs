//! Which of several kinds a claim reads first.

use crate::limits::MAX_KINDS;
use crate::names::Kind;
use foldhash::HashMap;

/// Chooses the kind that a claim reads first: the one that was first the longest time ago.
///
/// A simple counter of claims would not be fair: if claims of different sets of kinds alternate, it
/// could choose the same kind again and again.
///
/// ```
/// use requeue_jobs::Kind;
/// use requeue_jobs::rules::Turns;
///
/// let kinds = [Kind::new("mail")?, Kind::new("sms")?];
/// let mut turns = Turns::default();
/// assert_eq!([0; 3].map(|_| turns.first(kinds.iter().enumerate())), [0, 1, 0]);
/// # Ok::<(), requeue_jobs::Invalid>(())
/// ```
#[derive(Debug, Default)]
pub struct Turns {
    /// The last turn in which each kind was first.
    last: HashMap<Kind, u64>,
    /// The number of turns so far.
    turn: u64,
}

impl Turns {
    /// Returns the number of the kind that is first, or 0 if there is none, and records its turn.
    pub fn first<'a>(&mut self, kinds: impl IntoIterator<Item = (usize, &'a Kind)>) -> usize {
        let last = |(_, kind): &(usize, &Kind)| self.last.get(*kind).copied().unwrap_or(0);
        let Some((number, kind)) = kinds.into_iter().min_by_key(last) else { return 0 };
        self.took(kind);
        number
    }

    /// Records that this kind was first.
    pub fn took(&mut self, kind: &Kind) {
        self.turn += 1;
        if let Some(last) = self.last.get_mut(kind) {
            *last = self.turn;
            return;
        }
        // Claims of ever new names must not fill the memory, so all turns are forgotten.
        if self.last.len() >= MAX_KINDS {
            self.last.clear();
        }
        self.last.insert(kind.clone(), self.turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds<const N: usize>(names: [&str; N]) -> [Kind; N] {
        names.map(|name| Kind::new(name).unwrap())
    }

    fn first(turns: &mut Turns, kinds: &[Kind]) -> String {
        let first = turns.first(kinds.iter().enumerate());
        kinds[first].to_string()
    }

    #[test]
    fn each_is_first_in_turn_whatever_sets_are_asked_for() {
        let mut turns = Turns::default();
        let (all, two) = (kinds(["a", "b", "c"]), kinds(["c", "b"]));
        let firsts = [&all[..], &two, &all, &two, &all].map(|kinds| first(&mut turns, kinds));
        assert_eq!(firsts, ["a", "c", "b", "c", "a"]);
    }

    #[test]
    fn of_none_the_first_is_the_first() {
        assert_eq!(Turns::default().first([]), 0);
    }

    #[test]
    fn ever_new_kinds_are_not_remembered_for_ever() {
        let mut turns = Turns::default();
        for number in 0..MAX_KINDS * 2 + 1 {
            turns.took(&Kind::new(format!("kind-{number}")).unwrap());
            assert!(turns.last.len() <= MAX_KINDS);
        }
        assert_eq!(first(&mut turns, &kinds(["kind-20000", "a"])), "a");
    }
}
