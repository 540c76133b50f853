//! An independent reader of the file format, written from `docs/disk-format.md` alone. It uses
//! nothing of the crate.

use std::collections::BTreeMap;

/// The contents of a directory.
#[derive(Debug, Default)]
pub(crate) struct DirectoryContents {
    /// Jobs by the name of their kind and their id.
    pub(crate) jobs: BTreeMap<(String, String), Job>,
    /// Runs of the due tree, and of the ids tree.
    pub(crate) runs: [usize; 2],
    /// Runs that were merged.
    pub(crate) merged: usize,
    pub(crate) range_tombstones: usize,
    pub(crate) tombstones: usize,
    /// All flags of records in tables, and in the log.
    pub(crate) table_flags: u64,
    pub(crate) log_flags: u64,
    /// A bit for each tag in the log, and each list in tables.
    pub(crate) tags: u32,
    pub(crate) lists: u32,
    /// All flags of settings.
    pub(crate) settings: u64,
    /// By kind: how much of its rate limit is used, and when that was computed.
    pub(crate) rate_uses: BTreeMap<String, (u64, u64)>,
    /// Whether the log ends where the manifest says; `None` if it says nothing.
    pub(crate) log_end: Option<bool>,
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Job {
    /// The list, and the position in it.
    pub(crate) place: (u8, u64, u64),
    pub(crate) attempts: u64,
    /// Worker, start and error.
    pub(crate) failures: Vec<(String, u64, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) next: Option<Vec<u8>>,
    /// The priorities of the job and of its successor.
    pub(crate) priorities: (u8, u8),
    pub(crate) result: Option<Vec<u8>>,
}

pub(crate) fn read(names: &[String], bytes: impl Fn(&str) -> Vec<u8>) -> DirectoryContents {
    let mut contents = DirectoryContents::default();
    let of = |prefix: &str| {
        let mut names: Vec<&String> = names.iter().filter(|n| n.starts_with(prefix)).collect();
        names.sort();
        names
    };
    let newest = of("manifest-").pop().expect("a manifest");
    let manifest = Manifest::read(number(newest), &bytes(newest));
    contents.range_tombstones = manifest.range_tombstones.len();
    contents.runs = [manifest.due.len(), manifest.ids.len()];
    contents.merged =
        manifest.due.iter().chain(&manifest.ids).filter(|run| run.generation > 0).count();
    (contents.settings, contents.rate_uses) = (manifest.settings, manifest.rate_uses.clone());
    let mut kinds = manifest.kinds.clone();
    manifest.jobs(&bytes, &mut contents);
    let (mut last, mut last_data) = (manifest.flushed_through, (0, 0));
    for name in of("log-") {
        for (group, kind, payload) in segment(number(name), &bytes(name)) {
            if group <= last {
                continue;
            }
            assert_eq!(group, last + 1, "no gap");
            last = group;
            if kind == 1 {
                last_data = (group, number(name));
                replay(&mut contents, &mut kinds, &payload);
            }
        }
    }
    contents.log_end = (manifest.log_end.0 > 0).then_some(manifest.log_end == last_data);
    contents
}

fn number(name: &str) -> u64 {
    name.rsplit('-').next().unwrap().parse().unwrap()
}

fn crc(parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

/// A reader of bytes, from the front.
struct In<'a>(&'a [u8]);

impl<'a> In<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn u8(&mut self) -> u8 {
        self.take(1)[0]
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take(4).try_into().unwrap())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take(8).try_into().unwrap())
    }

    fn varint(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.u8();
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return number;
            }
        }
    }

    fn step(&mut self, from: u64) -> u64 {
        let step = self.varint();
        from.wrapping_add((step >> 1) ^ (step & 1).wrapping_neg())
    }

    fn counted(&mut self) -> &'a [u8] {
        let count = self.varint() as usize;
        self.take(count)
    }

    fn text(&mut self) -> String {
        String::from_utf8(self.counted().to_vec()).unwrap()
    }

    fn body(&mut self) -> Vec<u8> {
        let content_type = self.varint() as usize;
        self.take(content_type.saturating_sub(3));
        self.counted().to_vec()
    }

    fn times(&mut self, count: u64) {
        for _ in 0..count {
            self.varint();
        }
    }

    fn settings(&mut self) {
        self.times(6);
        self.u8();
        self.times(2);
        self.u8();
        self.times(3);
    }

    /// The settings that the formats before 3 do not have. Returns the flags.
    fn more_settings(&mut self) -> u64 {
        let has = self.varint();
        assert!(has < 16 && has & 6 != 6);
        self.times(4 * (has & 1) + 2 * (has >> 1 & 1) + 3 * (has >> 3 & 1));
        has
    }

    fn schedule(&mut self) -> String {
        let id = self.text();
        self.text();
        self.text();
        assert!(self.u8() <= 1);
        self.varint();
        self.body();
        id
    }

    fn failure(&mut self) -> (String, u64, String) {
        let (worker, started) = (self.text(), self.varint());
        self.step(started);
        let error = self.varint() as usize;
        let error = String::from_utf8(self.take(error.saturating_sub(1)).to_vec()).unwrap();
        (worker, started, error)
    }

    /// Reads a record, which may refer to the record before, and adds its flags to `flags`.
    fn record(&mut self, before: Option<&Job>, flags: &mut u64) -> Job {
        let has = self.varint();
        *flags |= has;
        let bit = |bit: u32| has >> bit & 1 == 1;
        self.varint();
        let (seq, created) = (self.varint(), self.varint());
        self.step(created);
        let due = self.step(created);
        let mut job = Job { place: (0, due, seq), ..Job::default() };
        job.attempts = if bit(9) { self.varint() } else { 0 };
        self.times(u64::from(bit(10)) + u64::from(bit(11)) + u64::from(bit(12) && !bit(13)));
        job.priorities.0 = if bit(14) { self.u8() } else { 0 };
        assert!(job.priorities.0 <= 9 && (!bit(14) || job.priorities.0 > 0));
        // Pending and leased jobs of each priority have a list.
        let list = |first: u8| if bit(14) { 3 + first + 2 * job.priorities.0 } else { first };
        let (pending, leased) = (list(0), list(1));
        assert!(!bit(15) || bit(4));
        assert!(!bit(16) || has & 3 == 3);
        assert!(!bit(17) || bit(4) && !bit(5));
        match has & 3 {
            0 => job.place.0 = pending,
            1 => {
                self.varint();
                self.u64();
                self.text();
                self.step(created);
                job.place = (leased, self.step(created), seq);
                if bit(4) {
                    self.varint();
                    self.times(2);
                    job.priorities.1 = if bit(15) { self.u8() } else { 0 };
                    assert!(job.priorities.1 <= 9 && (!bit(15) || job.priorities.1 > 0));
                    let same = || before.unwrap().next.clone().unwrap();
                    let body = |from: &mut Self| if bit(17) { Vec::new() } else { from.body() };
                    job.next = Some(if bit(5) { same() } else { body(self) });
                }
            }
            2 => job.place = (2, self.step(created), seq),
            _ => {
                self.text();
                self.step(created);
                job.place = (4, self.step(created), seq);
                job.result = bit(16).then(|| self.body());
            }
        }
        job.body = match has >> 2 & 3 {
            0 => self.body(),
            1 => before.unwrap().body.clone(),
            2 => before.unwrap().next.clone().unwrap(),
            body => panic!("{body} is no body"),
        };
        if bit(17) {
            job.next = Some(job.body.clone());
        }
        job.failures = match has >> 7 & 3 {
            0 => Vec::new(),
            1 => (0..self.varint()).map(|_| self.failure()).collect(),
            more => {
                let mut failures = before.unwrap().failures.clone();
                if more == 3 {
                    failures.push(self.failure());
                }
                failures.split_off(failures.len().saturating_sub(5))
            }
        };
        job
    }
}

/// The valid frames of a segment: number of the group, 1 for data or 2 for closing, payload.
fn segment(number: u64, bytes: &[u8]) -> Vec<(u64, u32, Vec<u8>)> {
    let mut header = In(&bytes[..64]);
    assert_eq!(header.take(8), b"rq-log\r\n");
    let format = header.u32();
    assert!((1..=3).contains(&format));
    assert_eq!(header.u32(), crc(&[&bytes[..12], &bytes[16..64]]));
    assert_eq!(header.u64(), number);
    let first = header.u64();
    assert_eq!(header.u64(), bytes.len() as u64);
    let mark = header.u32();
    assert_ne!(mark, 0);
    assert_eq!(header.0, [0; 20]);
    let frames_at = if format == 1 { 64 } else { 4096 };
    let (mut groups, mut rest) = (Vec::new(), &bytes[frames_at..]);
    while rest.len() >= 24 {
        let mut frame = In(rest);
        if frame.u32() != mark {
            break;
        }
        let (sum, length, kind, group) = (frame.u32(), frame.u32(), frame.u32(), frame.u64());
        let whole = (24 + length as usize).next_multiple_of(8);
        assert_eq!(sum, crc(&[&number.to_le_bytes(), &rest[8..whole]]));
        groups.push((group, kind, frame.take(length as usize).to_vec()));
        rest = &rest[whole..];
    }
    assert!(groups.first().is_none_or(|group| group.0 == first));
    groups
}

fn replay(contents: &mut DirectoryContents, kinds: &mut BTreeMap<u32, String>, payload: &[u8]) {
    let mut group = In(payload);
    while !group.0.is_empty() {
        let (number, name) = (group.varint() as u32, group.text());
        if !name.is_empty() {
            kinds.insert(number, name);
        }
        let (mut kind, mut entries) = (kinds[&number].clone(), In(group.counted()));
        while !entries.0.is_empty() {
            let tag = entries.u8();
            contents.tags |= 1 << tag;
            match tag {
                0 => {
                    let key = (kind.clone(), entries.text());
                    let job = entries.record(contents.jobs.get(&key), &mut contents.log_flags);
                    contents.jobs.insert(key, job);
                }
                1 => drop(contents.jobs.remove(&(kind.clone(), entries.text())).unwrap()),
                2 => entries.settings(),
                3 => drop(entries.schedule()),
                4 => drop(entries.text()),
                5 => entries.times(2),
                6 => {
                    entries.settings();
                    contents.settings |= entries.more_settings();
                }
                7 => entries.times(2),
                8 => {
                    // Also for entries of the section before this one.
                    let (old, new) = (kind, entries.text());
                    let moved = std::mem::take(&mut contents.jobs).into_iter();
                    let to = |(kind, id): (String, String)| {
                        (if kind == old { new.clone() } else { kind }, id)
                    };
                    contents.jobs = moved.map(|(key, job)| (to(key), job)).collect();
                    kinds.insert(number, new.clone());
                    kind = new;
                }
                tag => panic!("{tag} is no tag"),
            }
        }
    }
}

struct Manifest {
    flushed_through: u64,
    /// The last group of a log that was closed, and its segment.
    log_end: (u64, u64),
    live: u64,
    due: Vec<Run>,
    ids: Vec<Run>,
    /// Kind and list, position, upto.
    range_tombstones: Vec<([u8; 5], [u8; 16], u64)>,
    kinds: BTreeMap<u32, String>,
    /// By kind and list.
    counts: BTreeMap<u32, [u64; LISTS]>,
    /// All flags of settings.
    settings: u64,
    rate_uses: BTreeMap<String, (u64, u64)>,
}

/// One more than the highest number of a list.
const LISTS: usize = 23;

struct Run {
    flushes: (u64, u64),
    generation: u64,
    from: Vec<u8>,
    /// Number, length, crc.
    tables: Vec<(u64, u64, u32)>,
}

impl Manifest {
    fn read(number: u64, bytes: &[u8]) -> Self {
        let mut rest = In(bytes);
        assert_eq!(rest.take(8), b"rqmanif\n");
        let format = rest.u32();
        assert!((1..=3).contains(&format));
        assert_eq!(rest.u32(), crc(&[&number.to_le_bytes(), &bytes[..12], &bytes[16..]]));
        assert_eq!(rest.u64(), bytes.len() as u64 - 24);
        let (flushed_through, live) = (rest.varint(), rest.varint());
        let (next_flush, next_table) = (rest.varint(), rest.varint());
        let log_end = if format == 1 { (0, 0) } else { (rest.varint(), rest.varint()) };
        let mut trees = [(); 2].map(|()| {
            let runs = (0..rest.varint()).map(|_| {
                let flushes = (rest.varint(), rest.varint());
                assert!(flushes.0 <= flushes.1 && flushes.1 < next_flush);
                let generation = rest.varint();
                rest.varint();
                let from = rest.counted().to_vec();
                let tables = (0..rest.varint()).map(|_| (rest.varint(), rest.varint(), rest.u32()));
                Run { flushes, generation, from, tables: tables.collect() }
            });
            runs.collect::<Vec<_>>()
        });
        let tables = trees.iter().flatten().flat_map(|run| &run.tables);
        assert!(tables.into_iter().all(|table| table.0 < next_table));
        let tombstone = |rest: &mut In<'_>| {
            let (prefix, below) = (rest.take(5).try_into().unwrap(), rest.take(16));
            (prefix, below.try_into().unwrap(), rest.varint())
        };
        let range_tombstones = (0..rest.varint()).map(|_| tombstone(&mut rest)).collect();
        let mut blob = In(rest.counted());
        assert!(rest.0.is_empty());
        let (mut kinds, mut counts) = (BTreeMap::new(), BTreeMap::new());
        let (mut settings, mut rate_uses) = (0, BTreeMap::new());
        let mut marked = In(blob.0);
        let has_more = !blob.0.is_empty() && marked.varint() == (1 << 32) + 3;
        if has_more {
            assert!(format >= 3);
            blob = marked;
        }
        while !blob.0.is_empty() {
            let number = u32::try_from(blob.varint()).unwrap();
            let name = blob.text();
            kinds.insert(number, name.clone());
            blob.times(3);
            let mut by_list = [0; LISTS];
            by_list[..3].fill_with(|| blob.varint());
            if has_more {
                for _ in 0..blob.varint() {
                    let list = blob.varint() as usize;
                    assert!(list > 3 && by_list[list] == 0);
                    by_list[list] = blob.varint();
                    assert!(by_list[list] > 0);
                }
            }
            counts.insert(number, by_list);
            blob.settings();
            if has_more {
                settings |= blob.more_settings();
                rate_uses.insert(name, (blob.varint(), blob.varint()));
            }
        }
        let [due, ids] = [std::mem::take(&mut trees[0]), std::mem::take(&mut trees[1])];
        Manifest {
            flushed_through,
            log_end,
            live,
            due,
            ids,
            range_tombstones,
            kinds,
            counts,
            settings,
            rate_uses,
        }
    }

    fn is_dead(&self, key: &[u8], flush: u64) -> bool {
        let covers = |tombstone: &&([u8; 5], [u8; 16], u64)| {
            tombstone.0 == key[..5] && tombstone.1[..] > key[5..] && tombstone.2 >= flush
        };
        self.range_tombstones.iter().any(|tombstone| covers(&tombstone))
    }

    /// Reads the jobs of the tables: each id of the ids tree, and the job that it refers to.
    fn jobs(&self, bytes: &impl Fn(&str) -> Vec<u8>, contents: &mut DirectoryContents) {
        let mut due = BTreeMap::new();
        for run in &self.due {
            for (key, value) in run.entries(bytes, false) {
                contents.lists |= 1 << key[4];
                contents.tombstones += usize::from(value.is_none());
                if !self.is_dead(&key, run.flushes.1) {
                    due.insert(key, (value, run.flushes));
                }
            }
        }
        due.retain(|_, (value, _)| value.is_some());
        let mut ids = BTreeMap::new();
        for run in &self.ids {
            ids.extend(run.entries(bytes, true));
        }
        let mut counts: BTreeMap<u32, [u64; LISTS]> =
            self.kinds.keys().map(|kind| (*kind, [0; LISTS])).collect();
        for (key, value) in ids {
            let (kind, id) = key.split_at(4);
            let Some(value) = value else { continue };
            let mut value = In(&value);
            let list = value.u8();
            let (at, seq, flush) = (value.varint(), value.varint(), value.varint());
            let order = [at.to_be_bytes(), seq.to_be_bytes()].concat();
            let place = [kind, &[list], &order].concat();
            if self.is_dead(&place, flush) {
                continue;
            }
            let (job, flushes) = due.remove(&place).expect("an id leads to a job");
            assert!(flushes.0 <= flush && flush <= flushes.1);
            let job = job.unwrap();
            let mut job = In(&job);
            assert_eq!(job.counted(), id);
            let record = job.record(None, &mut contents.table_flags);
            assert!(job.0.is_empty());
            assert_eq!(record.place, (list, at, seq));
            let kind = u32::from_be_bytes(kind.try_into().unwrap());
            counts.get_mut(&kind).unwrap()[usize::from(list)] += 1;
            let id = String::from_utf8(id.to_vec()).unwrap();
            contents.jobs.insert((self.kinds[&kind].clone(), id), record);
        }
        assert_eq!(counts, self.counts);
        assert_eq!(counts.values().flatten().sum::<u64>(), self.live);
        for (key, (value, _)) in due {
            let value = value.unwrap();
            let mut schedule = In(&value);
            let hash = xxhash_rust::xxh3::xxh3_128(schedule.schedule().as_bytes());
            assert_eq!((key[4], &key[5..]), (3, &hash.to_be_bytes()[..]), "no id leads there");
            assert!(schedule.0.is_empty());
        }
    }
}

type Entries = Vec<(Vec<u8>, Option<Vec<u8>>)>;

impl Run {
    fn entries(&self, bytes: &impl Fn(&str) -> Vec<u8>, ids: bool) -> Entries {
        let mut entries = Vec::new();
        for (number, length, crc) in &self.tables {
            let bytes = bytes(&format!("table-{number:010}"));
            assert_eq!(bytes.len() as u64, *length);
            entries.extend(table(*number, *crc, &bytes, ids));
        }
        assert!(entries.is_sorted_by(|a, b| a.0 < b.0));
        entries.retain(|(key, _)| *key >= self.from);
        entries
    }
}

fn table(number: u64, expected: u32, bytes: &[u8], ids: bool) -> Entries {
    let sum = |from: usize, to: usize| {
        crc(&[&number.to_le_bytes(), &(from as u64).to_le_bytes(), &bytes[from..to]])
    };
    // The bytes from `from` on, without the crc at their end.
    let checked = |from: usize, to: usize| {
        assert_eq!(bytes[to - 4..to], sum(from, to - 4).to_le_bytes());
        &bytes[from..to - 4]
    };
    let tail_at = bytes.len() - 20;
    let mut tail = In(&bytes[tail_at..]);
    let (crc_found, footer_len) = (tail.u32(), tail.u32() as usize);
    assert!((1..=2).contains(&tail.u32()));
    assert_eq!(tail.0, b"rqtable\n");
    let footer_at = tail_at - footer_len;
    let covered = [&bytes[footer_at..tail_at], &bytes[tail_at + 4..]].concat();
    let seed = [number.to_le_bytes(), (footer_at as u64).to_le_bytes()].concat();
    assert_eq!((crc_found, crc_found), (expected, crc(&[&seed, &covered])));
    let mut footer = In(&bytes[footer_at..tail_at]);
    assert_eq!(footer.u64(), number);
    let (count, tombstones) = (footer.u64() as usize, footer.u64() as usize);
    let (index_len, filter_len) = (footer.u64() as usize, footer.u64() as usize);
    let (smallest, largest) = (footer.counted(), footer.counted());
    let mut sections = 0;
    for _ in 0..footer.varint() {
        footer.take(5 + 16 + 16);
        sections += footer.varint() as usize;
    }
    assert!(footer.0.is_empty());
    assert_eq!(sections, if ids { 0 } else { count });

    let filter_at = footer_at - filter_len;
    let filter = if ids { checked(filter_at, footer_at) } else { &[] };
    let mut index = In(checked(filter_at - index_len, filter_at));
    let (mut entries, mut offset) = (Entries::new(), 0);
    while !index.0.is_empty() {
        let last = index.counted();
        let length = index.varint() as usize;
        let mut block = In(checked(offset, offset + length));
        let mut key = Vec::new();
        while !block.0.is_empty() {
            let (shared, rest, tag) = (block.varint(), block.varint(), block.varint() as usize);
            key.truncate(shared as usize);
            key.extend_from_slice(block.take(rest as usize));
            let value = (tag > 0).then(|| block.take(tag - 1).to_vec());
            assert!(!ids || has(filter, &key));
            entries.push((key.clone(), value));
        }
        assert_eq!(key, last);
        offset += length;
    }
    assert_eq!(offset, filter_at - index_len);
    assert_eq!(entries.len(), count);
    assert_eq!(entries.iter().filter(|(_, value)| value.is_none()).count(), tombstones);
    assert_eq!((&*entries[0].0, &*entries[count - 1].0), (smallest, largest));
    entries
}

fn has(filter: &[u8], key: &[u8]) -> bool {
    const SALTS: [u32; 8] = [
        0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d, 0x705495c7, 0x2df1424b, 0x9efc4947,
        0x5c6bfb31,
    ];
    let hash = xxhash_rust::xxh3::xxh3_64(key);
    let line = (u128::from(hash) * (filter.len() as u128 / 64)) >> 64;
    let mut words = In(&filter[line as usize * 64..]);
    SALTS.iter().all(|salt| words.u64() >> ((hash as u32).wrapping_mul(*salt) >> 26) & 1 == 1)
}
