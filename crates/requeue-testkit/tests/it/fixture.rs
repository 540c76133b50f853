//! A store on a manual clock.

use requeue::ManualClock;
use requeue_jobs::{Store, Timestamp, WallClock};
use requeue_testkit::Fixture;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct ManualFixture {
    store: Arc<dyn Store>,
    clock: ManualClock,
    wall_clock: WallClock,
    orders_ties: bool,
}

impl ManualFixture {
    pub(crate) fn new(orders_ties: bool, create: impl FnOnce(WallClock) -> Arc<dyn Store>) -> Self {
        let clock = ManualClock::new();
        let wall_clock = WallClock::manual(&clock, Timestamp::from_millis(1_700_000_000_000));
        ManualFixture { store: create(wall_clock.clone()), clock, wall_clock, orders_ties }
    }
}

impl Fixture for ManualFixture {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn now(&self) -> Timestamp {
        self.wall_clock.now()
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    fn orders_ties(&self) -> bool {
        self.orders_ties
    }
}
