//! Batches with entries of several kinds: each kind is a call of its own.

use requeue_jobs::{Kind, StoreError};
use std::collections::HashMap;

/// The results of the entries of one kind, with their positions in the batch.
pub(crate) type OfKind<T, E> = (Vec<usize>, Result<Vec<Result<T, E>>, StoreError>);

/// The positions of the entries of a batch, by kind, in the order in which the kinds first occur.
pub(crate) fn by_kind<'a>(kinds: impl Iterator<Item = &'a Kind>) -> Vec<(&'a Kind, Vec<usize>)> {
    let mut of_kinds: Vec<(&Kind, Vec<usize>)> = Vec::new();
    let mut known: HashMap<&Kind, usize> = HashMap::new();
    for (n, kind) in kinds.enumerate() {
        let at = *known.entry(kind).or_insert_with(|| {
            of_kinds.push((kind, Vec::new()));
            of_kinds.len() - 1
        });
        of_kinds[at].1.push(n);
    }
    of_kinds
}

/// Puts the results of the entries together, given those of each kind. If a kind has failed, so has each of its entries; or the
/// whole call, if it was about this kind alone and nothing is known of any entry.
pub(crate) fn together<T, E: From<StoreError>>(
    of_kinds: Vec<OfKind<T, E>>,
) -> Result<Vec<Result<T, E>>, StoreError> {
    if let [(_, Err(error))] = &of_kinds[..]
        && !matches!(error, StoreError::Invalid(_))
    {
        return Err(error.clone());
    }
    let mut all: Vec<(usize, Result<T, E>)> = Vec::new();
    for (entries, results) in of_kinds {
        match results {
            Ok(results) => all.extend(entries.into_iter().zip(results)),
            Err(error) => all.extend(entries.into_iter().map(|n| (n, Err(error.clone().into())))),
        }
    }
    all.sort_unstable_by_key(|(n, _)| *n);
    Ok(all.into_iter().map(|(_, result)| result).collect())
}
