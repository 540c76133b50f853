//! The states of a circuit, on a clock that the test moves.

use super::*;
use CircuitState::{Closed, HalfOpen, Open, Slowed};
use Signal::{Responded, SlowDown, Success, Unreachable};

const MAX: u32 = 8;

/// A circuit with its clock and its deliveries in flight.
struct Target {
    circuit: Circuit,
    now: Moment,
    permits: Vec<Permit>,
}

impl Target {
    fn new() -> Self {
        Target { circuit: Circuit::new(), now: Moment::default(), permits: Vec::new() }
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now.saturating_add(Duration::from_secs(seconds));
    }

    fn start(&mut self, wanted: u32) -> u32 {
        let (granted, permit) = self.circuit.acquire(self.now, wanted);
        self.permits.extend((0..granted).map(|_| permit));
        granted
    }

    /// Ends the delivery that was started first.
    fn end(&mut self, signal: Signal) {
        let permit = self.permits.remove(0);
        self.circuit.finish(self.now, permit, signal, MAX);
    }

    fn end_all(&mut self, signal: Signal) {
        while !self.permits.is_empty() {
            self.end(signal);
        }
    }

    fn fail(&mut self, times: u32) {
        for _ in 0..times {
            assert_eq!(self.start(1), 1);
            self.end(Unreachable);
        }
    }

    fn wait(&self) -> u64 {
        let until = self.circuit.until(self.now);
        until.map_or(0, |until| until.saturating_since(self.now).as_secs())
    }
}

#[test]
fn a_target_that_works_is_not_limited() {
    let mut target = Target::new();
    assert_eq!(target.start(10_000), 10_000);
    target.end_all(Success);
    assert_eq!((target.circuit.state(), target.circuit.limit()), (Closed, None));
}

#[test]
fn retry_after_is_obeyed_and_followed_by_a_ramp() {
    let mut target = Target::new();
    target.start(8);
    target.end(SlowDown(Some(Duration::from_secs(60))));
    target.end_all(Success);
    assert_eq!((target.circuit.state(), target.wait(), target.start(8)), (Slowed, 60, 0));
    target.pass(60);
    for expected in [1, 2, 4] {
        assert_eq!(target.start(8), expected);
        assert_eq!(target.start(8), 0);
        target.end_all(Success);
    }
    assert_eq!(target.circuit.state(), Closed);
    assert_eq!(target.start(8), 8);
}

#[test]
fn a_retry_after_is_capped() {
    let mut target = Target::new();
    target.start(1);
    target.end(SlowDown(Some(Duration::from_secs(1_000_000))));
    assert_eq!(target.wait(), 3600);
}

#[test]
fn without_retry_after_the_limit_is_halved_once_per_round() {
    let mut target = Target::new();
    target.start(8);
    target.end_all(SlowDown(None));
    assert_eq!((target.circuit.limit(), target.wait()), (Some(4), 1));
    target.pass(1);
    assert_eq!(target.start(8), 4);
    target.end_all(SlowDown(None));
    assert_eq!(target.circuit.limit(), Some(2));
    for _ in 0..5 {
        target.pass(1);
        target.start(8);
        target.end_all(SlowDown(None));
    }
    assert_eq!(target.circuit.limit(), Some(1));
}

#[test]
fn a_later_retry_after_of_the_same_round_prolongs_the_pause() {
    let mut target = Target::new();
    target.start(3);
    target.end(SlowDown(None));
    target.end(SlowDown(Some(Duration::from_secs(30))));
    target.end(SlowDown(Some(Duration::from_secs(10))));
    assert_eq!(target.wait(), 30);
}

#[test]
fn a_target_that_cannot_be_reached_gets_no_requests_for_a_growing_time() {
    let mut target = Target::new();
    target.fail(OPEN_AFTER - 1);
    assert_eq!(target.circuit.state(), Closed);
    target.fail(1);
    for expected in [5, 10, 20, 40, 80, 160, 300, 300] {
        assert_eq!((target.circuit.state(), target.wait()), (Open, expected));
        assert_eq!(target.start(8), 0);
        target.pass(expected);
        assert_eq!((target.start(8), target.start(8)), (1, 0), "one probe");
        assert_eq!(target.circuit.state(), HalfOpen);
        target.end(Unreachable);
    }
}

#[test]
fn a_probe_that_is_answered_starts_a_ramp() {
    for (signal, limit) in [(Success, 2), (Responded, 1)] {
        let mut target = Target::new();
        target.fail(OPEN_AFTER);
        target.pass(5);
        assert_eq!(target.start(8), 1);
        target.end(signal);
        assert_eq!((target.circuit.state(), target.circuit.limit()), (Slowed, Some(limit)));
    }
}

#[test]
fn a_probe_that_was_not_sent_is_repeated() {
    let mut target = Target::new();
    target.fail(OPEN_AFTER);
    target.pass(5);
    assert_eq!(target.start(8), 1);
    target.end(Signal::None);
    assert_eq!((target.circuit.state(), target.start(8)), (HalfOpen, 1));
}

#[test]
fn a_response_between_failures_keeps_the_circuit_closed() {
    let mut target = Target::new();
    for _ in 0..10 {
        target.fail(OPEN_AFTER - 1);
        target.start(1);
        target.end(Responded);
    }
    assert_eq!(target.circuit.state(), Closed);
}

#[test]
fn deliveries_that_hang_since_before_the_outage_do_not_count() {
    let mut target = Target::new();
    target.start(8);
    for _ in 0..OPEN_AFTER {
        target.end(Unreachable);
    }
    assert_eq!(target.circuit.state(), Open);
    target.pass(5);
    assert_eq!(target.start(1), 1, "three older deliveries still hang");
    let probe = target.permits.pop().unwrap();
    target.end_all(Unreachable);
    assert_eq!(target.circuit.state(), HalfOpen);
    target.circuit.finish(target.now, probe, Success, MAX);
    assert_eq!((target.circuit.state(), target.start(8)), (Slowed, 2));
}

#[test]
fn a_target_that_flaps_is_left_alone_for_longer_each_time() {
    let mut target = Target::new();
    target.fail(OPEN_AFTER);
    for expected in [5, 10, 20] {
        assert_eq!(target.wait(), expected);
        target.pass(expected);
        target.start(1);
        target.end(Success);
        target.fail(OPEN_AFTER);
    }
    // Once it has worked at full speed, the next outage is a new one.
    target.pass(40);
    for _ in 0..4 {
        target.start(8);
        target.end_all(Success);
    }
    assert_eq!(target.circuit.state(), Closed);
    target.fail(OPEN_AFTER);
    assert_eq!(target.wait(), 5);
}

#[test]
fn random_signals_never_break_the_counts() {
    requeue_testkit::check_seeds(&[], "REQUEUE_CIRCUITS", 300, |seed| {
        let mut random = requeue_testkit::Random::new(seed);
        let mut target = Target::new();
        for _ in 0..200 {
            target.pass(random.below(20) as u64);
            target.start(random.below(10) as u32);
            let signals =
                [Success, Responded, SlowDown(None), Unreachable, Signal::None, Unreachable];
            for _ in 0..random.below(8).min(target.permits.len()) {
                target.end(*random.pick(&signals));
            }
            let counted = |permit: &&Permit| permit.epoch >= target.circuit.counted_since;
            let in_flight = target.permits.iter().filter(counted).count();
            if in_flight != target.circuit.in_flight as usize {
                return Err(format!("{in_flight} in flight: {:?}", target.circuit));
            }
        }
        // Whatever happened, a target that works again gets all requests in the end.
        for _ in 0..20 {
            target.end_all(Success);
            target.pass(300);
            target.start(MAX);
        }
        match target.circuit.state() {
            Closed => Ok(()),
            state => Err(format!("{state:?}")),
        }
    });
}
