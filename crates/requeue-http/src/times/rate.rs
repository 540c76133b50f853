//! Rates: jobs per time.

use super::{TimeError, parse_duration, trim_checked};
use std::time::Duration;

/// Parses a rate: a number of jobs and a duration, such as `10/s`, `100/1m` or `5 / 2h`. Returns both.
///
/// ```
/// use requeue_http::times::parse_rate;
/// use std::time::Duration;
///
/// assert_eq!(parse_rate("10/s")?, (10, Duration::from_secs(1)));
/// assert_eq!(parse_rate("100/1m")?, (100, Duration::from_secs(60)));
/// assert_eq!(
///     parse_rate("10").unwrap_err().to_string(),
///     r#""10" is not a rate: write jobs per time, such as 10/s or 100/1m"#,
/// );
/// # Ok::<(), requeue_http::times::TimeError>(())
/// ```
pub fn parse_rate(text: &str) -> Result<(u32, Duration), TimeError> {
    let wrong = || TimeError::Rate { text: text.to_owned() };
    let (jobs, per) = trim_checked(text)?.split_once('/').ok_or_else(wrong)?;
    let jobs = jobs.trim_ascii().parse().map_err(|_| wrong())?;
    let per = per.trim_ascii();
    // `s` alone is one second. A duration in ISO 8601 starts with a `P`.
    let one = if per.starts_with(|c: char| c.is_ascii_digit() || c == 'P') { "" } else { "1" };
    let per = parse_duration(&format!("{one}{per}")).map_err(|_| wrong())?;
    Ok((jobs, per))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_parsed_and_other_texts_are_rejected() {
        for (text, jobs, per_ms) in [
            ("10/s", 10, 1000),
            ("100/1m", 100, 60_000),
            (" 5 / 2 h ", 5, 7_200_000),
            ("1/day", 1, 86_400_000),
            ("3/100ms", 3, 100),
            ("7/PT1M", 7, 60_000),
            ("0/s", 0, 1000),
        ] {
            assert_eq!(parse_rate(text), Ok((jobs, Duration::from_millis(per_ms))), "{text}");
        }
        let long = format!("10/{}", "s".repeat(200));
        for text in [
            "",
            "10",
            "/s",
            "10/",
            "s/10",
            "1.5/s",
            "-1/s",
            "10/s/s",
            "10/1",
            "10/fortnight",
            &long,
        ] {
            let error = parse_rate(text).expect_err(text).to_string();
            let is_clear =
                error.contains("such as 10/s or 100/1m") || error.contains("the limit is 100");
            assert!(is_clear, "{text}: {error}");
        }
    }
}
