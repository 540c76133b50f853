//! Damage that checksums do not detect: valid files that do not match each other.

use super::verify_on;
use crate::bytes::put_bytes;
use crate::codec;
use crate::job_table::position_of;
use crate::simulated_disk::SimulatedDisk;
use crate::state::State;
use crate::tables::{self, Batch, ListPosition, Tables, Version};
use requeue_jobs::rules::{List, Record};
use requeue_jobs::{Body, Due, JobId, Kind, Put, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// What a flush is about to write: jobs by their positions, and ids with theirs.
struct Writing {
    jobs: Vec<(ListPosition, String, Box<Record>)>,
    ids: Vec<(String, ListPosition)>,
    batch: Batch,
}

/// The damage that is found in tables of three jobs, a, b and c, after `change` was applied.
fn wrong_after(change: impl FnOnce(&mut Writing)) -> Vec<String> {
    let now = Timestamp::from_millis(1_700_000_000_000);
    let mut state = State::open(Arc::new(Version::empty()), &[]).unwrap();
    let kind = Kind::new("mail").unwrap();
    for (number, id) in ["a", "b", "c"].into_iter().enumerate() {
        let body = Body::octets(id.as_bytes()).unwrap();
        let mut put = Put::new(kind.clone(), JobId::new(id).unwrap(), body);
        put.due = Due::After(Duration::from_secs(number as u64));
        state.touch(&kind);
        state.kinds.put(put, now).unwrap();
    }
    state.group(&mut Vec::new(), now);
    let frozen = state.freeze(0);
    let mut writing = Writing { jobs: Vec::new(), ids: Vec::new(), batch: Batch::default() };
    (writing.batch.live, writing.batch.blob) = (frozen.live, frozen.blob);
    for (id, slot) in &*frozen.kinds[0].jobs {
        let record = slot.record.clone().unwrap();
        let (list, (at, seq)) = position_of(&record);
        let position = ListPosition { list: list.index() as u8, at, seq };
        writing.jobs.push((position, id.as_str().to_owned(), record));
        writing.ids.push((id.as_str().to_owned(), position));
    }
    writing.jobs.sort_by_key(|(position, ..)| *position);
    writing.ids.sort();
    change(&mut writing);

    let disk = SimulatedDisk::new();
    let (tables, _) = Tables::open(Arc::new(disk.clone()), tables::Options::default()).unwrap();
    let (mut flush, number) = (tables.flush(), frozen.kinds[0].number);
    for (position, id, record) in &writing.jobs {
        let mut value = Vec::new();
        put_bytes(&mut value, id.as_bytes());
        codec::put_record(&mut value, record, None);
        flush.due(number, *position, Some(&value)).unwrap();
    }
    for (id, position) in &writing.ids {
        flush.id(number, id, Some(*position)).unwrap();
    }
    flush.commit(writing.batch).unwrap();
    let verified = verify_on(&disk, |_| ()).unwrap();
    assert!(verified.harmless.is_empty() && verified.orphans.is_empty());
    verified.problems.iter().map(ToString::to_string).collect()
}

#[track_caller]
fn assert_wrong(change: impl FnOnce(&mut Writing), expected: &[(&str, &str)]) {
    let wrong = wrong_after(change);
    assert_eq!(wrong.len(), expected.len(), "{wrong:#?}");
    for (wrong, (file, what)) in wrong.iter().zip(expected) {
        assert!(wrong.starts_with(file) && wrong.contains(what), "{wrong}");
    }
}

#[test]
fn matching_tables_are_sound() {
    assert_wrong(|_| (), &[]);
}

#[test]
fn a_job_without_an_id_is_reported() {
    let expected = [("table-0000000001", "no id refers to job \"b\"")];
    assert_wrong(|writing| drop(writing.ids.remove(1)), &expected);
}

#[test]
fn an_id_without_a_job_is_reported() {
    let expected = [
        ("table-0000000002", "id \"c\" refers to a position that has another job, or none"),
        ("manifest-", "kind mail has 2 pending jobs, but counts 3"),
    ];
    assert_wrong(|writing| drop(writing.jobs.remove(2)), &expected);
}

#[test]
fn swapped_ids_are_reported() {
    let swap = |writing: &mut Writing| {
        let (a, b) = (writing.ids[0].1, writing.ids[1].1);
        (writing.ids[0].1, writing.ids[1].1) = (b, a);
    };
    let elsewhere = |id| format!("job {id:?} is here, but its id refers to another position");
    let another = |id| format!("id {id:?} refers to a position that has another job");
    assert_wrong(
        swap,
        &[
            ("table-0000000001", &elsewhere("a")),
            ("table-0000000001", &elsewhere("b")),
            ("table-0000000002", &another("a")),
            ("table-0000000002", &another("b")),
        ],
    );
}

#[test]
fn a_job_under_a_wrong_key_is_reported() {
    let change = |writing: &mut Writing| writing.jobs[1].2.version.due = Timestamp::from_millis(5);
    assert_wrong(change, &[("table-0000000001", "job \"b\" is stored under a wrong key")]);
    let change = |writing: &mut Writing| writing.jobs[2].0.list = List::Dead.index() as u8;
    let wrong = wrong_after(change);
    assert!(wrong[0].contains("job \"c\" is stored under a wrong key"), "{wrong:?}");
}

#[test]
fn numbers_that_were_never_assigned_are_reported() {
    let change = |writing: &mut Writing| writing.jobs[1].2.version.generation.0 = 4;
    assert_wrong(change, &[("table-0000000001", "a generation that was never assigned")]);
}

#[test]
fn wrong_counts_are_reported() {
    let change = |writing: &mut Writing| writing.batch.live = 4;
    assert_wrong(change, &[("manifest-", "the manifest counts 4 jobs in total, but 3 by kind")]);
}

#[test]
fn an_unknown_kind_is_reported() {
    let change = |writing: &mut Writing| (writing.batch.blob, writing.batch.live) = (Vec::new(), 0);
    let wrong = wrong_after(change);
    assert_eq!(wrong.len(), 6, "{wrong:#?}");
    assert!(
        wrong.iter().all(|wrong| wrong.contains("kind 0 is not in the manifest")),
        "{wrong:#?}"
    );
}
