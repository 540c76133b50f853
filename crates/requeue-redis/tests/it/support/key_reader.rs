//! Reads the keys of a deployment without the code of the crate, and checks the invariants that
//! `docs/redis-keys.md` documents.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use redis::{Commands, Connection};
use std::collections::{BTreeMap, BTreeSet};

/// Each level of priority adds this to the score of a pending or leased job.
const LEVEL: u64 = 400_000_000_000_000;

/// The types of the keys, by name.
const OF_DEPLOYMENT: [(&str, &str); 4] =
    [("format", "string"), ("kinds", "set"), ("registered", "hash"), ("removed", "hash")];
const LISTS: [&str; 4] = ["due", "leased", "dead", "done"];
const HASHES: [&str; 6] = ["job", "lease", "next", "past", "meta", "schedules"];

/// Id or field, and value.
type Hash = BTreeMap<String, Vec<u8>>;

/// The undecoded keys of a kind.
#[derive(Debug)]
pub(crate) struct Keys {
    /// Pending, leased, dead and done jobs: id and score.
    pub(crate) lists: [BTreeMap<String, u64>; 4],
    pub(crate) job: Hash,
    pub(crate) lease: Hash,
    pub(crate) next: Hash,
    pub(crate) past: Hash,
    pub(crate) meta: BTreeMap<String, String>,
    pub(crate) schedules: Hash,
}

/// Reads the kinds of a deployment, and checks the documented invariants by their numbers.
pub(crate) fn read(con: &mut Connection, prefix: &str) -> BTreeMap<String, Keys> {
    let names: BTreeSet<String> = con.smembers(format!("{{{prefix}}}:kinds")).unwrap();
    assert_eq!(con.get::<_, String>(format!("{{{prefix}}}:format")).unwrap(), "1");
    let kinds = kinds_with_keys(con, prefix);
    assert!(kinds.is_subset(&names), "6: {kinds:?} are all in {names:?}");
    let keys = |name: String| {
        let keys = Keys::read(con, &format!("{{{prefix}:{name}}}"));
        keys.check();
        (name, keys)
    };
    kinds.into_iter().map(keys).collect()
}

/// Returns all kinds that have a key. Checks that there are only documented keys.
fn kinds_with_keys(con: &mut Connection, prefix: &str) -> BTreeSet<String> {
    let (of_deployment, of_kind) = (format!("{{{prefix}}}:"), format!("{{{prefix}:"));
    let keys: Vec<String> =
        con.scan_match(format!("{{{prefix}*")).and_then(|keys| keys.collect()).unwrap();
    let mut kinds = BTreeSet::new();
    for key in keys {
        let found: String = redis::cmd("TYPE").arg(&key).query(con).unwrap();
        assert_eq!(con.ttl::<_, i64>(&key).unwrap(), -1, "{key} never expires");
        if let Some(name) = key.strip_prefix(&of_deployment) {
            assert!(OF_DEPLOYMENT.contains(&(name, &found)), "{key} is a {found}");
        } else if let Some(rest) = key.strip_prefix(&of_kind) {
            let (of, name) = rest.split_once("}:").expect("the tag ends");
            let names = if found == "zset" { &LISTS[..] } else { &HASHES };
            assert!(names.contains(&name) && ["zset", "hash"].contains(&&*found), "{key}: {found}");
            kinds.insert(of.to_owned());
        }
    }
    kinds
}

impl Keys {
    fn read(con: &mut Connection, tag: &str) -> Keys {
        let lists = LISTS.map(|name| {
            let entries: Vec<(String, f64)> =
                con.zrange_withscores(format!("{tag}:{name}"), 0, -1).unwrap();
            entries.into_iter().map(|(id, score)| (id, whole(score))).collect()
        });
        let [job, lease, next, past, _, schedules] =
            HASHES.map(|name| con.hgetall(format!("{tag}:{name}")).unwrap());
        let meta = con.hgetall(format!("{tag}:meta")).unwrap();
        Keys { lists, job, lease, next, past, meta, schedules }
    }

    fn check(&self) {
        let [_, leased, dead, done] = &self.lists;
        let mut listed = BTreeSet::new();
        for id in self.lists.iter().flat_map(BTreeMap::keys) {
            assert!(listed.insert(id), "1: {id} is in one list");
        }
        assert!(self.job.keys().eq(listed), "1: exactly the listed jobs have records");
        assert!(self.lease.keys().eq(leased.keys()), "2: exactly the leased jobs have leases");
        let has = |hash: &Hash, id: &String| hash.contains_key(id);
        assert!(self.next.keys().all(|id| has(&self.lease, id)), "2: only leased jobs: successors");
        assert!(self.past.keys().all(|id| has(&self.job, id)), "3: no past without a job");
        let mut ended = dead.keys().chain(done.keys());
        assert!(ended.all(|id| has(&self.past, id)), "3: dead and done jobs have a past");
        let (generation, fence) = (self.counter("generation"), self.counter("fence"));
        assert!(self.meta.contains_key("generation"), "6: the kind has a generation");
        for (id, record) in &self.job {
            let of_record = number(&record[..7]);
            assert!(of_record <= generation, "4: the generation of {id}");
            if let Some(next) = self.next.get(id) {
                let of_next = number(&next[6..13]);
                assert!(of_record < of_next && of_next <= generation, "4: the successor of {id}");
            }
        }
        let fences: BTreeSet<u64> = self.lease.values().map(|lease| number(&lease[..7])).collect();
        assert_eq!(fences.len(), self.lease.len(), "5: fences are unique");
        assert!(fences.last().is_none_or(|last| *last <= fence), "5: none is above the counter");
        self.check_priorities();
    }

    fn check_priorities(&self) {
        let [due, leased, dead, done] = &self.lists;
        let levels = self.meta.get("levels").map_or("", String::as_str).as_bytes();
        assert!(levels.is_sorted_by(|a, b| a > b) && !levels.contains(&b'0'), "8: {levels:?}");
        let priority = |record: &Vec<u8>| u64::from(record[19] >> 2 & 15);
        for (id, score) in due.iter().chain(leased) {
            assert_eq!(priority(&self.job[id]), score / LEVEL, "8: the score of {id}");
        }
        let records = due.keys().chain(leased.keys()).map(|id| &self.job[id]);
        for priority in records.chain(self.next.values()).map(priority) {
            assert!(priority == 0 || levels.contains(&(b'0' + priority as u8)), "8: {priority}");
        }
        assert!(dead.values().chain(done.values()).all(|score| *score < LEVEL), "8: no priority");
    }

    pub(crate) fn counter(&self, field: &str) -> u64 {
        self.meta.get(field).map_or(0, |text| text.parse().expect("7: a whole number"))
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn whole(score: f64) -> u64 {
    assert!(score >= 0.0 && score.fract() == 0.0, "7: {score} is whole");
    score as u64
}
