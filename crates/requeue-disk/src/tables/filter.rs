//! A Bloom filter that reads one cache line per lookup.
//!
//! The hash of a key selects a line of 8 words, and one bit in each word. With 14 bits per key, the
//! false positive rate is about 0.2 %.

use xxhash_rust::xxh3::xxh3_64;

/// Bits per key. With 10, the false positive rate is 1 %, and reading a block in vain costs as much
/// as a hundred lookups in filters.
const BITS_PER_KEY: usize = 14;

/// Odd numbers that derive 8 independent bits from one hash.
const SALTS: [u32; 8] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];

pub(super) struct Filter {
    lines: Vec<Line>,
}

/// Aligned to cache lines, so that a lookup costs one cache miss and not two.
#[derive(Clone, Copy, PartialEq, Debug)]
#[repr(align(64))]
struct Line([u64; 8]);

pub(super) fn hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

impl Filter {
    /// A filter of keys with these hashes.
    pub(super) fn new(hashes: &[u64]) -> Filter {
        let lines = (hashes.len() * BITS_PER_KEY).div_ceil(512).max(1);
        let mut filter = Filter { lines: vec![Line([0; 8]); lines] };
        for &hash in hashes {
            let line = filter.line(hash);
            for (word, bit) in filter.lines[line].0.iter_mut().zip(bits(hash)) {
                *word |= bit;
            }
        }
        filter
    }

    /// Returns `false` only if no key has this hash.
    #[inline]
    pub(super) fn has(&self, hash: u64) -> bool {
        let line = &self.lines[self.line(hash)];
        line.0.iter().zip(bits(hash)).fold(0, |missing, (word, bit)| missing | (!word & bit)) == 0
    }

    #[inline]
    fn line(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.lines.len() as u128) >> 64) as usize
    }

    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        let words = self.lines.iter().flat_map(|line| line.0);
        words.for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    }

    /// Returns `None` if the bytes are not a filter.
    pub(super) fn decode(bytes: &[u8]) -> Option<Filter> {
        let (lines, rest) = bytes.as_chunks::<64>();
        let word = |bytes: &[u8; 64], i: usize| {
            u64::from_le_bytes(std::array::from_fn(|byte| bytes[i * 8 + byte]))
        };
        let lines: Vec<_> =
            lines.iter().map(|line| Line(std::array::from_fn(|i| word(line, i)))).collect();
        (rest.is_empty() && !lines.is_empty()).then_some(Filter { lines })
    }

    /// Its size in memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.lines.len() * 64
    }
}

/// One bit for each word of a line, selected by the lower half of the hash; the upper half selects
/// the line.
#[inline]
fn bits(hash: u64) -> [u64; 8] {
    SALTS.map(|salt| 1 << ((hash as u32).wrapping_mul(salt) >> 26))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_found_and_few_others() {
        let hashes: Vec<u64> = (0..20_000_u64).map(|i| hash(&i.to_le_bytes())).collect();
        let mut bytes = Vec::new();
        Filter::new(&hashes).encode(&mut bytes);
        let filter = Filter::decode(&bytes).unwrap();
        assert!(hashes.iter().all(|&hash| filter.has(hash)));
        let others = (20_000..120_000_u64).filter(|i| filter.has(hash(&i.to_le_bytes()))).count();
        assert!(others < 400, "{others} of 100,000 seem to be there");
    }

    #[test]
    fn half_a_line_is_no_filter() {
        assert!(Filter::decode(&[]).is_none());
        assert!(Filter::decode(&[0; 96]).is_none());
    }
}
