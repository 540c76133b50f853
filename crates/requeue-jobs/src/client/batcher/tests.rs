//! Against a store that records what it is sent, and answers when it is told to.

use super::*;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

type Numbers = Batcher<u32, u32, StoreError>;
type Asked = Pin<Box<Call<u32, u32, StoreError>>>;
type Caller = (Asked, Arc<Task>);

/// A store that answers ten times each entry.
#[derive(Clone, Default)]
struct Desk(Arc<Mutex<DeskState>>);

#[derive(Default)]
struct DeskState {
    /// What was sent.
    batches: Vec<Vec<u32>>,
    /// So many batches may be answered.
    open: usize,
    waker: Option<Waker>,
    /// How many batches were dropped before they were answered.
    abandoned: usize,
}

impl Desk {
    fn state(&self) -> MutexGuard<'_, DeskState> {
        self.0.lock().expect("no test panics under it")
    }

    fn batcher(&self) -> Arc<Numbers> {
        let desk = self.clone();
        Batcher::new(move |entries| desk.take(entries), |_| 1)
    }

    fn take(&self, entries: Vec<u32>) -> Batch<u32, StoreError> {
        let mut state = self.state();
        state.batches.push(entries.clone());
        let visit = Visit { desk: self.clone(), number: state.batches.len(), answered: false };
        Box::pin(visit.answer(entries))
    }

    /// Lets one more batch be answered, and says so.
    fn answer(&self) {
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

struct Visit {
    desk: Desk,
    number: usize,
    answered: bool,
}

impl Visit {
    async fn answer(
        mut self,
        entries: Vec<u32>,
    ) -> Result<BatchResults<u32, StoreError>, StoreError> {
        poll_fn(|cx| {
            let mut state = self.desk.state();
            if state.open >= self.number {
                return Poll::Ready(());
            }
            state.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
        self.answered = true;
        Ok(entries.into_iter().map(|entry| Ok(entry * 10)).collect())
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if !self.answered {
            let mut state = self.desk.state();
            state.abandoned += 1;
            // The next that is sent has this one's place in the line of answers.
            state.open += 1;
        }
    }
}

/// A task that knows whether it was told to look.
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

fn poll(call: &mut Asked) -> Poll<Result<u32, StoreError>> {
    call.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn poll_as(call: &mut Asked, task: &Arc<Task>) -> Poll<Result<u32, StoreError>> {
    call.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(task))))
}

fn asked(batcher: &Arc<Numbers>, entry: u32) -> Asked {
    Box::pin(batcher.call(entry))
}

/// Calls that were polled once, in this order.
fn waiting(batcher: &Arc<Numbers>, entries: impl IntoIterator<Item = u32>) -> Vec<Asked> {
    let mut calls: Vec<Asked> = entries.into_iter().map(|entry| asked(batcher, entry)).collect();
    for call in &mut calls {
        assert!(poll(call).is_pending());
    }
    calls
}

#[test]
fn a_call_that_is_alone_is_sent_at_once() {
    let desk = Desk::default();
    let mut calls = waiting(&desk.batcher(), [1]);
    assert_eq!(desk.batches(), [[1]]);
    desk.answer();
    assert_eq!(poll(&mut calls[0]), Poll::Ready(Ok(10)));
}

#[test]
fn nothing_is_sent_before_a_call_is_polled() {
    let desk = Desk::default();
    let batcher = desk.batcher();
    drop(asked(&batcher, 1));
    let _unpolled = asked(&batcher, 2);
    assert!(desk.batches().is_empty());
}

#[test]
fn what_is_called_meanwhile_goes_together_in_order_each_with_its_own_answer() {
    let desk = Desk::default();
    let mut calls = waiting(&desk.batcher(), [1, 2, 3, 4]);
    assert_eq!(desk.batches(), [[1]]);
    desk.answer();
    assert_eq!(poll(&mut calls[0]), Poll::Ready(Ok(10)));
    // Whoever leaves has sent the next.
    assert_eq!(desk.batches(), [vec![1], vec![2, 3, 4]]);
    desk.answer();
    for (call, answer) in calls[1..].iter_mut().zip([20, 30, 40]) {
        assert_eq!(poll(call), Poll::Ready(Ok(answer)));
    }
}

#[test]
fn a_batch_has_no_more_entries_than_it_may() {
    let desk = Desk::default();
    let more = u32::try_from(MAX_BATCH).expect("it is small") + 2;
    let mut calls = waiting(&desk.batcher(), 0..more);
    desk.answer();
    assert!(poll(&mut calls[0]).is_ready());
    desk.answer();
    assert!(poll(&mut calls[1]).is_ready());
    let sizes: Vec<usize> = desk.batches().iter().map(Vec::len).collect();
    assert_eq!(sizes, [1, MAX_BATCH, 1]);
}

#[test]
fn a_batch_has_no_more_bytes_than_it_may_but_at_least_one_entry() {
    let desk = Desk::default();
    let sender = desk.clone();
    let weigh = |entry: &u32| MAX_BATCH_BYTES / 10 * *entry as usize;
    let batcher = Batcher::new(move |entries| sender.take(entries), weigh);
    let mut calls = waiting(&batcher, [1, 5, 5, 1, 99, 1]);
    (0..6).for_each(|_| desk.answer());
    for call in &mut calls {
        assert!(poll(call).is_ready());
    }
    assert_eq!(desk.batches(), [vec![1], vec![5, 5], vec![1], vec![99], vec![1]]);
}

#[test]
fn a_call_that_is_dropped_while_it_is_queued_is_not_sent() {
    let desk = Desk::default();
    let mut calls = waiting(&desk.batcher(), [1, 2, 3]);
    drop(calls.remove(1));
    desk.answer();
    assert!(poll(&mut calls[0]).is_ready());
    assert_eq!(desk.batches(), [[1], [3]]);
}

#[test]
fn whoever_is_left_takes_over_from_a_leader_that_is_dropped() {
    for told in [false, true] {
        let desk = Desk::default();
        let mut calls = waiting(&desk.batcher(), [1, 2]);
        let task = Arc::new(Task::default());
        let mut other = asked(&calls[0].batcher, 3);
        assert!(poll_as(&mut other, &task).is_pending());
        desk.answer();
        assert!(poll(&mut calls[0]).is_ready());
        assert!(task.was_woken());
        assert!(poll_as(&mut other, &task).is_pending());
        if told {
            desk.answer();
        }
        drop(calls.pop());
        if !told {
            desk.answer();
        }
        assert!(task.was_woken(), "told {told}");
        assert_eq!(poll_as(&mut other, &task), Poll::Ready(Ok(30)));
        assert_eq!(desk.batches(), [vec![1], vec![2, 3]], "the dropped one is seen to its end");
    }
}

#[test]
fn a_flight_that_never_lands_holds_nobody_up_once_those_aboard_have_left() {
    let desk = Desk::default();
    let batcher = desk.batcher();
    let members = waiting(&batcher, [1]);
    let mut queued: Vec<Caller> =
        [2, 3].map(|entry| (asked(&batcher, entry), Arc::default())).into();
    for (call, task) in &mut queued {
        assert!(poll_as(call, task).is_pending());
    }
    drop(members);
    assert_eq!(desk.state().abandoned, 1);
    for (call, task) in &mut queued {
        assert!(task.was_woken());
        assert!(poll_as(call, task).is_pending());
    }
    assert_eq!(desk.batches(), [vec![1], vec![2, 3]]);
    desk.answer();
    for ((call, task), answer) in queued.iter_mut().zip([20, 30]) {
        assert_eq!(poll_as(call, task), Poll::Ready(Ok(answer)));
    }
}

#[test]
fn an_answer_that_is_not_fetched_keeps_no_other_flight() {
    let desk = Desk::default();
    let batcher = desk.batcher();
    let mut calls = waiting(&batcher, [1, 2, 3]);
    desk.answer();
    assert!(poll(&mut calls[0]).is_ready());
    let queued = waiting(&batcher, [4]);
    desk.answer();
    // Fetches its own, and sends the next: the third call's is left where it is.
    assert!(poll(&mut calls[1]).is_ready());
    assert_eq!(desk.batches(), [vec![1], vec![2, 3], vec![4]]);
    drop(queued);
    assert_eq!(desk.state().abandoned, 1);
    assert_eq!(poll(&mut calls[2]), Poll::Ready(Ok(30)));
}

#[test]
fn a_future_that_nobody_polls_any_more_holds_nobody_up() {
    let desk = Desk::default();
    let batcher = desk.batcher();
    let _sleepy = waiting(&batcher, [1, 2]);
    let task = Arc::new(Task::default());
    let mut call = asked(&batcher, 3);
    assert!(poll_as(&mut call, &task).is_pending());
    desk.answer();
    assert!(task.was_woken());
    assert!(poll_as(&mut call, &task).is_pending());
    assert_eq!(desk.batches(), [vec![1], vec![2, 3]]);
    desk.answer();
    assert!(task.was_woken());
    assert_eq!(poll_as(&mut call, &task), Poll::Ready(Ok(30)));
}

/// They called while the store was at it: on another thread, or in its own code.
#[test]
fn who_leaves_with_its_answer_tells_those_for_whom_it_did_nothing() {
    let callers: Arc<Mutex<VecDeque<Caller>>> = Arc::default();
    let next = Arc::clone(&callers);
    let send = move |entries: Vec<u32>| -> Batch<u32, StoreError> {
        let mut callers = next.lock().expect("nobody panics under it");
        if let Some((call, task)) = callers.get_mut(entries[0] as usize) {
            assert!(poll_as(call, task).is_pending());
        }
        Box::pin(async move { Ok(entries.into_iter().map(Ok).collect()) })
    };
    let batcher: Arc<Numbers> = Batcher::new(send, |_| 1);
    for entry in [1, 2] {
        let caller = (asked(&batcher, entry), Arc::default());
        callers.lock().expect("nobody panics under it").push_back(caller);
    }
    assert_eq!(poll(&mut asked(&batcher, 0)), Poll::Ready(Ok(0)));
    let mut callers = mem::take(&mut *callers.lock().expect("nobody panics under it"));
    for (call, task) in callers.iter_mut().rev() {
        assert!(task.was_woken());
        assert!(poll_as(call, task).is_ready());
    }
}

/// By the store's own code, or on another thread; and somebody calls there, too.
#[test]
fn a_flight_that_everybody_leaves_while_it_is_polled_is_dropped() {
    let desk = Desk::default();
    let leaving: Arc<Mutex<Vec<Asked>>> = Arc::default();
    let coming: Arc<Mutex<Vec<Caller>>> = Arc::default();
    let (sender, left, came) = (desk.clone(), Arc::clone(&leaving), Arc::clone(&coming));
    let send = move |entries: Vec<u32>| {
        if entries == [2] {
            for (call, task) in &mut *came.lock().expect("nobody panics under it") {
                assert!(poll_as(call, task).is_pending());
            }
            left.lock().expect("nobody panics under it").clear();
        }
        sender.take(entries)
    };
    let batcher: Arc<Numbers> = Batcher::new(send, |_| 1);
    let mut calls = waiting(&batcher, [1, 2]);
    leaving.lock().expect("nobody panics under it").extend(calls.pop());
    coming.lock().expect("nobody panics under it").push((asked(&batcher, 3), Arc::default()));
    desk.answer();
    assert!(poll(&mut calls[0]).is_ready());
    assert_eq!((desk.batches().len(), desk.state().abandoned), (2, 1));
    assert!(matches!(batcher.lock().in_flight, InFlight::None));
    let (mut call, task) = coming.lock().expect("nobody panics under it").remove(0);
    assert!(task.was_woken());
    assert!(poll_as(&mut call, &task).is_pending());
    desk.answer();
    assert_eq!(poll_as(&mut call, &task), Poll::Ready(Ok(30)));
}

#[test]
fn a_call_that_moves_to_another_task_wakes_that_one() {
    let desk = Desk::default();
    let batcher = desk.batcher();
    let (before, after) = (Arc::new(Task::default()), Arc::new(Task::default()));
    let mut call = asked(&batcher, 1);
    assert!(poll_as(&mut call, &before).is_pending());
    assert!(poll_as(&mut call, &after).is_pending());
    desk.answer();
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
            self.1.lock().expect("nobody panics under it").push(free);
        }
    }
    let batcher = Desk::default().batcher();
    let free: Arc<Mutex<Vec<bool>>> = Arc::default();
    let mut call = asked(&batcher, 1);
    let looks = Waker::from(Arc::new(Looks(Arc::clone(&batcher), Arc::clone(&free))));
    assert!(call.as_mut().poll(&mut Context::from_waker(&looks)).is_pending());
    drop(looks);
    assert!(poll(&mut call).is_pending());
    assert_eq!(*free.lock().expect("nobody panics under it"), [true]);
}

#[test]
fn when_nobody_waits_any_more_the_flight_is_dropped_and_the_next_call_is_sent() {
    let desk = Desk::default();
    let batcher = desk.batcher();
    drop(waiting(&batcher, [1, 2]));
    assert_eq!(desk.state().abandoned, 1);
    let _next = waiting(&batcher, [3]);
    assert_eq!(desk.batches(), [[1], [3]]);
    assert_eq!(Arc::strong_count(&batcher), 2, "the batcher and its call: the store keeps neither");
}

#[test]
fn a_lane_that_everybody_left_is_freed() {
    let desk = Desk::default();
    let batcher = desk.batcher();
    drop(waiting(&batcher, [1, 2]));
    let weak = Arc::downgrade(&batcher);
    drop(batcher);
    desk.state().waker = None;
    assert!(weak.upgrade().is_none());
}

#[test]
fn an_error_of_a_batch_is_told_to_all_aboard() {
    let error = StoreError::Unavailable { reason: "no".to_owned() };
    let (open, answer) = (Desk::default(), error.clone());
    let gate = open.clone();
    let batcher: Arc<Numbers> = Batcher::new(
        move |entries| {
            let (gate, answer) = (gate.take(entries), answer.clone());
            Box::pin(async move { gate.await.and(Err(answer)) })
        },
        |_| 1,
    );
    let mut calls = waiting(&batcher, [1, 2, 3]);
    (0..2).for_each(|_| open.answer());
    for call in &mut calls {
        assert_eq!(poll(call), Poll::Ready(Err(error.clone())));
    }
}

/// They may be anybody's.
#[test]
fn answers_that_are_too_few_or_too_many_are_unknown_to_all() {
    for given in [0, 1, 3] {
        let desk = Desk::default();
        let gate = desk.clone();
        let send = move |entries: Vec<u32>| -> Batch<u32, StoreError> {
            let wrong = entries.len() == 2;
            let batch = gate.take(entries);
            Box::pin(async move {
                let mut answers = batch.await?;
                if wrong {
                    answers.resize(given, Ok(0));
                }
                Ok(answers)
            })
        };
        let batcher: Arc<Numbers> = Batcher::new(send, |_| 1);
        let mut calls = waiting(&batcher, [1, 2, 3]);
        (0..2).for_each(|_| desk.answer());
        assert_eq!(poll(&mut calls[0]), Poll::Ready(Ok(10)));
        for call in &mut calls[1..] {
            let reason = format!("the store gave {given} answers to 2 entries");
            assert_eq!(poll(call), Poll::Ready(Err(StoreError::Unknown { reason })));
        }
    }
}

#[test]
fn a_store_that_panics_costs_those_aboard_their_answer_and_nobody_else() {
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
        let answer = poll(&mut asked(&batcher, entry));
        let Poll::Ready(Err(StoreError::Unknown { reason })) = answer else {
            panic!("{answer:?}");
        };
        assert!(reason.starts_with("the store panicked: "), "{reason}");
    }
    assert_eq!(poll(&mut asked(&batcher, 4)), Poll::Ready(Ok(4)));
}

#[test]
fn news_that_comes_while_the_flight_is_polled_is_not_lost() {
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
    let mut call = asked(&batcher, 1);
    let mut answer = poll_as(&mut call, &task);
    while answer.is_pending() {
        assert!(task.was_woken());
        answer = poll_as(&mut call, &task);
    }
    assert_eq!(answer, Poll::Ready(Ok(1)));
}

fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => thread::park(),
        }
    }
}

/// Answers from another thread, so that news and polls cross.
#[test]
fn threads_get_their_own_answers_and_their_calls_in_order() {
    let desk = Desk::default();
    let batcher = desk.batcher();
    let done = Arc::new(AtomicBool::new(false));
    let clerk = thread::spawn({
        let (desk, done) = (desk.clone(), Arc::clone(&done));
        move || {
            while !done.load(Ordering::Acquire) {
                desk.answer();
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
    callers.into_iter().for_each(|caller| caller.join().expect("every answer was right"));
    done.store(true, Ordering::Release);
    clerk.join().expect("it only answers");
    let sent: Vec<u32> = desk.batches().concat();
    for caller in 0..4 {
        let own: Vec<u32> = sent.iter().copied().filter(|entry| entry / 1000 == caller).collect();
        assert!(own.is_sorted() && own.len() == 500);
    }
}

fn check(batcher: &Numbers, seed: u64) {
    let state = batcher.lock();
    let waits = |number: &&u64| matches!(state.calls.get(number), Some(Member::Waits(_)));
    assert_eq!(state.awaited, state.members.iter().filter(waits).count(), "seed {seed}");
    let parked = matches!(state.in_flight, InFlight::Parked(_));
    assert_eq!((state.awaited > 0, !state.members.is_empty()), (parked, parked), "seed {seed}");
}

/// Random polls, drops and answers. Whoever is not dropped gets its answer by polling when it
/// is told to, and only then; what is sent is sent once, in the order of first polls.
#[test]
fn whatever_is_dropped_the_others_are_answered() {
    for seed in 1..=300_u64 {
        let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut below = move |n: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            usize::try_from(random % n as u64).expect("it is below n")
        };
        let desk = Desk::default();
        let batcher = desk.batcher();
        let mut calls: Vec<(u32, Asked, Arc<Task>)> = Vec::new();
        let polled = |calls: &mut Vec<(u32, Asked, Arc<Task>)>, at: usize| {
            let (entry, call, task) = &mut calls[at];
            task.was_woken();
            if let Poll::Ready(answer) = poll_as(call, task) {
                assert_eq!(answer, Ok(*entry * 10), "seed {seed}");
                drop(calls.swap_remove(at));
            }
        };
        for entry in 0..60 {
            match below(4) {
                0 | 1 => {
                    calls.push((entry, asked(&batcher, entry), Arc::default()));
                    let last = calls.len() - 1;
                    polled(&mut calls, last);
                }
                2 if !calls.is_empty() => drop(calls.swap_remove(below(calls.len()))),
                2 => {}
                _ => desk.answer(),
            }
            check(&batcher, seed);
            let told = calls.iter().position(|(.., task)| task.0.load(Ordering::Relaxed));
            if let (Some(at), 0) = (told, below(2)) {
                polled(&mut calls, at);
            }
        }
        // Only those look who were told to.
        while !calls.is_empty() {
            desk.answer();
            let told: Vec<usize> =
                (0..calls.len()).rev().filter(|&at| calls[at].2.was_woken()).collect();
            assert!(!told.is_empty(), "seed {seed}: all wait, and nobody was told to look");
            told.into_iter().for_each(|at| polled(&mut calls, at));
        }
        let sent = desk.batches().concat();
        assert!(sent.is_sorted(), "seed {seed}: {sent:?}");
    }
}
