//! Who has claimed, and what they hold.

mod observing;

use observing::{LEASE, START, World, job, kind, retry};
use requeue_jobs::{Kind, Settlement, WorkerName};
use requeue_server::Worker;
use std::time::Duration;

fn worker(world: &World, name: &str) -> Worker {
    let workers = world.store.workers().seen();
    workers.into_iter().find(|worker| worker.name.as_str() == name).expect("it is known")
}

fn held(world: &World, name: &str) -> u64 {
    worker(world, name).held
}

#[test]
fn a_worker_is_known_by_what_it_was_given_and_has_done() {
    let world = World::new();
    for name in ["a", "b", "c", "d", "e"] {
        world.put(job("mail", name)).unwrap();
    }
    world.advance(1);
    let jobs = world.claim("mail", "w", Some(LEASE));
    world.advance(1);
    world.settle(&jobs[0], Settlement::Ack).unwrap();
    world.settle(&jobs[0], Settlement::Ack).unwrap_err();
    world.settle(&jobs[1], retry()).unwrap();
    world.settle(&jobs[2], Settlement::Bury { error: "no".into() }).unwrap();
    world.settle(&jobs[3], Settlement::Release).unwrap();
    world.claim("sms", "idle", None);
    let at = |seconds| START.saturating_add(Duration::from_secs(seconds));
    let known = worker(&world, "w");
    let expected = Worker {
        name: WorkerName::new("w").unwrap(),
        kinds: vec!["mail".into()],
        first_seen: at(1),
        last_seen: at(2),
        waiting: 0,
        claimed: 5,
        acked: 1,
        failed: 2,
        held: 1,
    };
    assert_eq!(known, expected);
    assert_eq!(
        serde_json::to_string(&known).unwrap(),
        concat!(
            r#"{"name":"w","kinds":["mail"],"first_seen":"2023-11-14T22:13:21.000Z","#,
            r#""last_seen":"2023-11-14T22:13:22.000Z","waiting":0,"claimed":5,"acked":1,"#,
            r#""failed":2,"held":1}"#
        )
    );
    let names: Vec<_> = world.store.workers().seen().into_iter().map(|known| known.name).collect();
    assert_eq!(names, ["idle", "w"].map(|name| WorkerName::new(name).unwrap()));
}

#[test]
fn a_lease_is_held_until_it_ends_or_another_has_it() {
    let world = World::new();
    world.put(job("mail", "a")).unwrap();
    let first = world.claim("mail", "w", Some(LEASE)).remove(0);
    world.advance(20);
    world.settle(&first, Settlement::Extend(Some(LEASE))).unwrap();
    world.advance(29);
    assert_eq!(held(&world, "w"), 1);
    world.advance(1);
    assert_eq!(held(&world, "w"), 0, "its time is over");
    let second = world.claim("mail", "other", Some(LEASE)).remove(0);
    assert_eq!((held(&world, "w"), held(&world, "other")), (0, 1));
    world.settle(&first, Settlement::Ack).unwrap_err();
    assert_eq!((worker(&world, "w").acked, held(&world, "other")), (0, 1));
    world.settle(&second, Settlement::Ack).unwrap();
    assert_eq!((worker(&world, "other").acked, held(&world, "other")), (1, 0));
}

#[test]
fn claims_that_wait_are_counted_while_they_do() {
    let world = World::new();
    let name = WorkerName::new("w").unwrap();
    let kinds: Vec<Kind> = (0..150).map(|n| kind(&format!("k{n}"))).collect();
    let waiting = [world.store.waiting(&name, &kinds), world.store.waiting(&name, &kinds)];
    let known = worker(&world, "w");
    assert_eq!((known.waiting, known.claimed, known.kinds.len()), (2, 0, 100));
    world.advance(3600);
    assert_eq!(worker(&world, "w").waiting, 2, "however long that is");
    drop(waiting);
    assert_eq!(worker(&world, "w").waiting, 0);
    world.advance(600);
    assert_eq!(world.store.workers().seen(), []);
}

#[test]
fn who_holds_something_is_not_forgotten_until_the_lease_ends() {
    let world = World::new();
    world.put(job("mail", "a")).unwrap();
    world.claim("mail", "w", Some(Duration::from_secs(700)));
    world.advance(650);
    assert_eq!(held(&world, "w"), 1);
    world.advance(50);
    assert_eq!(world.store.workers().seen(), []);
}
