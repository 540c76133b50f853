//! Times and durations as people write them.
//!
//! Two pairs of functions: [`parse_duration`] and [`show_duration`], [`parse_time`] and
//! [`show_time`]. What one shows, the other reads back exactly. No text makes them panic, and none
//! is guessed at: what might mean two things is refused, and the error says what to write.
//!
//! Words are English, in upper or lower case. The rules of time zones come with the program: a
//! machine needs none of its own.

mod duration;
mod error;
#[cfg(test)]
mod tests;
mod time;
mod words;
mod zone;

pub use duration::{parse_duration, show_duration};
pub use error::TimeError;
pub use time::{parse_time, show_time};
pub use zone::Zone;

/// Bytes of a time or a duration: the longest that [`parse_time`] can read has about 80, and what
/// is refused is repeated in the error.
pub const MAX_TIME_LEN: usize = 100;

/// Fails if `text` is too long, before anything else looks at it; without the space around it
/// otherwise.
fn fitting(text: &str) -> Result<&str, TimeError> {
    match text.len() {
        len if len > MAX_TIME_LEN => Err(TimeError::TooLong { len, limit: MAX_TIME_LEN }),
        _ => Ok(text.trim_ascii()),
    }
}
