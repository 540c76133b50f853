//! Live events during a resync, with and without priorities.
//!
//! A controller starts and must check all its 50,000 pods. Meanwhile pods change. How long does
//! a change wait until a worker handles it?
//!
//! Run `cargo run --release --example priority_controller`, or add `-- 5` for 5,000 pods.

use requeue::limiter::default_controller;
use requeue::{AddOptions, PriorityQueue};
use std::collections::HashMap;
use std::num::NonZeroU16;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

const WORKERS: usize = 8;
/// How long a worker waits for the cluster, per pod.
const CALL: Duration = Duration::from_micros(100);
/// The time between two changes.
const CHANGES: Duration = Duration::from_millis(5);
/// controller-runtime's priority of a resync.
const LOW: i32 = -100;

/// Returns how long each change waited, sorted.
fn run(pods: u32, resync: AddOptions) -> Vec<Duration> {
    let queue = PriorityQueue::new(default_controller());
    let changed: Mutex<HashMap<u32, Instant>> = Mutex::default();
    let waited: Mutex<Vec<Duration>> = Mutex::default();
    let work = || {
        while let Some(held) = queue.get().wait() {
            if let Some(since) = changed.lock().expect("no panic").remove(held.key()) {
                waited.lock().expect("no panic").push(since.elapsed());
            }
            thread::sleep(CALL);
            held.forget();
        }
    };
    queue.add_many(0..pods, resync);
    thread::scope(|scope| {
        (0..WORKERS).for_each(|_| drop(scope.spawn(work)));
        let mut pod = 0;
        while queue.len() as u32 > pods / 10 {
            pod = (pod + 7919) % pods; // spread over all pods
            changed.lock().expect("no panic").entry(pod).or_insert_with(Instant::now);
            queue.add(pod); // with priority 0
            thread::sleep(CHANGES);
        }
        queue.shut_down(); // ready keys are still handed out
    });
    let mut waited = waited.into_inner().expect("no panic");
    waited.sort_unstable();
    waited
}

fn main() {
    let thousands = std::env::args().nth(1).map(|n| n.parse().expect("how many thousand pods"));
    let pods = u32::from(thousands.map_or(50, NonZeroU16::get)) * 1000;
    println!("{pods} pods to check, {WORKERS} workers, a change every {CHANGES:?}");
    println!("{:27} {:>7} {:>9} {:>9} {:>9}", "", "changes", "median", "99%", "longest");
    for (name, resync) in [
        ("all pods alike", AddOptions::new()),
        ("the resync at priority -100", AddOptions::new().priority(LOW)),
    ] {
        let waited = run(pods, resync);
        let at = |part: f64| waited[((waited.len() - 1) as f64 * part) as usize];
        let [median, most, all] = [0.5, 0.99, 1.0].map(|part| format!("{:.1?}", at(part)));
        println!("{name:27} {:>7} {median:>9} {most:>9} {all:>9}", waited.len());
    }
}
