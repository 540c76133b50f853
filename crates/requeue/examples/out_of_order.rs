//! An event that arrives before the record it depends on is delayed until the record exists.
//!
//! Payments and orders arrive over two channels, in any order. A payment whose order is not
//! known yet is not an error and must not block the payments behind it: it goes back into the
//! queue and is tried again a little later.
//!
//! `cargo run --example out_of_order`

use requeue::DelayingQueue;
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// How long a payment waits for its order before it is tried again.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

type Payments = DelayingQueue<String>;

/// Orders that have arrived, with the amount paid for them.
#[derive(Default)]
struct Shop(Mutex<BTreeMap<String, u32>>);

impl Shop {
    fn order_arrives(&self, order: &str) {
        self.0.lock().expect("no handler panicked").insert(order.to_owned(), 0);
    }

    /// Returns `true` if the order is known.
    fn pay(&self, order: &str, amount: u32) -> bool {
        let mut orders = self.0.lock().expect("no handler panicked");
        orders.get_mut(order).map(|paid| *paid += amount).is_some()
    }
}

fn work(payments: &Payments, shop: &Shop, start: Instant) {
    let mut looked: HashMap<String, u32> = HashMap::new();
    while let Some(payment) = payments.get().wait() {
        let times = looked.entry(payment.key().clone()).or_default();
        *times += 1;
        if shop.pay(payment.key(), 100) {
            let at = start.elapsed().as_millis();
            println!("{at:>4} ms  {} is paid, at attempt {times}", payment.key());
            payment.done();
        } else {
            payment.requeue_after(LOOK_AGAIN);
        }
    }
}

fn main() {
    let (payments, shop, start) = (Payments::new(), Shop::default(), Instant::now());
    thread::scope(|scope| {
        scope.spawn(|| work(&payments, &shop, start));

        for order in ["order-1", "order-2", "order-3"] {
            payments.add(order.to_owned()); // the payments arrive first
        }
        for order in ["order-3", "order-1"] {
            thread::sleep(Duration::from_millis(50)); // the orders arrive late
            println!("{:>4} ms  {order} arrives", start.elapsed().as_millis());
            shop.order_arrives(order);
        }
        thread::sleep(Duration::from_millis(50));

        let left = payments.drain(Duration::from_secs(1)).wait();
        let waiting: Vec<String> = left.waiting.into_iter().map(|(order, _)| order).collect();
        println!("still without an order: {}", waiting.join(", "));
        assert_eq!(waiting, ["order-2"]);
    });
}
