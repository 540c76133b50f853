//! What tells one put, and one lease, from another.

use crate::error::Invalid;
use crate::names::{JobId, Kind};
use std::fmt;
use std::str::FromStr;

/// Which put of its kind: every put has one, and they rise. Whoever does a job once per
/// (kind, id, generation) does it once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Generation(pub u64);

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which lease of its kind. Fences rise strictly, over restarts and under any clock: pass it on
/// to what you write to, and refuse there what is older.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Fence(pub u64);

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Proof of a lease. Opaque: what it says may change.
///
/// ```
/// use requeue_jobs::{Fence, JobId, Kind, Receipt};
///
/// let receipt = Receipt::new(Kind::new("mail")?, JobId::new("to: a@b.c")?, Fence(7), 99);
/// let text = receipt.to_string();
/// assert_eq!(text.parse::<Receipt>()?, receipt);
/// assert!("nonsense".parse::<Receipt>().is_err());
/// # Ok::<(), requeue_jobs::Invalid>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Receipt {
    kind: Kind,
    id: JobId,
    fence: Fence,
    /// The caller's: another's lease has another, whatever happened to the store's counters.
    nonce: u64,
}

impl Receipt {
    /// For stores.
    pub fn new(kind: Kind, id: JobId, fence: Fence, nonce: u64) -> Self {
        Receipt { kind, id, fence, nonce }
    }

    /// Of which kind the job is.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Which job it is.
    pub fn id(&self) -> &JobId {
        &self.id
    }

    pub(crate) fn into_id(self) -> JobId {
        self.id
    }

    /// Which lease it is.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// What the caller made up when it claimed.
    pub fn nonce(&self) -> u64 {
        self.nonce
    }
}

/// `fence.nonce.kind/id`, numbers in hexadecimal. A kind has no `/`, so what follows is the id.
impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Receipt { kind, id, fence: Fence(fence), nonce } = self;
        write!(f, "{fence:x}.{nonce:x}.{kind}/{id}")
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receipt({self})")
    }
}

impl FromStr for Receipt {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let no_receipt = || Invalid::NoReceipt { text: text.to_owned() };
        let number = |digits: &str| u64::from_str_radix(digits, 16).map_err(|_| no_receipt());
        let (fence, rest) = text.split_once('.').ok_or_else(no_receipt)?;
        let (nonce, rest) = rest.split_once('.').ok_or_else(no_receipt)?;
        let (kind, id) = rest.split_once('/').ok_or_else(no_receipt)?;
        let (kind, id) = (Kind::new(kind)?, JobId::new(id)?);
        Ok(Receipt { kind, id, fence: Fence(number(fence)?), nonce: number(nonce)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_read_as_it_was_written_whatever_the_id() {
        for id in ["a", "a/b", "a.b", "0.0.k/x", "ü\n", " "] {
            let id = JobId::new(id).expect("a valid id");
            let kind = Kind::new("order.close").expect("a valid kind");
            let receipt = Receipt::new(kind, id, Fence(u64::MAX), 0);
            assert_eq!(receipt.to_string().parse(), Ok(receipt));
        }
    }

    #[test]
    fn what_is_none_is_not_read_as_one() {
        for text in ["", "1.2", "1.2.k", "1.2.k/", "x.2.k/i", "1.x.k/i", "1.2.k k/i", "1.2./i"] {
            assert!(text.parse::<Receipt>().is_err(), "{text:?}");
        }
    }
}
