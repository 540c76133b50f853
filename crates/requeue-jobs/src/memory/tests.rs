//! Tests of the lock and the notifier around the rules.

use super::MemoryStore;
use crate::limits::MAX_DELAY;
use crate::{Body, Due, JobId, Kind, Put, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn id() -> JobId {
    JobId::new("a").unwrap()
}

#[test]
fn a_put_that_is_refused_makes_no_kind() {
    let store = MemoryStore::new();
    let mut put = Put::new(Kind::new("k").unwrap(), id(), Body::default());
    put.due = Due::After(MAX_DELAY + SECOND);
    let mut answer = store.put(vec![put]);
    let poll = answer.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(poll, Poll::Ready(Ok(each)) if each[0].is_err()));
    assert_eq!(store.read(|state, _| state.len()), 0);
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
