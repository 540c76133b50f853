//! Random kinds, claims and deliveries: no count drifts, no limit is exceeded, and no kind waits for room
//! that there is.

use super::*;
use crate::target::{Delivery, DeliveryFuture, DeliveryOutcome, Target};
use requeue_testkit::{Random, check_seeds};

const MAX_IN_FLIGHT: usize = 12;
const MAX_BYTES: usize = 8 << 20;

struct Named(&'static str);

impl Target for Named {
    fn name(&self) -> String {
        self.0.to_owned()
    }

    fn deliver<'a>(&'a self, _: &'a Delivery) -> DeliveryFuture<'a> {
        Box::pin(async { DeliveryOutcome::Done { result: None } })
    }
}

/// The state, and what the tasks of its kinds and deliveries would know.
struct World {
    state: PushState,
    now: Moment,
    kinds: Vec<Kind>,
    /// The kinds that wait, and until when. One that was notified is not among them.
    waiting: BTreeMap<Kind, Option<Moment>>,
    claims: Vec<(Kind, Grant)>,
    deliveries: Vec<(Kind, Arc<str>, Permit, usize)>,
}

impl World {
    fn new() -> Self {
        let kinds = ["a", "b", "c", "d"].map(|name| Kind::new(name).unwrap()).to_vec();
        let limits = Limits { in_flight: MAX_IN_FLIGHT, bytes: MAX_BYTES };
        World {
            state: PushState::new(limits),
            now: Moment::default(),
            kinds,
            waiting: BTreeMap::new(),
            claims: Vec::new(),
            deliveries: Vec::new(),
        }
    }

    fn notified(&mut self, notified: &[Arc<Notify>]) {
        let state = &self.state;
        self.waiting.retain(|kind, _| {
            let changed = state.kinds.get(kind).map(|kind| &kind.changed);
            !changed.is_some_and(|changed| notified.iter().any(|it| Arc::ptr_eq(it, changed)))
        });
    }

    /// What the task of a kind does when it is woken.
    fn admit(&mut self, kind: &Kind) {
        self.waiting.remove(kind);
        match self.state.admit(self.now, kind) {
            Admission::Claim(grant) => self.claims.push((kind.clone(), grant)),
            Admission::Wait(until) => drop(self.waiting.insert(kind.clone(), until)),
            Admission::End => {
                let busy = self.deliveries.iter().any(|(of, ..)| of == kind);
                if !busy && !self.claims.iter().any(|(of, _)| of == kind) {
                    self.state.remove(kind);
                }
            }
        }
    }

    fn step(&mut self, random: &mut Random) {
        let kind = random.pick(&self.kinds).clone();
        match random.below(10) {
            0 => {
                let target = *random.pick(&["x", "y"]);
                let concurrency = random.below(10) as u32 + 1;
                let push = PushTarget::new(Arc::new(Named(target)), Duration::ZERO, concurrency);
                let changed = self.state.set(&kind, Some(push).filter(|_| random.below(4) > 0));
                self.notified(&[changed.changed]);
            }
            1 => self.now = self.now.saturating_add(Duration::from_secs(random.below(60) as u64)),
            // The task of a kind has one claim at a time.
            2..5 if !self.claims.iter().any(|(of, _)| *of == kind) => self.admit(&kind),
            5 | 6 if !self.claims.is_empty() => {
                let (kind, grant) = self.claims.swap_remove(random.below(self.claims.len()));
                let found = random.below(grant.room.in_flight + 1);
                let lens: Vec<_> = (0..found).map(|_| random.below(1 << 20)).collect();
                let jobs = Usage { in_flight: found, bytes: lens.iter().sum() };
                let notified = self.state.claimed(self.now, &kind, &grant, jobs);
                let target = &grant.target;
                let started = lens
                    .into_iter()
                    .map(|len| (kind.clone(), Arc::clone(target), grant.permit, len));
                self.deliveries.extend(started);
                self.notified(&notified);
            }
            _ if !self.deliveries.is_empty() => {
                let at = random.below(self.deliveries.len());
                let (kind, target, permit, mut bytes) = self.deliveries.swap_remove(at);
                let result = random.below(1 << 16);
                if self.state.hold(&kind, result) {
                    bytes += result;
                }
                let signals = [
                    Signal::Success,
                    Signal::Success,
                    Signal::Responded,
                    Signal::SlowDown(None),
                    Signal::SlowDown(Some(Duration::from_secs(30))),
                    Signal::Unreachable,
                ];
                let verdict = Verdict {
                    signal: *random.pick(&signals),
                    took: Duration::ZERO,
                    error: None,
                    count: |counts| counts.done += 1,
                };
                let ended = Ended { kind: &kind, target: &target, permit, bytes };
                let verdict = Some(verdict).filter(|_| random.below(8) > 0);
                let notified = self.state.ended(self.now, &ended, verdict);
                self.notified(&notified);
            }
            _ => {}
        }
    }

    fn check(&mut self) -> Result<(), String> {
        let claimed = self.claims.iter().map(|(_, grant)| grant.room);
        let delivered = self.deliveries.iter();
        let delivered = delivered.map(|(.., bytes)| Usage { in_flight: 1, bytes: *bytes });
        let used = claimed.chain(delivered).fold(Usage::default(), Usage::saturating_add);
        let counted = self.state.kinds.values().map(|kind| kind.used);
        let counted = counted.fold(Usage::default(), Usage::saturating_add);
        if used != counted || used.bytes != self.state.budget.bytes() {
            return Err(format!("{used:?} is used, {counted:?} is counted"));
        }
        if used.in_flight > MAX_IN_FLIGHT || used.bytes > MAX_BYTES {
            return Err(format!("{used:?} is in flight"));
        }
        if self.state.delivering() != self.deliveries.len() {
            return Err(format!("{} deliveries are counted", self.state.delivering()));
        }
        // A kind that waits, and whose time has not come, must not find room.
        for (kind, until) in self.waiting.clone() {
            if until.is_some_and(|until| until <= self.now) {
                self.admit(&kind);
            } else if let Admission::Claim(grant) = self.state.admit(self.now, &kind) {
                return Err(format!("{kind} waits, and there is room: {:?}", grant.room));
            }
        }
        Ok(())
    }
}

#[test]
fn no_count_drifts_and_no_kind_waits_for_room_that_there_is() {
    check_seeds(&[], "REQUEUE_PUSH_STATES", 400, |seed| {
        let mut random = Random::new(seed);
        let mut world = World::new();
        for step in 0..300 {
            world.step(&mut random);
            world.check().map_err(|error| format!("step {step}: {error}"))?;
        }
        Ok(())
    });
}
