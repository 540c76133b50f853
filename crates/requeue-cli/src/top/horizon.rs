//! How far ahead the histogram of due jobs looks.

use std::time::Duration;

/// The time that a histogram covers, divided into spans.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Horizon {
    Minute,
    #[default]
    Hour,
    Day,
    Week,
}

impl Horizon {
    pub(crate) const ALL: [Horizon; 4] =
        [Horizon::Minute, Horizon::Hour, Horizon::Day, Horizon::Week];

    /// The name, as in the API.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Horizon::Minute => "minute",
            Horizon::Hour => "hour",
            Horizon::Day => "day",
            Horizon::Week => "week",
        }
    }

    /// The length of a span.
    pub(crate) fn span(self) -> Duration {
        Duration::from_secs(match self {
            Horizon::Minute => 1,
            Horizon::Hour => 60,
            Horizon::Day => 15 * 60,
            Horizon::Week => 2 * 3600,
        })
    }

    /// The number of spans.
    pub(crate) fn count(self) -> usize {
        match self {
            Horizon::Minute | Horizon::Hour => 60,
            Horizon::Day => 96,
            Horizon::Week => 84,
        }
    }

    pub(crate) fn next(self) -> Horizon {
        match self {
            Horizon::Minute => Horizon::Hour,
            Horizon::Hour => Horizon::Day,
            Horizon::Day => Horizon::Week,
            Horizon::Week => Horizon::Minute,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spans_of_a_horizon_cover_it() {
        let seconds = [60, 3600, 86_400, 7 * 86_400];
        for (horizon, seconds) in Horizon::ALL.into_iter().zip(seconds) {
            assert_eq!(horizon.span().as_secs() * horizon.count() as u64, seconds, "{horizon:?}");
        }
        let all = Horizon::ALL.into_iter().map(Horizon::next);
        assert_eq!(
            all.collect::<Vec<_>>(),
            [Horizon::Hour, Horizon::Day, Horizon::Week, Horizon::Minute]
        );
    }
}
