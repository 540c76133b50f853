//! Corners that random histories found.

use super::{KindState, MemoryStore, State};
use crate::Store;
use crate::limits::MAX_DELAY;
use crate::{
    Body, Change, Claim, ClaimedJob, Due, How, JobId, JobView, Kind, Missed, Mode, Put, PutOutcome,
    Schedule, Settle, Settled, Tick, Ticked, Timestamp, What, WorkerName,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + seconds * 1000)
}

fn kind() -> KindState {
    KindState::new(Kind::new("k").unwrap())
}

fn id() -> JobId {
    JobId::new("a").unwrap()
}

/// Due in ten seconds, and never later than `max_wait` seconds after the first put.
fn debounced(kind: &mut KindState, max_wait: u32, now: Timestamp) -> PutOutcome {
    let mut put = Put::new(Kind::new("k").unwrap(), id(), Body::default());
    put.due = Due::After(10 * SECOND);
    put.mode = Mode::Debounce { max_wait: max_wait * SECOND };
    kind.put(put, now).unwrap().outcome
}

fn claim(kind: &mut KindState, now: Timestamp) -> ClaimedJob {
    let worker = WorkerName::new("w").unwrap();
    let claim = Claim { kinds: Vec::new(), max: 1, lease: None, worker, nonce: 7 };
    let mut jobs = Vec::new();
    kind.claim(&claim, 1, now, &mut jobs).unwrap();
    jobs.pop().expect("a job is due")
}

fn settle(kind: &mut KindState, job: &ClaimedJob, how: How, now: Timestamp) -> Settled {
    kind.settle(Settle { receipt: job.receipt.clone(), how }, now).unwrap()
}

fn cancel(kind: &mut KindState, now: Timestamp) {
    let change = Change { kind: Kind::new("k").unwrap(), id: id(), what: What::Cancel };
    kind.change(change, now).unwrap();
}

fn view(kind: &KindState, now: Timestamp) -> JobView {
    kind.get(&id(), now).expect("there is a job")
}

#[test]
fn the_first_debounced_put_waits_no_longer_than_the_maximum() {
    let mut kind = kind();
    assert_eq!(debounced(&mut kind, 5, at(0)), PutOutcome::Created);
    assert_eq!(view(&kind, at(0)).due, at(5));
}

#[test]
fn debounced_puts_during_a_lease_count_from_the_first_of_them() {
    let mut kind = kind();
    debounced(&mut kind, 0, at(0));
    let job = claim(&mut kind, at(0));
    debounced(&mut kind, 60, at(1));
    settle(&mut kind, &job, How::Ack, at(2));
    // Since the ack there was none: the next is the first.
    claim(&mut kind, at(11));
    debounced(&mut kind, 15, at(12));
    debounced(&mut kind, 15, at(20));
    assert_eq!(view(&kind, at(20)).next.map(|next| next.due), Some(at(27)));
}

#[test]
fn a_debounced_successor_is_not_due_before_it_was_put() {
    let mut kind = kind();
    debounced(&mut kind, 0, at(0));
    claim(&mut kind, at(0));
    debounced(&mut kind, 5, at(20));
    assert_eq!(view(&kind, at(20)).next.map(|next| next.due), Some(at(20)));
}

#[test]
fn extending_a_cancelled_lease_changes_nothing() {
    let mut kind = kind();
    debounced(&mut kind, 0, at(0));
    let job = claim(&mut kind, at(0));
    cancel(&mut kind, at(1));
    let before = view(&kind, at(2));
    assert_eq!(settle(&mut kind, &job, How::Extend(None), at(2)), Settled::Cancelled);
    assert_eq!(view(&kind, at(2)), before);
}

#[test]
fn what_was_put_after_a_cancel_is_updated_when_it_starts() {
    let mut kind = kind();
    debounced(&mut kind, 0, at(0));
    let job = claim(&mut kind, at(0));
    cancel(&mut kind, at(1));
    debounced(&mut kind, 60, at(2));
    debounced(&mut kind, 60, at(3));
    assert_eq!(settle(&mut kind, &job, How::Ack, at(4)), Settled::Cancelled);
    let job = view(&kind, at(4));
    assert_eq!((job.created_at, job.updated_at), (at(2), at(4)));
}

#[test]
fn a_tick_whose_put_is_refused_does_not_move_the_schedule() {
    let mut state = State::default();
    let name = Kind::new("k").unwrap();
    let expected = at(0).saturating_add(MAX_DELAY + SECOND);
    let (when, time_zone) = (String::new(), String::new());
    let (body, missed) = (Body::default(), Missed::One);
    let schedule = Schedule { id: id(), when, time_zone, body, missed, next: expected };
    state.kind(&name).unwrap().schedules.insert(id(), schedule);
    let next = expected.saturating_add(SECOND);
    let tick = Tick { kind: name, id: id(), expected, next, put: true };
    assert!(state.tick(tick.clone(), at(0)).is_err());
    assert!(matches!(state.tick(tick, at(1)), Ok(Ticked::Put(_))));
}

#[test]
fn the_first_kind_rotates_also_between_claims_of_others() {
    let mut state = State::default();
    let names = ["x", "y", "z"].map(|name| Kind::new(name).unwrap());
    for name in &names {
        for number in 0..4 {
            let id = JobId::new(number.to_string()).unwrap();
            let put = Put::new(name.clone(), id, Body::default());
            state.kind(name).unwrap().put(put, at(0)).unwrap();
        }
    }
    let mut claim = |kinds: &[Kind]| {
        let worker = WorkerName::new("w").unwrap();
        let claim = Claim { kinds: kinds.to_vec(), max: 1, lease: None, worker, nonce: 7 };
        state.claim(&claim, at(0)).unwrap().jobs[0].kind().clone()
    };
    let mut firsts = Vec::new();
    for _ in 0..4 {
        firsts.push(claim(&names[..2]));
        claim(&names[2..]);
    }
    assert_eq!(firsts, [&names[0], &names[1], &names[0], &names[1]].map(Kind::clone));
}

#[test]
fn a_put_that_is_refused_makes_no_kind() {
    let store = MemoryStore::new();
    let mut put = Put::new(Kind::new("k").unwrap(), id(), Body::default());
    put.due = Due::After(MAX_DELAY + SECOND);
    let mut answer = store.put(vec![put]);
    let poll = answer.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(poll, Poll::Ready(Ok(each)) if each[0].is_err()));
    assert_eq!(store.look(|state, _| state.kinds.len()), 0);
}

#[test]
fn fences_rise_also_where_the_clock_is_far_off() {
    let mut kind = kind();
    let end = Timestamp::from_millis(u64::MAX);
    let mut fence = 0;
    for _ in 0..3 {
        kind.put(Put::new(Kind::new("k").unwrap(), id(), Body::default()), end).unwrap();
        let job = claim(&mut kind, end);
        assert!(job.receipt.fence().0 > fence);
        fence = job.receipt.fence().0;
        settle(&mut kind, &job, How::Ack, end);
    }
}

#[test]
fn a_waker_that_panics_keeps_no_other_from_being_woken() {
    struct Bad;
    impl Wake for Bad {
        fn wake(self: Arc<Self>) {
            panic!("a waker panics");
        }
    }
    #[derive(Default)]
    struct Good(AtomicBool);
    impl Wake for Good {
        fn wake(self: Arc<Self>) {
            self.0.store(true, SeqCst);
        }
    }
    let (store, good) = (MemoryStore::new(), Arc::new(Good::default()));
    let mut waits = [0, 1].map(|_| store.wait(vec![Kind::new("k").unwrap()], SECOND));
    let wakers = [Waker::from(Arc::new(Bad)), Waker::from(Arc::clone(&good))];
    for (wait, waker) in waits.iter_mut().zip(&wakers) {
        assert!(wait.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
    }
    let put = Put::new(Kind::new("k").unwrap(), id(), Body::default());
    let mut answer = store.put(vec![put]);
    assert!(answer.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    assert!(good.0.load(SeqCst));
}

#[test]
fn a_release_uses_up_no_generation() {
    let mut kind = kind();
    let put = |kind: &mut KindState| {
        kind.put(Put::new(Kind::new("k").unwrap(), id(), Body::default()), at(0))
            .unwrap()
            .generation
    };
    put(&mut kind);
    let job = claim(&mut kind, at(0));
    let successor = put(&mut kind);
    settle(&mut kind, &job, How::Release, at(0));
    assert_eq!(put(&mut kind).0, successor.0 + 1);
}
