//! The kinds in a manifest: their names, counters and settings, and how many jobs the tables contain.
//!
//! Since format 3 they begin with a number that is no number of a kind. A manifest copies the kinds of
//! the one before if nothing was flushed, so the format of the manifest does not tell theirs.

use crate::bytes::{Bytes, Malformed, put_bytes, put_number};
use crate::codec;
use crate::job_table::ListCounts;
use requeue_jobs::rules::{Counters, List, RateUse};
use requeue_jobs::{Kind, Settings};

/// More than any number of a kind.
const FORMAT_3: u64 = (1 << 32) + 3;

/// A kind in a manifest.
#[derive(PartialEq)]
pub(crate) struct StoredKind {
    pub(crate) number: u32,
    pub(crate) name: Kind,
    pub(crate) counters: Counters,
    pub(crate) counts: ListCounts,
    pub(crate) settings: Settings,
    pub(crate) rate_use: RateUse,
}

/// The lists whose counts formats 1 and 2 have, too.
fn first_lists() -> [List; 3] {
    [List::Pending(Default::default()), List::Leased(Default::default()), List::Dead]
}

/// Writes the beginning. Kinds follow.
pub(crate) fn begin(out: &mut Vec<u8>) {
    put_number(out, FORMAT_3);
}

/// Writes a kind.
pub(crate) fn put(out: &mut Vec<u8>, kind: &StoredKind) {
    let StoredKind { number, name, counters, counts, settings, rate_use } = kind;
    put_number(out, u64::from(*number));
    put_bytes(out, name.as_str().as_bytes());
    for number in [counters.generation, counters.fence, counters.seq] {
        put_number(out, number);
    }
    first_lists().iter().for_each(|list| put_number(out, counts[list.index()]));
    let is_other = |list: &List| !first_lists().contains(list) && counts[list.index()] > 0;
    let others: Vec<List> = List::all().filter(is_other).collect();
    put_number(out, others.len() as u64);
    for list in others {
        put_number(out, list.index() as u64);
        put_number(out, counts[list.index()]);
    }
    codec::put_settings(out, settings);
    codec::put_more_settings(out, settings);
    codec::put_rate_use(out, rate_use);
}

/// Reads all kinds, and passes them to `each`.
pub(crate) fn read<E: From<Malformed>>(
    blob: &[u8],
    mut each: impl FnMut(StoredKind) -> Result<(), E>,
) -> Result<(), E> {
    let mut bytes = Bytes::new(blob);
    let mut is_first = true;
    let mut has_more = false;
    while !bytes.is_empty() {
        let mut number = bytes.number()?;
        if is_first && number == FORMAT_3 {
            has_more = true;
            if bytes.is_empty() {
                break;
            }
            number = bytes.number()?;
        }
        is_first = false;
        each(read_kind(number, &mut bytes, has_more)?)?;
    }
    Ok(())
}

fn read_kind(number: u64, bytes: &mut Bytes<'_>, has_more: bool) -> Result<StoredKind, Malformed> {
    let number = u32::try_from(number).map_err(|_| Malformed("a number is too large"))?;
    let name = Kind::with_reserved(bytes.text()?);
    let name = name.map_err(|_| Malformed("the name of a kind is invalid"))?;
    let [generation, fence, seq] = [bytes.counter()?, bytes.counter()?, bytes.counter()?];
    let mut counts = [0; List::END];
    for list in first_lists() {
        counts[list.index()] = bytes.counter()?;
    }
    if has_more {
        for _ in 0..bytes.number()? {
            let list = usize::try_from(bytes.number()?).ok().and_then(List::by_index);
            let list = list.ok_or(Malformed("a list does not exist"))?;
            counts[list.index()] = bytes.counter()?;
        }
    }
    let mut settings = codec::settings(bytes)?;
    let mut rate_use = RateUse::default();
    if has_more {
        codec::more_settings(bytes, &mut settings)?;
        rate_use = codec::rate_use(bytes)?;
    }
    let counters = Counters { generation, fence, seq };
    Ok(StoredKind { number, name, counters, counts, settings, rate_use })
}
