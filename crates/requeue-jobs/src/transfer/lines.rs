//! One line after the other, none too long.

use super::error::TransferError;
use super::object::Fields;
use std::io::{BufRead, Read};

/// Bytes of a line. The longest has two bodies (a job's and its successor's) of which each byte
/// is written as six, `\u0000`; failed attempts and names are little beside.
pub(super) const MAX_LINE_LEN: usize = 16 << 20;

pub(super) struct Lines<'a, R: ?Sized> {
    input: &'a mut R,
    number: u64,
    bytes: u64,
    text: Vec<u8>,
}

impl<'a, R: BufRead + ?Sized> Lines<'a, R> {
    pub(super) fn new(input: &'a mut R) -> Self {
        Lines { input, number: 0, bytes: 0, text: Vec::new() }
    }

    /// Of the last that was read, from 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The next, or `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Fields<'_>>, TransferError> {
        let line = self.number + 1;
        self.text.clear();
        // With its end, and one more: that is too many.
        let mut input = (&mut *self.input).take(MAX_LINE_LEN as u64 + 2);
        let read = input.read_until(b'\n', &mut self.text);
        let read = read.map_err(|source| TransferError::Read { line, source })?;
        if read == 0 {
            return Ok(None);
        }
        (self.number, self.bytes) = (line, self.bytes + read as u64);
        if self.text.last() == Some(&b'\n') {
            self.text.pop();
        }
        if self.text.len() > MAX_LINE_LEN {
            return Err(TransferError::TooLong { line, limit: MAX_LINE_LEN });
        }
        let text = str::from_utf8(&self.text)
            .map_err(|error| TransferError::NotJson { line, reason: error.to_string() })?;
        Fields::of_line(line, self.bytes, text).map(Some)
    }
}
