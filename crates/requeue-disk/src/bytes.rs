//! Encodes numbers as varints, and texts with their length before them.

/// No counter gets this far: counting to it takes centuries. Larger numbers are damage.
const MAX_COUNTED: u64 = 1 << 62;

/// Bytes that do not decode, with a description for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Writes a varint: seven bits per byte, the lowest first; the last byte is below 128.
pub(crate) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Writes the difference from `from` to `to`, which may be negative. It is short if they are close.
pub(crate) fn put_step(out: &mut Vec<u8>, from: u64, to: u64) {
    let step = to.wrapping_sub(from) as i64;
    put_number(out, ((step << 1) ^ (step >> 63)) as u64);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads the varint at `at`, and moves `at` behind it.
#[inline]
pub(crate) fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let first = *bytes.get(*at)?;
    *at += 1;
    if first < 0x80 {
        return Some(u64::from(first));
    }
    let mut number = u64::from(first & 0x7f);
    for shift in (7..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// A reader of encoded bytes, from the front.
pub(crate) struct Bytes<'a> {
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(rest: &'a [u8]) -> Self {
        Bytes { rest }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        let (&byte, rest) = self.rest.split_first().ok_or(Malformed("the data ends too early"))?;
        self.rest = rest;
        Ok(byte)
    }

    pub(crate) fn number(&mut self) -> Result<u64, Malformed> {
        let mut at = 0;
        let number = varint(self.rest, &mut at);
        let number = number.ok_or(Malformed("a number is too long or cut short"))?;
        self.rest = &self.rest[at..];
        Ok(number)
    }

    pub(crate) fn number32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.number()?).map_err(|_| Malformed("a number is too large"))
    }

    /// A generation, fence, seq or count: one that can be counted on from.
    pub(crate) fn counter(&mut self) -> Result<u64, Malformed> {
        let number = self.number()?;
        if number > MAX_COUNTED {
            Err(Malformed("a number was never assigned"))
        } else {
            Ok(number)
        }
    }

    pub(crate) fn step(&mut self, from: u64) -> Result<u64, Malformed> {
        let step = self.number()?;
        Ok(from.wrapping_add((step >> 1) ^ (step & 1).wrapping_neg()))
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) =
            self.rest.split_at_checked(len).ok_or(Malformed("the data ends too early"))?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(crate) fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (bytes, rest) =
            self.rest.split_first_chunk().ok_or(Malformed("the data ends too early"))?;
        self.rest = rest;
        Ok(*bytes)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.number()?;
        self.take(usize::try_from(len).map_err(|_| Malformed("a length is too large"))?)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Malformed> {
        str::from_utf8(self.bytes()?).map_err(|_| Malformed("a text is not valid UTF-8"))
    }

    /// Fails if bytes are left.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Malformed("the data has extra bytes at its end"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_steps_are_read_as_they_were_written() {
        let mut numbers =
            vec![0, 1, 127, 128, 16_383, 16_384, u64::MAX / 2, u64::MAX - 1, u64::MAX];
        numbers.extend((0..64).map(|bit| 1u64 << bit));
        for &number in &numbers {
            let mut out = Vec::new();
            put_number(&mut out, number);
            for &from in &numbers {
                put_step(&mut out, from, number);
            }
            let mut bytes = Bytes::new(&out);
            assert_eq!(bytes.number(), Ok(number));
            for &from in &numbers {
                assert_eq!(bytes.step(from), Ok(number), "from {from}");
            }
            assert_eq!(bytes.end(), Ok(()));
        }
    }

    #[test]
    fn what_is_cut_short_or_too_long_is_no_number() {
        assert!(Bytes::new(&[0x80]).number().is_err());
        assert!(Bytes::new(&[0xFF; 9]).number().is_err());
        assert!(Bytes::new(&[0xFF; 11]).number().is_err());
        assert!(
            Bytes::new(&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2])
                .number()
                .is_err()
        );
        assert!(Bytes::new(&[5, 1, 2]).bytes().is_err());
        assert!(Bytes::new(&[1, 0xFF]).text().is_err());
    }
}
