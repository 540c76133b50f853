//! The connection is cut at every message of every call: before the request reaches the server, and after the server has
//! responded. A call that fails with *unavailable* has changed nothing.

use crate::support::{
    LONG, SERVER, claim_of, connect, fresh, id, insist, is_whole, kind_named, put_all, put_of,
    try_put,
};
use requeue_jobs::{
    Body, Change, ChangeError, ChangeKind, ClaimedJob, Due, Fence, Generation, JobView, Kind,
    Missed, Priority, PutError, Query, Restore, Schedule, Settings, Settle, SettleError,
    Settlement, Store, StoreError, Tick, TickJob, Timestamp, Version,
};
use requeue_postgres::PostgresStore;
use requeue_testkit::{Direction, Proxy, block_on};

const NEXT: Timestamp = Timestamp::from_millis(1_900_000_000_000);

/// What a caller knows after a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    NotDone,
    Unknown,
}

impl Outcome {
    fn of(result: Result<(), StoreError>) -> Outcome {
        match result {
            Ok(()) => Outcome::Done,
            Err(StoreError::Unavailable { .. }) => Outcome::NotDone,
            Err(StoreError::Unknown { .. }) => Outcome::Unknown,
            Err(other) => panic!("{other}"),
        }
    }
}

/// The jobs of a kind that a call is made on: one waits, two are leased and held by the caller.
struct Setting<'a> {
    store: &'a PostgresStore,
    kind: Kind,
    leased: Vec<ClaimedJob>,
}

type Call = fn(&Setting<'_>) -> Result<(), StoreError>;

const CALLS: [(&str, Call); 9] = [
    ("put", |of| of.put(5, Due::After(LONG))),
    ("claim", |of| {
        let claimed = block_on(of.store.claim(claim_of(&of.kind, 1, LONG)))?;
        claimed.errors.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }),
    ("ack", |of| of.settle(Settlement::Ack)),
    ("retry", |of| of.settle(Settlement::Retry { delay: Some(LONG), error: "no".into() })),
    ("cancel", |of| of.change(ChangeKind::Cancel)),
    ("set", |of| {
        let mut settings = Settings::default();
        settings.max_attempts = 7;
        block_on(of.store.set(of.kind.clone(), settings))
    }),
    ("set schedule", |of| of.set_schedule("weekly")),
    ("tick", |of| {
        let next = Timestamp::from_millis(NEXT.as_millis() + 1);
        let (body, priority) = (Body::default(), Priority::default());
        let put = Some(TickJob { id: id("ticked"), content: body.into(), priority });
        let tick = Tick { kind: of.kind.clone(), id: id("daily"), expected: NEXT, next, put };
        block_on(of.store.tick(tick)).map(drop)
    }),
    ("restore", |of| {
        let (due, generation) = (Timestamp::from_millis(1_800_000_000_000), Generation(7));
        let job = JobView::new(
            of.kind.clone(),
            id("restored"),
            Version::new(Body::default(), due, generation),
        );
        let restore =
            Restore { kind: of.kind.clone(), generation, fence: Fence(7), jobs: vec![job] };
        block_on(of.store.restore(restore))?.remove(0).map(drop)
    }),
];

impl Setting<'_> {
    fn put(&self, priority: u8, due: Due) -> Result<(), StoreError> {
        let mut put = put_of(&self.kind, "new");
        (put.priority, put.due) = (Priority::new(priority).expect("a valid priority"), due);
        match try_put(self.store, put) {
            Ok(_) => Ok(()),
            Err(PutError::Store(error)) => Err(error),
            Err(other) => panic!("{other}"),
        }
    }

    fn settle(&self, action: Settlement) -> Result<(), StoreError> {
        let settle =
            |job: &ClaimedJob| Settle { receipt: job.receipt.clone(), action: action.clone() };
        for result in block_on(self.store.settle(self.leased.iter().map(settle).collect()))? {
            match result {
                Ok(_) => {}
                Err(SettleError::Store(error)) => return Err(error),
                Err(other) => panic!("{other}"),
            }
        }
        Ok(())
    }

    fn change(&self, action: ChangeKind) -> Result<(), StoreError> {
        let change = Change { kind: self.kind.clone(), id: id("waiting"), action };
        match block_on(self.store.change(vec![change]))?.remove(0) {
            Ok(_) => Ok(()),
            Err(ChangeError::Store(error)) => Err(error),
            Err(other) => panic!("{other}"),
        }
    }

    fn set_schedule(&self, name: &str) -> Result<(), StoreError> {
        let (when, time_zone) = ("0 6 * * *".into(), "Europe/Berlin".into());
        let (body, missed) = (Body::default(), Missed::One);
        let schedule =
            Schedule { id: id(name), when, time_zone, content: body.into(), missed, next: NEXT };
        block_on(self.store.set_schedule(self.kind.clone(), schedule, Default::default())).map(drop)
    }
}

/// Returns everything that is stored of a kind.
fn contents(store: &PostgresStore, kind: &Kind) -> String {
    let jobs = block_on(store.list(Query::new(kind.clone()))).expect("the server is up").jobs;
    let view = block_on(store.kind(kind.clone())).expect("the server is up");
    let settings = block_on(store.settings(kind.clone())).expect("the server is up");
    let schedules = block_on(store.schedules(kind.clone())).expect("the server is up");
    format!("{jobs:?} {view:?} {settings:?} {schedules:?}")
}

/// Creates a kind with jobs, without the proxy.
fn set_up(direct: &PostgresStore, kind: &Kind) -> Vec<ClaimedJob> {
    let leased = ["leased-1", "leased-2"].map(|name| put_of(kind, name));
    put_all(direct, leased.into());
    let claimed = block_on(direct.claim(claim_of(kind, 2, LONG))).expect("the server is up");
    let mut waiting = put_of(kind, "waiting");
    waiting.due = Due::After(LONG);
    put_all(direct, vec![waiting, put_of(kind, "ready")]);
    let setting = Setting { store: direct, kind: kind.clone(), leased: claimed.jobs };
    setting.set_schedule("daily").expect("the server is up");
    setting.leased
}

/// Makes a call that is cut at this message. Returns `None` if it has fewer messages.
fn cut(
    direct: &PostgresStore,
    (proxy, store): (&Proxy, &PostgresStore),
    kind: &Kind,
    (name, call): (&str, Call),
    (direction, message): (Direction, usize),
) -> Option<Outcome> {
    let leased = set_up(direct, kind);
    let before = contents(direct, kind);
    proxy.cut_at(direction, message);
    let setting = Setting { store, kind: kind.clone(), leased };
    let result = call(&setting);
    let outcome = Outcome::of(result.clone());
    let what = format!("{name}, {direction:?}, message {message}: {result:?}");
    if proxy.cancel_cut() {
        assert_eq!(outcome, Outcome::Done, "{what}");
        return None;
    }
    let after = contents(direct, kind);
    match outcome {
        Outcome::NotDone => assert_eq!(before, after, "{what}"),
        Outcome::Done => assert_ne!(before, after, "{what}"),
        Outcome::Unknown => {}
    }
    // The store connects again by itself.
    insist("the store works again", || try_put(store, put_of(kind, "after")));
    Some(outcome)
}

#[test]
fn a_call_that_is_cut_at_any_message_is_reported_as_not_done_only_if_it_changed_nothing() {
    let proxy = Proxy::to(SERVER.address().parse().expect("an address")).expect("a free port");
    let url = format!("postgres://requeue@{}/requeue", proxy.address());
    for call in CALLS {
        let (mut options, mut kinds) = (fresh(), 0);
        options.max_connections = 1;
        let direct = connect(&SERVER.url(), options.clone());
        let mut next = || {
            kinds += 1;
            kind_named(&format!("kind-{kinds}"))
        };
        // At first the statements of the call are not prepared.
        let mut store = connect(&url, options.clone());
        for (is_warm, direction) in
            [(false, Direction::ToServer), (true, Direction::ToServer), (true, Direction::ToClient)]
        {
            let mut outcomes = Vec::new();
            loop {
                if is_warm {
                    let kind = next();
                    let leased = set_up(&direct, &kind);
                    call.1(&Setting { store: &store, kind, leased }).expect("nothing is cut");
                } else {
                    store = connect(&url, options.clone());
                }
                let at = (direction, outcomes.len() + 1);
                match cut(&direct, (&proxy, &store), &next(), call, at) {
                    Some(outcome) => outcomes.push(outcome),
                    None => break,
                }
            }
            // One message makes it permanent. Only if this one is cut, the outcome is unknown.
            let unknown = outcomes.iter().filter(|outcome| **outcome == Outcome::Unknown).count();
            assert_eq!(unknown, 1, "{}, {direction:?}: {outcomes:?}", call.0);
        }
        is_whole(&direct);
    }
}
