//! Parses server-sent events (`text/event-stream`).
//!
//! The parser takes chunks of any size: fields, line ends and characters may be split between them. It
//! keeps at most one message, and fails if that is longer than [`MAX_MESSAGE_LEN`]. The fields `id` and
//! `retry` are ignored, because the server does not send them: events are not stored.

/// Maximum bytes of the lines of a message. An event of the server has less than 16 KiB: a kind, an id and
/// a worker of at most 512 bytes each, in which JSON escapes each byte to six.
pub(super) const MAX_MESSAGE_LEN: usize = 64 << 10;

/// A message of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    /// The field `event`, or `message` if there is none.
    pub(super) event: String,
    /// The fields `data`, joined by line breaks.
    pub(super) data: String,
}

/// A message is longer than [`MAX_MESSAGE_LEN`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is longer than {MAX_MESSAGE_LEN} bytes")]
pub(super) struct MessageTooLong;

/// The part of a stream that is not a whole message yet.
#[derive(Debug, Default)]
pub(super) struct EventParser {
    /// The beginning of a line.
    line: Vec<u8>,
    event: String,
    data: String,
    /// Bytes of the message so far, including the line. Invariant: at most [`MAX_MESSAGE_LEN`].
    len: usize,
    /// The last line ended with a carriage return, so that a line feed belongs to its end.
    after_cr: bool,
    /// The first line was read. Only that can begin with a byte order mark.
    started: bool,
}

impl EventParser {
    /// Reads a chunk up to the end of a message. Returns the number of bytes that were read, and the
    /// message. Without a message, the whole chunk was read.
    pub(super) fn read(
        &mut self,
        chunk: &[u8],
    ) -> Result<(usize, Option<Message>), MessageTooLong> {
        let mut at = 0;
        while at < chunk.len() {
            if std::mem::take(&mut self.after_cr) && chunk[at] == b'\n' {
                at += 1;
                continue;
            }
            let rest = &chunk[at..];
            let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let part = &rest[..end.unwrap_or(rest.len())];
            self.len += part.len();
            if self.len > MAX_MESSAGE_LEN {
                return Err(MessageTooLong);
            }
            self.line.extend_from_slice(part);
            at += part.len();
            if let Some(end) = end {
                self.after_cr = rest[end] == b'\r';
                at += 1;
                if let Some(message) = self.end_line() {
                    return Ok((at, Some(message)));
                }
            }
        }
        Ok((at, None))
    }

    /// Interprets a line. An empty one ends a message.
    fn end_line(&mut self) -> Option<Message> {
        let line = std::mem::take(&mut self.line);
        let len = line.len();
        let line = match std::mem::replace(&mut self.started, true) {
            false => line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&line),
            true => &line,
        };
        if line.is_empty() {
            return self.end_message();
        }
        let line = String::from_utf8_lossy(line);
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event),
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            // A comment, and fields without a meaning here.
            _ => self.len -= len,
        }
        None
    }

    /// Returns the message, unless it has no data.
    fn end_message(&mut self) -> Option<Message> {
        self.len = 0;
        let (mut event, mut data) =
            (std::mem::take(&mut self.event), std::mem::take(&mut self.data));
        data.pop()?;
        if event.is_empty() {
            "message".clone_into(&mut event);
        }
        Some(Message { event, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(event: &str, data: &str) -> Message {
        Message { event: event.to_owned(), data: data.to_owned() }
    }

    /// Parses a stream in chunks of these lengths, in turn.
    fn parse(stream: &[u8], lengths: &[usize]) -> Result<Vec<Message>, MessageTooLong> {
        let (mut parser, mut messages) = (EventParser::default(), Vec::new());
        let (mut stream, mut lengths) = (stream, lengths.iter().cycle());
        while !stream.is_empty() {
            let len = lengths.next().map_or(stream.len(), |len| (*len).clamp(1, stream.len()));
            let (mut chunk, rest) = stream.split_at(len);
            while !chunk.is_empty() {
                let (read, message) = parser.read(chunk)?;
                messages.extend(message);
                chunk = &chunk[read..];
            }
            stream = rest;
        }
        Ok(messages)
    }

    const STREAM: &str = "\u{feff}: still here\n\nevent: put\ndata: {\"id\":\"ä😀\"}\n\n\
        event:claimed\r\ndata:1\r\ndata: 2\r\n\r\n\
        id: 7\rretry: 5\rdata:  x\r\r\
        event: without data\n\n\
        data\n\n\
        unknown: field\ndata: : a colon\n\n\
        event: incomplete\ndata: never ends\n";

    fn messages() -> Vec<Message> {
        vec![
            message("put", "{\"id\":\"ä😀\"}"),
            message("claimed", "1\n2"),
            message("message", " x"),
            message("message", ""),
            message("message", ": a colon"),
        ]
    }

    #[test]
    fn fields_comments_and_all_line_ends_are_understood() {
        assert_eq!(parse(STREAM.as_bytes(), &[]), Ok(messages()));
    }

    #[test]
    fn a_stream_cut_anywhere_contains_the_same_messages() {
        for cut in 1..STREAM.len() {
            assert_eq!(parse(STREAM.as_bytes(), &[cut, STREAM.len()]), Ok(messages()), "{cut}");
        }
        for len in 1..8 {
            assert_eq!(parse(STREAM.as_bytes(), &[len]), Ok(messages()), "{len}");
        }
    }

    #[test]
    fn invalid_utf_8_does_not_end_the_stream() {
        let found = parse(b"data: \xff\xfe\n\ndata: b\n\n", &[]);
        assert_eq!(
            found,
            Ok(vec![message("message", "\u{fffd}\u{fffd}"), message("message", "b")])
        );
    }

    #[test]
    fn a_line_or_message_that_is_too_long_is_an_error() {
        let line = |len: usize| format!("data: {}", "x".repeat(len));
        let fits = format!("{}\n\n", line(MAX_MESSAGE_LEN - 6));
        let both = parse(fits.repeat(2).as_bytes(), &[1000]).unwrap();
        assert_eq!(both.len(), 2);
        let endless = line(MAX_MESSAGE_LEN);
        assert_eq!(parse(endless.as_bytes(), &[1000]), Err(MessageTooLong));
        let many = "data: x\n".repeat(MAX_MESSAGE_LEN);
        assert_eq!(parse(many.as_bytes(), &[]), Err(MessageTooLong));
    }

    #[test]
    fn comments_do_not_count_towards_the_length_of_a_message() {
        let idle = ": still here\n\n".repeat(MAX_MESSAGE_LEN);
        assert_eq!(parse(format!("{idle}data: 1\n\n").as_bytes(), &[]).unwrap().len(), 1);
        let within = ": still here\n".repeat(MAX_MESSAGE_LEN);
        assert_eq!(parse(format!("{within}data: 1\n\n").as_bytes(), &[]).unwrap().len(), 1);
    }

    proptest! {
        #[test]
        fn chunk_boundaries_make_no_difference(
            stream in proptest::collection::vec(
                prop_oneof![
                    Just("\n".to_owned()), Just("\r".to_owned()), Just("\r\n".to_owned()),
                    Just("data:".to_owned()), Just("event: ".to_owned()), Just(":".to_owned()),
                    "[a-zä😀 :]{0,5}",
                ],
                0..40,
            ),
            lengths in proptest::collection::vec(1_usize..9, 1..6),
        ) {
            let stream = stream.concat();
            prop_assert_eq!(parse(stream.as_bytes(), &lengths), parse(stream.as_bytes(), &[]));
        }

        #[test]
        fn no_bytes_make_the_parser_panic(
            stream in proptest::collection::vec(any::<u8>(), 0..200),
            lengths in proptest::collection::vec(1_usize..9, 1..6),
        ) {
            prop_assert_eq!(parse(&stream, &lengths), parse(&stream, &[]));
        }
    }
}
