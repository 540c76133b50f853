//! A stream that ends with an error if a reply is too long, before the reply is in memory.
//!
//! The `redis` crate collects a whole reply before it parses it. A server may send anything: a value
//! of 512 MB that someone else has stored under one of our keys, or, if it is not a Redis server, a
//! reply without an end. This stream follows the structure of the replies, and counts their bytes.

use super::stream::Stream;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most bytes of a reply. No call of this crate needs as many: claims and lists ask for a few
/// MiB at a time. The longest replies are the ids of all jobs of a kind, in a consistency check.
const MAX_REPLY: usize = 128 << 20;

/// The most lists inside each other. Our replies have three.
const MAX_DEPTH: usize = 32;

/// A stream whose replies are limited.
pub(super) struct LimitedReplies {
    stream: Stream,
    replies: ReplyScanner,
}

impl LimitedReplies {
    pub(super) fn new(stream: Stream) -> Self {
        LimitedReplies { stream, replies: ReplyScanner::new(MAX_REPLY) }
    }
}

impl AsyncRead for LimitedReplies {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = self.stream.as_mut().poll_read(cx, buffer);
        if let Poll::Ready(Ok(())) = polled {
            self.replies.scan(&buffer.filled()[before..])?;
        }
        polled
    }
}

impl AsyncWrite for LimitedReplies {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream.as_mut().poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_shutdown(cx)
    }
}

/// Follows the structure of replies in the protocols RESP2 and RESP3.
struct ReplyScanner {
    limit: usize,
    /// The bytes of the current reply so far.
    bytes: usize,
    /// The first bytes of the current line: its type and its number.
    line: Vec<u8>,
    /// The bytes of the current text that are still missing, including its line end.
    missing: usize,
    /// The number of values that are missing in each open list, the outermost first.
    open: Vec<usize>,
}

/// As many bytes of a line are kept. Numbers are shorter.
const MAX_HEADER: usize = 32;

impl ReplyScanner {
    fn new(limit: usize) -> Self {
        ReplyScanner { limit, bytes: 0, line: Vec::new(), missing: 0, open: Vec::new() }
    }

    fn scan(&mut self, mut input: &[u8]) -> io::Result<()> {
        while !input.is_empty() {
            if self.missing > 0 {
                let taken = self.missing.min(input.len());
                input = &input[taken..];
                self.missing -= taken;
                if self.missing == 0 {
                    self.end_value();
                }
                continue;
            }
            let end = input.iter().position(|byte| *byte == b'\n');
            let (line, rest) = input.split_at(end.map_or(input.len(), |end| end + 1));
            input = rest;
            self.add(line.len())?;
            let room = MAX_HEADER.saturating_sub(self.line.len());
            self.line.extend(line.iter().take(room));
            if end.is_some() {
                self.end_line()?;
            }
        }
        Ok(())
    }

    fn end_line(&mut self) -> io::Result<()> {
        let text = str::from_utf8(&self.line).unwrap_or_default().trim_end();
        let number = text.get(1..).and_then(|number| number.parse::<i64>().ok()).unwrap_or(0);
        let count = usize::try_from(number).unwrap_or(0);
        let values = match self.line.first() {
            Some(b'$' | b'=' | b'!') if number >= 0 => {
                self.add(count.saturating_add(2))?;
                self.missing = count + 2;
                self.line.clear();
                return Ok(());
            }
            Some(b'*' | b'~' | b'>') => count,
            Some(b'%') => count.saturating_mul(2),
            // Attributes come before the value that they belong to.
            Some(b'|') => count.saturating_mul(2).saturating_add(1),
            _ => 0,
        };
        self.line.clear();
        if values == 0 {
            self.end_value();
            return Ok(());
        }
        // Each value has three bytes at least. They are counted when they arrive.
        if self.bytes.saturating_add(values.saturating_mul(3)) > self.limit {
            return Err(self.too_long());
        }
        if self.open.len() == MAX_DEPTH {
            return Err(io::Error::other("a reply has too many lists inside each other"));
        }
        self.open.push(values);
        Ok(())
    }

    fn end_value(&mut self) {
        while let Some(left) = self.open.last_mut() {
            *left -= 1;
            if *left > 0 {
                return;
            }
            self.open.pop();
        }
        self.bytes = 0;
    }

    fn add(&mut self, bytes: usize) -> io::Result<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limit { Err(self.too_long()) } else { Ok(()) }
    }

    fn too_long(&self) -> io::Error {
        io::Error::other(format!("a reply has more than {} bytes, which is the limit", self.limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLIES: &[u8] = b"+OK\r\n:5\r\n$-1\r\n*-1\r\n*0\r\n$0\r\n\r\n$5\r\nab\r\nc\r\n\
        *2\r\n*3\r\n$1\r\n*\r\n:1\r\n-ERR no\r\n*1\r\n*0\r\n%1\r\n+a\r\n_\r\n\
        |1\r\n+k\r\n+v\r\n:1\r\n>2\r\n+message\r\n#t\r\n=7\r\ntxt:abc\r\n";

    #[test]
    fn replies_of_any_structure_are_followed_however_they_arrive() {
        for size in 1..REPLIES.len() {
            let mut scanner = ReplyScanner::new(64);
            for part in REPLIES.chunks(size) {
                scanner.scan(part).unwrap();
            }
            let ends = (scanner.bytes, scanner.missing, scanner.open.len(), scanner.line.len());
            assert_eq!(ends, (0, 0, 0, 0), "in parts of {size} bytes");
        }
        // Each reply alone counts for the limit.
        let mut scanner = ReplyScanner::new(64);
        for _ in 0..100 {
            scanner.scan(REPLIES).unwrap();
        }
    }

    #[test]
    fn a_reply_that_is_too_long_is_an_error_before_its_bytes_arrive() {
        let mut many = b"*9\r\n".to_vec();
        many.extend(b"$10\r\n0123456789\r\n".repeat(9));
        for reply in [
            &b"$65\r\n"[..],
            b"$536870912\r\n",
            b"*1000000000\r\n",
            b"*2\r\n$30\r\n012345678901234567890123456789\r\n$30\r\n",
            &[b'+'; 65],
            &many,
            &b"*1\r\n".repeat(40),
        ] {
            let error = ReplyScanner::new(64).scan(reply).expect_err("it is too long").to_string();
            assert!(error.contains("64 bytes") || error.contains("inside"), "{error}");
        }
        ReplyScanner::new(64).scan(b"$56\r\n").unwrap();
    }
}
