//! Tests against a store that records its batches and completes them on request.

use super::*;
use requeue_testkit::block_on;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

type Numbers = Batcher<u32, u32, StoreError>;
type TestCall = Pin<Box<Call<u32, u32, StoreError>>>;
type Caller = (TestCall, Arc<Task>);

/// A store whose result for each entry is ten times the entry.
#[derive(Clone, Default)]
struct ManualStore(Arc<Mutex<ManualState>>);

#[derive(Default)]
struct ManualState {
    /// The batches that were sent.
    batches: Vec<Vec<u32>>,
    /// The number of batches that may complete.
    open: usize,
    waker: Option<Waker>,
    /// The number of batches that were dropped before they completed.
    abandoned: usize,
}

impl ManualStore {
    fn state(&self) -> MutexGuard<'_, ManualState> {
        self.0.lock().expect("no test panics with the lock")
    }

    fn batcher(&self) -> Arc<Numbers> {
        let store = self.clone();
        Batcher::new(move |entries| store.take(entries), |_| 1)
    }

    fn take(&self, entries: Vec<u32>) -> Batch<u32, StoreError> {
        let mut state = self.state();
        state.batches.push(entries.clone());
        let pending =
            PendingBatch { store: self.clone(), number: state.batches.len(), completed: false };
        Box::pin(pending.run(entries))
    }

    /// Lets one more batch complete, and wakes it.
    fn complete_one(&self) {
        let mut state = self.state();
        state.open += 1;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    fn batches(&self) -> Vec<Vec<u32>> {
        self.state().batches.clone()
    }
}

struct PendingBatch {
    store: ManualStore,
    number: usize,
    completed: bool,
}

impl PendingBatch {
    async fn run(mut self, entries: Vec<u32>) -> Result<BatchResults<u32, StoreError>, StoreError> {
        poll_fn(|cx| {
            let mut state = self.store.state();
            if state.open >= self.number {
                return Poll::Ready(());
            }
            state.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
        self.completed = true;
        Ok(entries.into_iter().map(|entry| Ok(entry * 10)).collect())
    }
}

impl Drop for PendingBatch {
    fn drop(&mut self) {
        if !self.completed {
            let mut state = self.store.state();
            state.abandoned += 1;
            // The next batch gets this one's number in the order of completion.
            state.open += 1;
        }
    }
}

/// A task that records whether it was woken.
#[derive(Default)]
struct Task(AtomicBool);

impl Task {
    fn was_woken(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn poll(call: &mut TestCall) -> Poll<Result<u32, StoreError>> {
    call.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn poll_as(call: &mut TestCall, task: &Arc<Task>) -> Poll<Result<u32, StoreError>> {
    call.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(task))))
}

/// Polls it as a gathering call that expects others.
fn gather_as(call: &mut TestCall, task: &Arc<Task>) -> Poll<Result<u32, StoreError>> {
    call.poll_gathering(&mut Context::from_waker(&Waker::from(Arc::clone(task))), || true)
}

fn new_call(batcher: &Arc<Numbers>, entry: u32) -> TestCall {
    Box::pin(batcher.call(entry))
}

/// Calls that were polled once, in this order.
fn waiting(batcher: &Arc<Numbers>, entries: impl IntoIterator<Item = u32>) -> Vec<TestCall> {
    let mut calls: Vec<TestCall> =
        entries.into_iter().map(|entry| new_call(batcher, entry)).collect();
    for call in &mut calls {
        assert!(poll(call).is_pending());
    }
    calls
}

#[test]
fn a_single_call_is_sent_immediately() {
    let store = ManualStore::default();
    let mut calls = waiting(&store.batcher(), [1]);
    assert_eq!(store.batches(), [[1]]);
    store.complete_one();
    assert_eq!(poll(&mut calls[0]), Poll::Ready(Ok(10)));
}

/// Makes three gathering calls that expect others.
fn gathering(batcher: &Arc<Numbers>) -> Vec<Caller> {
    let mut callers: Vec<Caller> =
        [1, 2, 3].map(|entry| (new_call(batcher, entry), Arc::default())).into();
    for (call, task) in &mut callers {
        assert!(gather_as(call, task).is_pending());
    }
    callers
}

#[test]
fn gathering_calls_are_sent_together_by_the_next_call_or_when_no_others_are_expected() {
    for next in [None, Some(4)] {
        let store = ManualStore::default();
        let batcher = store.batcher();
        let mut callers = gathering(&batcher);
        let woken: Vec<bool> = callers.iter().map(|(_, task)| task.was_woken()).collect();
        assert_eq!(woken, [true, false, false], "one of them is enough");
        let (first, task) = &mut callers[0];
        assert!(gather_as(first, task).is_pending());
        assert!(task.was_woken(), "it expects others");
        assert!(store.batches().is_empty());
        let _next = waiting(&batcher, next);
        let (first, task) = &mut callers[0];
        assert!(poll_as(first, task).is_pending());
        assert!(!task.was_woken());
        let all: Vec<u32> = [1, 2, 3].into_iter().chain(next).collect();
        assert_eq!(store.batches(), [all]);
        store.complete_one();
        for ((call, task), result) in callers.iter_mut().zip([10, 20, 30]) {
            assert!(task.was_woken());
            assert_eq!(poll_as(call, task), Poll::Ready(Ok(result)));
        }
    }
}

#[test]
fn a_gathering_call_that_is_dropped_leaves_the_others_to_send() {
    let store = ManualStore::default();
    let batcher = store.batcher();
    let mut callers = gathering(&batcher);
    drop(callers.remove(2));
    assert!(!callers[1].1.was_woken(), "the first one still gathers");
    drop(callers.remove(0));
    let (call, task) = &mut callers[0];
    assert!(task.was_woken());
    assert!(poll_as(call, task).is_pending());
    assert_eq!(store.batches(), [[2]]);
}

#[test]
fn the_call_that_completes_its_batch_wakes_the_other_members_but_not_itself() {
    let store = ManualStore::default();
    let batcher = store.batcher();
    let mut first = waiting(&batcher, [1]);
    let tasks: [Arc<Task>; 2] = Default::default();
    let mut calls = [2, 3].map(|entry| new_call(&batcher, entry));
    for (call, task) in calls.iter_mut().zip(&tasks) {
        assert!(poll_as(call, task).is_pending());
    }
    store.complete_one();
    assert_eq!(poll(&mut first[0]), Poll::Ready(Ok(10)));
    assert_eq!(store.batches(), [vec![1], vec![2, 3]]);
    store.complete_one();
    assert!(tasks.iter().all(|task| task.was_woken()), "any of them may complete the batch");
    assert_eq!(poll_as(&mut calls[0], &tasks[0]), Poll::Ready(Ok(20)));
    // The store has woken the second call already.
    assert_eq!(tasks.each_ref().map(|task| task.was_woken()), [false, false]);
    assert_eq!(poll_as(&mut calls[1], &tasks[1]), Poll::Ready(Ok(30)));

    // A batch that completes while it is sent: an executor would poll the call again for nothing.
    store.complete_one();
    let mut call = new_call(&batcher, 4);
    assert_eq!(poll_as(&mut call, &tasks[0]), Poll::Ready(Ok(40)));
    assert!(!tasks[0].was_woken());
}

#[test]
fn nothing_is_sent_before_a_call_is_polled() {
    let store = ManualStore::default();
    let batcher = store.batcher();
    drop(new_call(&batcher, 1));
    let _unpolled = new_call(&batcher, 2);
    assert!(store.batches().is_empty());
}

#[test]
fn calls_during_a_batch_form_the_next_one_in_order_each_with_its_own_result() {
    let store = ManualStore::default();
    let mut calls = waiting(&store.batcher(), [1, 2, 3, 4]);
    assert_eq!(store.batches(), [[1]]);
    store.complete_one();
    assert_eq!(poll(&mut calls[0]), Poll::Ready(Ok(10)));
    // The call that returned has sent the next batch.
    assert_eq!(store.batches(), [vec![1], vec![2, 3, 4]]);
    store.complete_one();
    for (call, result) in calls[1..].iter_mut().zip([20, 30, 40]) {
        assert_eq!(poll(call), Poll::Ready(Ok(result)));
    }
}

#[test]
fn a_batch_has_no_more_entries_than_it_may() {
    let store = ManualStore::default();
    let more = u32::try_from(MAX_BATCH).expect("it is small") + 2;
    let mut calls = waiting(&store.batcher(), 0..more);
    store.complete_one();
    assert!(poll(&mut calls[0]).is_ready());
    store.complete_one();
    assert!(poll(&mut calls[1]).is_ready());
    let sizes: Vec<usize> = store.batches().iter().map(Vec::len).collect();
    assert_eq!(sizes, [1, MAX_BATCH, 1]);
}

#[test]
fn a_batch_has_no_more_bytes_than_it_may_but_at_least_one_entry() {
    let store = ManualStore::default();
    let sender = store.clone();
    let weigh = |entry: &u32| MAX_BATCH_BYTES / 10 * *entry as usize;
    let batcher = Batcher::new(move |entries| sender.take(entries), weigh);
    let mut calls = waiting(&batcher, [1, 5, 5, 1, 99, 1]);
    (0..6).for_each(|_| store.complete_one());
    for call in &mut calls {
        assert!(poll(call).is_ready());
    }
    assert_eq!(store.batches(), [vec![1], vec![5, 5], vec![1], vec![99], vec![1]]);
}

#[test]
fn a_call_that_is_dropped_while_it_is_queued_is_not_sent() {
    let store = ManualStore::default();
    let mut calls = waiting(&store.batcher(), [1, 2, 3]);
    drop(calls.remove(1));
    store.complete_one();
    assert!(poll(&mut calls[0]).is_ready());
    assert_eq!(store.batches(), [[1], [3]]);
}

#[test]
fn another_member_drives_the_batch_if_the_driving_call_is_dropped() {
    for woken in [false, true] {
        let store = ManualStore::default();
        let mut calls = waiting(&store.batcher(), [1, 2]);
        let task = Arc::new(Task::default());
        let mut other = new_call(&calls[0].batcher, 3);
        assert!(poll_as(&mut other, &task).is_pending());
        store.complete_one();
        assert!(poll(&mut calls[0]).is_ready());
        assert!(task.was_woken());
        assert!(poll_as(&mut other, &task).is_pending());
        if woken {
            store.complete_one();
        }
        drop(calls.pop());
        if !woken {
            store.complete_one();
        }
        assert!(task.was_woken(), "woken {woken}");
        assert_eq!(poll_as(&mut other, &task), Poll::Ready(Ok(30)));
        assert_eq!(store.batches(), [vec![1], vec![2, 3]], "the dropped call is sent nevertheless");
    }
}

#[test]
fn a_batch_that_never_completes_blocks_nothing_once_its_members_are_dropped() {
    let store = ManualStore::default();
    let batcher = store.batcher();
    let members = waiting(&batcher, [1]);
    let mut queued: Vec<Caller> =
        [2, 3].map(|entry| (new_call(&batcher, entry), Arc::default())).into();
    for (call, task) in &mut queued {
        assert!(poll_as(call, task).is_pending());
    }
    drop(members);
    assert_eq!(store.state().abandoned, 1);
    for (call, task) in &mut queued {
        assert!(task.was_woken());
        assert!(poll_as(call, task).is_pending());
    }
    assert_eq!(store.batches(), [vec![1], vec![2, 3]]);
    store.complete_one();
    for ((call, task), result) in queued.iter_mut().zip([20, 30]) {
        assert_eq!(poll_as(call, task), Poll::Ready(Ok(result)));
    }
}

#[test]
fn a_result_that_is_not_taken_does_not_block_the_next_batch() {
    let store = ManualStore::default();
    let batcher = store.batcher();
    let mut calls = waiting(&batcher, [1, 2, 3]);
    store.complete_one();
    assert!(poll(&mut calls[0]).is_ready());
    let queued = waiting(&batcher, [4]);
    store.complete_one();
    // It takes its own result and sends the next batch. The third call's result stays.
    assert!(poll(&mut calls[1]).is_ready());
    assert_eq!(store.batches(), [vec![1], vec![2, 3], vec![4]]);
    drop(queued);
    assert_eq!(store.state().abandoned, 1);
    assert_eq!(poll(&mut calls[2]), Poll::Ready(Ok(30)));
}

#[test]
fn a_call_that_is_no_longer_polled_blocks_no_other() {
    let store = ManualStore::default();
    let batcher = store.batcher();
    let _sleepy = waiting(&batcher, [1, 2]);
    let task = Arc::new(Task::default());
    let mut call = new_call(&batcher, 3);
    assert!(poll_as(&mut call, &task).is_pending());
    store.complete_one();
    assert!(task.was_woken());
    assert!(poll_as(&mut call, &task).is_pending());
    assert_eq!(store.batches(), [vec![1], vec![2, 3]]);
    store.complete_one();
    assert!(task.was_woken());
    assert_eq!(poll_as(&mut call, &task), Poll::Ready(Ok(30)));
}

/// The calls are made while the store is being called: on another thread, or in its own code.
#[test]
fn a_call_that_returns_its_result_wakes_the_calls_that_were_queued_meanwhile() {
    let callers: Arc<Mutex<VecDeque<Caller>>> = Arc::default();
    let next = Arc::clone(&callers);
    let send = move |entries: Vec<u32>| -> Batch<u32, StoreError> {
        let mut callers = next.lock().expect("no test panics with the lock");
        if let Some((call, task)) = callers.get_mut(entries[0] as usize) {
            assert!(poll_as(call, task).is_pending());
        }
        Box::pin(async move { Ok(entries.into_iter().map(Ok).collect()) })
    };
    let batcher: Arc<Numbers> = Batcher::new(send, |_| 1);
    for entry in [1, 2] {
        let caller = (new_call(&batcher, entry), Arc::default());
        callers.lock().expect("no test panics with the lock").push_back(caller);
    }
    assert_eq!(poll(&mut new_call(&batcher, 0)), Poll::Ready(Ok(0)));
    let mut callers = mem::take(&mut *callers.lock().expect("no test panics with the lock"));
    for (call, task) in callers.iter_mut().rev() {
        assert!(task.was_woken());
        assert!(poll_as(call, task).is_ready());
    }
}

/// The members are dropped by the store's own code, or on another thread, while calls are made.
#[test]
fn a_batch_whose_members_are_dropped_while_it_is_polled_is_dropped() {
    let store = ManualStore::default();
    let leaving: Arc<Mutex<Vec<TestCall>>> = Arc::default();
    let coming: Arc<Mutex<Vec<Caller>>> = Arc::default();
    let (sender, left, came) = (store.clone(), Arc::clone(&leaving), Arc::clone(&coming));
    let send = move |entries: Vec<u32>| {
        if entries == [2] {
            for (call, task) in &mut *came.lock().expect("no test panics with the lock") {
                assert!(poll_as(call, task).is_pending());
            }
            left.lock().expect("no test panics with the lock").clear();
        }
        sender.take(entries)
    };
    let batcher: Arc<Numbers> = Batcher::new(send, |_| 1);
    let mut calls = waiting(&batcher, [1, 2]);
    leaving.lock().expect("no test panics with the lock").extend(calls.pop());
    coming
        .lock()
        .expect("no test panics with the lock")
        .push((new_call(&batcher, 3), Arc::default()));
    store.complete_one();
    assert!(poll(&mut calls[0]).is_ready());
    assert_eq!((store.batches().len(), store.state().abandoned), (2, 1));
    assert!(matches!(batcher.lock().in_flight, InFlight::None));
    let (mut call, task) = coming.lock().expect("no test panics with the lock").remove(0);
    assert!(task.was_woken());
    assert!(poll_as(&mut call, &task).is_pending());
    store.complete_one();
    assert_eq!(poll_as(&mut call, &task), Poll::Ready(Ok(30)));
}

#[test]
fn a_call_that_moves_to_another_task_wakes_that_one() {
    let store = ManualStore::default();
    let batcher = store.batcher();
    let (before, after) = (Arc::new(Task::default()), Arc::new(Task::default()));
    let mut call = new_call(&batcher, 1);
    assert!(poll_as(&mut call, &before).is_pending());
    assert!(poll_as(&mut call, &after).is_pending());
    store.complete_one();
    assert_eq!((before.was_woken(), after.was_woken()), (false, true));
}

#[test]
fn a_waker_that_is_replaced_is_dropped_without_the_lock() {
    struct Looks(Arc<Numbers>, Arc<Mutex<Vec<bool>>>);
    impl Wake for Looks {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Looks {
        fn drop(&mut self) {
            let free = self.0.state.try_lock().is_ok();
            self.1.lock().expect("no test panics with the lock").push(free);
        }
    }
    let batcher = ManualStore::default().batcher();
    let free: Arc<Mutex<Vec<bool>>> = Arc::default();
    let mut call = new_call(&batcher, 1);
    let looks = Waker::from(Arc::new(Looks(Arc::clone(&batcher), Arc::clone(&free))));
    assert!(call.as_mut().poll(&mut Context::from_waker(&looks)).is_pending());
    drop(looks);
    assert!(poll(&mut call).is_pending());
    assert_eq!(*free.lock().expect("no test panics with the lock"), [true]);
}

#[test]
fn when_no_member_waits_the_batch_is_dropped_and_the_next_call_is_sent() {
    let store = ManualStore::default();
    let batcher = store.batcher();
    drop(waiting(&batcher, [1, 2]));
    assert_eq!(store.state().abandoned, 1);
    let _next = waiting(&batcher, [3]);
    assert_eq!(store.batches(), [[1], [3]]);
    assert_eq!(
        Arc::strong_count(&batcher),
        2,
        "the batcher and its call: the store holds no handle"
    );
}

#[test]
fn a_batcher_without_calls_is_freed() {
    let store = ManualStore::default();
    let batcher = store.batcher();
    drop(waiting(&batcher, [1, 2]));
    let weak = Arc::downgrade(&batcher);
    drop(batcher);
    store.state().waker = None;
    assert!(weak.upgrade().is_none());
}

#[test]
fn an_error_of_a_batch_is_returned_to_all_members() {
    let error = StoreError::Unavailable { reason: "no".to_owned() };
    let (open, result) = (ManualStore::default(), error.clone());
    let gate = open.clone();
    let batcher: Arc<Numbers> = Batcher::new(
        move |entries| {
            let (gate, result) = (gate.take(entries), result.clone());
            Box::pin(async move { gate.await.and(Err(result)) })
        },
        |_| 1,
    );
    let mut calls = waiting(&batcher, [1, 2, 3]);
    (0..2).for_each(|_| open.complete_one());
    for call in &mut calls {
        assert_eq!(poll(call), Poll::Ready(Err(error.clone())));
    }
}

/// It is not known which result belongs to which entry.
#[test]
fn with_too_few_or_too_many_results_the_outcome_is_unknown_for_all_members() {
    for given in [0, 1, 3] {
        let store = ManualStore::default();
        let gate = store.clone();
        let send = move |entries: Vec<u32>| -> Batch<u32, StoreError> {
            let wrong = entries.len() == 2;
            let batch = gate.take(entries);
            Box::pin(async move {
                let mut results = batch.await?;
                if wrong {
                    results.resize(given, Ok(0));
                }
                Ok(results)
            })
        };
        let batcher: Arc<Numbers> = Batcher::new(send, |_| 1);
        let mut calls = waiting(&batcher, [1, 2, 3]);
        (0..2).for_each(|_| store.complete_one());
        assert_eq!(poll(&mut calls[0]), Poll::Ready(Ok(10)));
        for call in &mut calls[1..] {
            let reason = format!("the store returned {given} results for 2 entries");
            assert_eq!(poll(call), Poll::Ready(Err(StoreError::Unknown { reason })));
        }
    }
}

#[test]
fn if_the_store_panics_only_the_members_fail() {
    struct PanicsWhenDropped;
    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    let send = |entries: Vec<u32>| -> Batch<u32, StoreError> {
        assert_ne!(entries, [1], "sent");
        Box::pin(async move {
            assert_ne!(entries, [2], "polled");
            let _bomb = (entries == [3]).then(|| PanicsWhenDropped);
            Ok(entries.into_iter().map(Ok).collect())
        })
    };
    let batcher: Arc<Numbers> = Batcher::new(send, |_| 1);
    for entry in [1, 2, 3] {
        let result = poll(&mut new_call(&batcher, entry));
        let Poll::Ready(Err(StoreError::Unknown { reason })) = result else {
            panic!("{result:?}");
        };
        assert!(reason.starts_with("the store panicked: "), "{reason}");
    }
    assert_eq!(poll(&mut new_call(&batcher, 4)), Poll::Ready(Ok(4)));
}

#[test]
fn a_wake_up_while_the_batch_is_polled_is_not_lost() {
    let send = |entries: Vec<u32>| -> Batch<u32, StoreError> {
        let mut polls = 0;
        Box::pin(async move {
            poll_fn(|cx| {
                polls += 1;
                cx.waker().wake_by_ref();
                if polls < 5 { Poll::Pending } else { Poll::Ready(()) }
            })
            .await;
            Ok(entries.into_iter().map(Ok).collect())
        })
    };
    let batcher: Arc<Numbers> = Batcher::new(send, |_| 1);
    let task = Arc::new(Task::default());
    let mut call = new_call(&batcher, 1);
    let mut result = poll_as(&mut call, &task);
    while result.is_pending() {
        assert!(task.was_woken());
        result = poll_as(&mut call, &task);
    }
    assert_eq!(result, Poll::Ready(Ok(1)));
}

/// Batches complete on another thread, so that wake-ups and polls race.
#[test]
fn threads_get_their_own_results_and_their_calls_are_sent_in_order() {
    let store = ManualStore::default();
    let batcher = store.batcher();
    let done = Arc::new(AtomicBool::new(false));
    let completer = thread::spawn({
        let (store, done) = (store.clone(), Arc::clone(&done));
        move || {
            while !done.load(Ordering::Acquire) {
                store.complete_one();
                thread::yield_now();
            }
        }
    });
    let callers: Vec<_> = (0..4)
        .map(|caller| {
            let batcher = Arc::clone(&batcher);
            thread::spawn(move || {
                for i in 0..500 {
                    let entry = caller * 1000 + i;
                    assert_eq!(block_on(batcher.call(entry)), Ok(entry * 10));
                }
            })
        })
        .collect();
    callers.into_iter().for_each(|caller| caller.join().expect("every result was right"));
    done.store(true, Ordering::Release);
    completer.join().expect("it does not panic");
    let sent: Vec<u32> = store.batches().concat();
    for caller in 0..4 {
        let own: Vec<u32> = sent.iter().copied().filter(|entry| entry / 1000 == caller).collect();
        assert!(own.is_sorted() && own.len() == 500);
    }
}

fn check(batcher: &Numbers, seed: u64) {
    let state = batcher.lock();
    let waits = |number: &&u64| matches!(state.calls.get(number), Some(CallState::Waiting(_)));
    assert_eq!(state.awaited, state.members.iter().filter(waits).count(), "seed {seed}");
    let parked = matches!(state.in_flight, InFlight::Parked(_));
    assert_eq!((state.awaited > 0, !state.members.is_empty()), (parked, parked), "seed {seed}");
}

/// Random polls, drops and completions. Each call that is not dropped gets its result if it is
/// polled whenever it is woken, and only then. Each entry is sent once, in the order of first polls.
#[test]
fn whatever_is_dropped_the_other_calls_complete() {
    for seed in 1..=300_u64 {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut below = move |n: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            usize::try_from(random % n as u64).expect("it is below n")
        };
        let store = ManualStore::default();
        let batcher = store.batcher();
        let mut calls: Vec<(u32, TestCall, Arc<Task>)> = Vec::new();
        let polled = |calls: &mut Vec<(u32, TestCall, Arc<Task>)>, at: usize, gathers: bool| {
            let (entry, call, task) = &mut calls[at];
            task.was_woken();
            let poll = if gathers { gather_as } else { poll_as };
            if let Poll::Ready(result) = poll(call, task) {
                assert_eq!(result, Ok(*entry * 10), "seed {seed}");
                drop(calls.swap_remove(at));
            }
        };
        for entry in 0..60 {
            match below(4) {
                way @ (0 | 1) => {
                    calls.push((entry, new_call(&batcher, entry), Arc::default()));
                    let last = calls.len() - 1;
                    polled(&mut calls, last, way == 1);
                }
                2 if !calls.is_empty() => drop(calls.swap_remove(below(calls.len()))),
                2 => {}
                _ => store.complete_one(),
            }
            check(&batcher, seed);
            let woken = calls.iter().position(|(.., task)| task.0.load(Ordering::Relaxed));
            if let (Some(at), 0) = (woken, below(2)) {
                polled(&mut calls, at, false);
            }
        }
        // Only calls that were woken are polled.
        while !calls.is_empty() {
            store.complete_one();
            let woken: Vec<usize> =
                (0..calls.len()).rev().filter(|&at| calls[at].2.was_woken()).collect();
            assert!(!woken.is_empty(), "seed {seed}: all calls wait, and none was woken");
            woken.into_iter().for_each(|at| polled(&mut calls, at, false));
        }
        let sent = store.batches().concat();
        assert!(sent.is_sorted(), "seed {seed}: {sent:?}");
    }
}
