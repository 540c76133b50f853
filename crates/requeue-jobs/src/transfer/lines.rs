//! Reads the input line by line, with a limit on the length of a line.

use super::error::TransferError;
use super::object::ObjectReader;
use std::io::{BufRead, Read};

/// Maximum bytes of a line. The longest line contains two bodies (of a job and of its successor) in
/// which every byte is escaped to six, `\u0000`. Failed attempts and names add little to that.
pub(super) const MAX_LINE_LEN: usize = 16 << 20;

pub(super) struct LineReader<'a, R: ?Sized> {
    input: &'a mut R,
    /// The number of the line that was read last, from 1.
    number: u64,
    /// Bytes that were read so far.
    bytes: u64,
    text: Vec<u8>,
}

impl<'a, R: BufRead + ?Sized> LineReader<'a, R> {
    pub(super) fn new(input: &'a mut R) -> Self {
        LineReader { input, number: 0, bytes: 0, text: Vec::new() }
    }

    /// Returns the number of the line that was read last, from 1; 0 before the first.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Reads the next line. Returns `None` at the end of the input.
    pub(super) fn next(&mut self) -> Result<Option<ObjectReader<'_>>, TransferError> {
        let line = self.number + 1;
        self.text.clear();
        // The longest line with its line break, and one byte more to detect a longer one.
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
        ObjectReader::of_line(line, self.bytes, text).map(Some)
    }
}
