//! Parsing and formatting of times and durations, such as `tomorrow 09:00 Europe/Berlin` and `1h30m`.
//!
//! There are two pairs of functions: [`parse_duration`] and [`show_duration`], [`parse_time`] and
//! [`show_time`]. The first of a pair parses exactly what the second formats. No text makes them panic.
//! An ambiguous text is rejected, and the error tells what to write instead.
//!
//! Words are English, in upper or lower case. The time zone database is part of the program, so the
//! machine does not need one.

mod calendar;
mod duration;
mod error;
mod rate;
#[cfg(test)]
mod tests;
mod time;
mod zone;

pub use duration::{parse_duration, show_duration};
pub use error::TimeError;
pub use rate::parse_rate;
pub use time::{parse_time, show_time};
pub use zone::Zone;

/// Maximum bytes of a time or a duration. The longest text that [`parse_time`] accepts has about 80. The
/// limit is low because errors repeat the text.
pub const MAX_TIME_LEN: usize = 100;

/// Returns `text` without white space around it. Fails if it is too long.
fn trim_checked(text: &str) -> Result<&str, TimeError> {
    match text.len() {
        len if len > MAX_TIME_LEN => Err(TimeError::TooLong { len, limit: MAX_TIME_LEN }),
        _ => Ok(text.trim_ascii()),
    }
}
