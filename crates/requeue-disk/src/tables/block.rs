//! A block: sorted entries, each written as its difference from the one before.
//!
//! ```text
//!   shared varint | suffix length varint | value length + 1, or 0 for a tombstone, varint
//!   | suffix | value
//! ```
//!
//! `shared` is the number of bytes that the key has in common with the one before; 0 at the start.

use crate::bytes::{put_number, varint};
use std::ops::Range;

/// Appends an entry whose key follows `last` in its block, and makes `last` its key.
///
/// Fails if `key` is not greater than `last`: a table out of order would lose jobs. Only damage
/// that no checksum detects can cause that.
pub(super) fn append(
    block: &mut Vec<u8>,
    first: bool,
    last: &mut Vec<u8>,
    key: &[u8],
    value: Option<&[u8]>,
) -> Result<(), Malformed> {
    let common = last.iter().zip(key).take_while(|(a, b)| a == b).count();
    if key.get(common) <= last.get(common) && !last.is_empty() {
        return Err(Malformed);
    }
    let shared = if first { 0 } else { common };
    put_number(block, shared as u64);
    put_number(block, (key.len() - shared) as u64);
    put_number(block, value.map_or(0, |value| value.len() as u64 + 1));
    block.extend_from_slice(&key[shared..]);
    block.extend_from_slice(value.unwrap_or(&[]));
    last.truncate(common);
    last.extend_from_slice(&key[common..]);
    Ok(())
}

/// The range of an entry's value in its block; `None` for a tombstone.
pub(super) type Value = Option<Range<usize>>;

/// Bytes that are not a valid entry.
#[derive(Debug)]
pub(super) struct Malformed;

/// Reads the entry at `at`, moves `at` behind it and makes `key` its key. Fails if the key is not
/// greater than the one before.
#[inline]
pub(super) fn step(block: &[u8], at: &mut usize, key: &mut Vec<u8>) -> Result<Value, Malformed> {
    let mut number = || usize::try_from(varint(block, at)?).ok();
    let (Some(shared), Some(suffix), Some(tag)) = (number(), number(), number()) else {
        return Err(Malformed);
    };
    let start = at.checked_add(suffix).ok_or(Malformed)?;
    let end = start.checked_add(tag.saturating_sub(1)).ok_or(Malformed)?;
    if shared > key.len() || end > block.len() {
        return Err(Malformed);
    }
    // As many bytes are shared as are equal. So the first of the others decides, unless the key is
    // the first of its block.
    if block[*at..start].first() <= key.get(shared) && !key.is_empty() {
        return Err(Malformed);
    }
    key.truncate(shared);
    key.extend_from_slice(&block[*at..start]);
    *at = end;
    Ok((tag > 0).then_some(start..end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_in_order() {
        let entries: [(&[u8], Option<&[u8]>); 4] =
            [(b"", Some(b"x")), (b"ab", None), (b"abc", Some(b"")), (b"b", Some(&[7; 300]))];
        let (mut block, mut last) = (Vec::new(), Vec::new());
        for (i, (key, value)) in entries.iter().enumerate() {
            append(&mut block, i == 0, &mut last, key, *value).unwrap();
        }
        let (mut at, mut key) = (0, Vec::new());
        for (expected, value) in entries {
            let found = step(&block, &mut at, &mut key).unwrap();
            assert_eq!(key, expected);
            assert_eq!(found.map(|range| &block[range]), value);
        }
        assert_eq!(at, block.len());
    }

    #[test]
    fn a_key_that_repeats_is_refused() {
        let (mut block, mut last) = (Vec::new(), Vec::new());
        append(&mut block, true, &mut last, b"b", None).unwrap();
        assert!(append(&mut block, false, &mut last, b"b", None).is_err());
        assert!(append(&mut block, false, &mut last, b"a", None).is_err());
        assert!(append(&mut block, false, &mut last, b"", None).is_err());
        append(&mut block, false, &mut last, b"ba", None).unwrap();
    }

    #[test]
    fn keys_out_of_order_are_an_error() {
        // Shared, rest, tombstone, and the rest of the key.
        for second in [&[0, 1, 0, b'b'][..], &[0, 1, 0, b'a'], &[1, 0, 0], &[0, 0, 0]] {
            let block = [&[0, 1, 0, b'b'], second].concat();
            let (mut at, mut key) = (0, Vec::new());
            step(&block, &mut at, &mut key).unwrap();
            assert!(step(&block, &mut at, &mut key).is_err(), "{second:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_entry_are_an_error() {
        for block in [&[][..], &[0], &[0, 1], &[1, 0, 0], &[0, 2, 0, 7], &[0, 0, 3, 7]] {
            assert!(step(block, &mut 0, &mut Vec::new()).is_err(), "{block:?}");
        }
        let huge = [0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0xff, 0x7f];
        assert!(step(&huge, &mut 0, &mut Vec::new()).is_err());
    }
}
