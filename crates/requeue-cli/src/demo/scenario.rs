//! What producers and workers share.

use super::random::Random;
use super::shop::Records;
use requeue_jobs::Jobs;
use std::sync::Mutex;
use std::time::Duration;

/// What producers and workers share. They use the server like any other program: over HTTP.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) jobs: Jobs,
    pub(super) seed: u64,
    pub(super) speed: Speed,
    pub(super) records: Mutex<Records>,
}

impl Scenario {
    /// Waits for a random time between two numbers of milliseconds, divided by the speed.
    pub(super) async fn pause(&self, random: &mut Random, millis: std::ops::Range<u64>) {
        let [min, max] = [millis.start, millis.end].map(Duration::from_millis);
        tokio::time::sleep(self.speed.scaled(random.between(min, max))).await;
    }
}

/// How many times as fast as usual the demo runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Speed(f64);

impl Speed {
    /// At 10 times the usual speed, the demo handles some hundred jobs per second.
    pub(super) const RANGE: std::ops::RangeInclusive<f64> = 0.1..=10.0;

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let number: Option<f64> = text.parse().ok().filter(|speed| Self::RANGE.contains(speed));
        number.map(Speed).ok_or_else(|| {
            format!("expected a number from {} to {}", Self::RANGE.start(), Self::RANGE.end())
        })
    }

    /// Returns how long something takes at this speed.
    pub(super) fn scaled(self, usual: Duration) -> Duration {
        usual.div_f64(self.0)
    }

    /// Returns how many happen at this speed in the time of `usual`: at least 1.
    pub(super) fn count(self, usual: u32) -> u32 {
        (f64::from(usual) * self.0).ceil() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_within_its_range() {
        for text in ["0.1", "1", "2.5", "10"] {
            Speed::parse(text).unwrap();
        }
        for text in ["0", "0.09", "-1", "10.1", "NaN", "inf", "fast", ""] {
            assert_eq!(Speed::parse(text).unwrap_err(), "expected a number from 0.1 to 10");
        }
    }

    #[test]
    fn twice_as_fast_takes_half_the_time() {
        let speed = Speed::parse("2").unwrap();
        assert_eq!(speed.scaled(Duration::from_secs(3)), Duration::from_millis(1500));
        assert_eq!(speed.count(5), 10);
        assert_eq!(Speed::parse("0.1").unwrap().count(5), 1);
    }
}
