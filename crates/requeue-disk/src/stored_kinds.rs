//! The kinds in a manifest: their names, counters and settings, and how many jobs the tables contain.

use crate::bytes::{Bytes, Malformed, put_bytes, put_number};
use crate::codec;
use crate::job_table::ListCounts;
use crate::log_entry::kind_name;
use requeue_jobs::rules::{Counters, List, RateUse};
use requeue_jobs::{Kind, Settings};

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

/// Writes a kind.
pub(crate) fn put(out: &mut Vec<u8>, kind: &StoredKind) {
    let StoredKind { number, name, counters, counts, settings, rate_use } = kind;
    put_number(out, u64::from(*number));
    put_bytes(out, name.as_str().as_bytes());
    for number in [counters.generation, counters.fence, counters.seq] {
        put_number(out, number);
    }
    let used: Vec<List> = List::all().filter(|list| counts[list.index()] > 0).collect();
    put_number(out, used.len() as u64);
    for list in used {
        put_number(out, list.index() as u64);
        put_number(out, counts[list.index()]);
    }
    codec::put_settings(out, settings);
    codec::put_rate_use(out, rate_use);
}

/// Reads all kinds, and passes them to `each`.
pub(crate) fn read<E: From<Malformed>>(
    blob: &[u8],
    mut each: impl FnMut(StoredKind) -> Result<(), E>,
) -> Result<(), E> {
    let mut bytes = Bytes::new(blob);
    while !bytes.is_empty() {
        each(read_kind(&mut bytes)?)?;
    }
    Ok(())
}

fn read_kind(bytes: &mut Bytes<'_>) -> Result<StoredKind, Malformed> {
    let number = bytes.number32()?;
    let name = kind_name(bytes.text()?)?;
    let [generation, fence, seq] = [bytes.counter()?, bytes.counter()?, bytes.counter()?];
    let mut counts = [0; List::END];
    for _ in 0..bytes.number()? {
        let list = usize::try_from(bytes.number()?).ok().and_then(List::by_index);
        let list = list.ok_or(Malformed("a list does not exist"))?;
        counts[list.index()] = bytes.counter()?;
    }
    let (settings, rate_use) = (codec::settings(bytes)?, codec::rate_use(bytes)?);
    let counters = Counters { generation, fence, seq };
    Ok(StoredKind { number, name, counters, counts, settings, rate_use })
}
