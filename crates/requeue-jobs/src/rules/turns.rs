//! Which of several kinds a claim asks first.

use crate::limits::MAX_KINDS;
use crate::names::Kind;
use foldhash::HashMap;

/// Takes turns among the kinds of claims: the first is the one for which that is longest ago.
///
/// A mere count of claims would meet the same kind again and again, where claims of several sets
/// take turns.
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
    /// The last turn in which a kind was first.
    last: HashMap<Kind, u64>,
    /// How many there were.
    turn: u64,
}

impl Turns {
    /// Which of these is first: its number, or 0 if there is none. It has had its turn then.
    pub fn first<'a>(&mut self, kinds: impl IntoIterator<Item = (usize, &'a Kind)>) -> usize {
        let last = |(_, kind): &(usize, &Kind)| self.last.get(*kind).copied().unwrap_or(0);
        let Some((number, kind)) = kinds.into_iter().min_by_key(last) else { return 0 };
        self.took(kind);
        number
    }

    /// Notes that this kind was first just now.
    pub fn took(&mut self, kind: &Kind) {
        self.turn += 1;
        if let Some(last) = self.last.get_mut(kind) {
            *last = self.turn;
            return;
        }
        // Who claims ever new names must not fill the memory: turns begin anew then.
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
