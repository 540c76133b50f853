//! The jobs of all systems: 16 bytes of id, 100 of body, both random.

use std::ops::Range;
use std::time::Duration;

pub(super) const DAY: Duration = Duration::from_secs(86_400);

const ID_LEN: usize = 16;
const BODY_LEN: usize = 100;
/// Bytes of id and body of a job.
pub(super) const PAYLOAD: usize = ID_LEN + BODY_LEN;

pub(super) struct Job {
    pub(super) id: String,
    pub(super) body: [u8; BODY_LEN],
    pub(super) delay: Duration,
}

/// Generates jobs. All ids are different, and the same in each run.
pub(super) struct Jobs {
    made: u64,
    /// In milliseconds.
    delays: Range<u64>,
}

impl Jobs {
    pub(super) fn due_now() -> Self {
        Jobs { made: 1 << 40, delays: 0..1 }
    }

    pub(super) fn due_within(delay: Duration) -> Self {
        Jobs { made: 2 << 40, delays: 0..millis(delay) }
    }

    /// Jobs that are due in exactly one day.
    pub(super) fn due_in_a_day() -> Self {
        Jobs { made: 3 << 40, delays: millis(DAY)..millis(DAY) + 1 }
    }

    /// Jobs that are due at a random time from 24 to 48 hours from now.
    pub(super) fn due_tomorrow() -> Self {
        Jobs { made: 4 << 40, delays: millis(DAY)..2 * millis(DAY) }
    }

    pub(super) fn take(&mut self, count: usize) -> Vec<Job> {
        (0..count).map(|_| self.next()).collect()
    }

    fn next(&mut self) -> Job {
        self.made += 1;
        let mut seed = mix(self.made);
        let id = format!("{seed:016x}");
        let mut random = || {
            seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
            mix(seed)
        };
        let mut body = [0; BODY_LEN];
        for bytes in body.chunks_mut(8) {
            bytes.copy_from_slice(&random().to_le_bytes()[..bytes.len()]);
        }
        let Range { start, end } = self.delays;
        Job { id, body, delay: Duration::from_millis(start + random() % (end - start)) }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).expect("a few days")
}

/// A bijection, so that no two ids are equal (from splitmix64).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
