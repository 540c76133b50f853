//! The jobs of all systems: 16 bytes of id, 100 of body, both text.

const BODY_LEN: usize = 100;
/// Bytes of id and body of a job.
pub(super) const PAYLOAD: usize = 16 + BODY_LEN;
/// The number of bodies; generating one for each job would take longer than sending it.
const BODIES: usize = 256;
/// In seconds. No job is due before the end.
const SOONEST: u64 = 3_600;
const LATEST: u64 = 86_400;

pub(super) struct Job {
    pub(super) id: String,
    pub(super) body: String,
    /// Seconds.
    pub(super) delay: u64,
}

/// Generates jobs. All ids are different, including those of other callers.
pub(super) struct Jobs {
    made: u64,
    due_now: bool,
    bodies: Vec<String>,
}

impl Jobs {
    pub(super) fn new(caller: usize, due_now: bool) -> Self {
        let made = (caller as u64) << 40;
        let body = |n: u64| (0..BODY_LEN as u64).map(|i| letter(mix(n * 1000 + i))).collect();
        Jobs { made, due_now, bodies: (0..BODIES as u64).map(body).collect() }
    }

    pub(super) fn take(&mut self, count: usize) -> Vec<Job> {
        (0..count).map(|_| self.next()).collect()
    }

    fn next(&mut self) -> Job {
        self.made += 1;
        let random = mix(self.made);
        let delay = SOONEST + random % (LATEST - SOONEST);
        Job {
            id: format!("{random:016x}"),
            body: self.bodies[self.made as usize % BODIES].clone(),
            delay: if self.due_now { 0 } else { delay },
        }
    }
}

/// A byte without a meaning in any of the protocols.
fn letter(random: u64) -> char {
    char::from(b'a' + (random % 26) as u8)
}

/// A bijection, so that no two ids are equal (from splitmix64).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
