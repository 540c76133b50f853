//! The one format of the files. A file of any other format is refused before anything is changed.
//!
//! Segments, manifests and tables have magic bytes and the number of the format at fixed positions,
//! and a checksum that covers both. So a file of another format is told from a damaged one.

use crate::error::DiskError;

/// The number of the format.
pub(crate) const FORMAT: u32 = 1;

/// The optional features that this version knows. A manifest lists those in use.
const KNOWN_FEATURES: [&str; 0] = [];

/// Checks the magic bytes and the number of a file whose checksum is valid.
pub(crate) fn check(
    file: &str,
    expected: [u8; 8],
    magic: &[u8],
    number: u32,
) -> Result<(), DiskError> {
    if magic == expected && number == FORMAT {
        return Ok(());
    }
    let name = |magic: &[u8], number: u32| format!("{number} (\"{}\")", magic.escape_ascii());
    Err(DiskError::Format {
        file: file.to_owned(),
        found: name(magic, number),
        expected: name(&expected, FORMAT),
    })
}

/// Checks that this version knows all features that are in use.
pub(crate) fn check_features(file: &str, used: &[&str]) -> Result<(), DiskError> {
    let is_unknown = |feature: &&&str| !KNOWN_FEATURES.contains(feature);
    let unknown: Vec<String> = used.iter().filter(is_unknown).map(|&name| name.into()).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    Err(DiskError::Features { file: file.to_owned(), features: unknown.join(", ") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::{Bytes, Malformed, put_bytes};
    use crate::file_names::FileNames;
    use crate::manifest::{self, Manifest};
    use crate::simulated_disk::SimulatedDisk;
    use crate::state::SCHEDULES;
    use crate::tables::{self, Entry, Tables, Tree};
    use crate::{codec, stored_kinds};
    use requeue_jobs::rules::List;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    fn fixture() -> SimulatedDisk {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/format-1");
        let disk = SimulatedDisk::new();
        for file in std::fs::read_dir(directory).unwrap() {
            let file = file.unwrap();
            disk.put(file.file_name().to_str().unwrap(), &std::fs::read(file.path()).unwrap());
        }
        disk
    }

    /// Otherwise other versions would read what this one writes in another way.
    #[test]
    fn the_contents_of_the_fixture_are_written_with_the_same_bytes() {
        let disk = fixture();
        let newest = *FileNames::list(&disk).unwrap().manifests.last().unwrap();
        let manifest = Manifest::read(&disk, newest).unwrap();
        let bytes = disk.bytes(&manifest::name(newest));
        let options = tables::Options::for_memory(1 << 20);
        let (tables, opened) = Tables::open(Arc::new(disk), options).unwrap();
        let version = tables.version();
        assert_eq!(manifest::encode(newest, &version, manifest.next_file), bytes);

        let mut kinds = Vec::new();
        let put = |kind| {
            stored_kinds::put(&mut kinds, &kind);
            Ok::<_, Malformed>(())
        };
        assert!(stored_kinds::read(&opened.blob, put).is_ok());
        assert_eq!(kinds, *opened.blob);

        let (mut lists, mut flags, mut rules) = (BTreeSet::new(), 0, BTreeSet::new());
        let each = |entry: Entry<'_>, _, _: &dyn Fn(&str) -> DiskError| {
            let Entry::Due { position, value: Some(value), .. } = entry else { return };
            let mut written = Vec::new();
            lists.insert(position.list);
            if position.list == SCHEDULES {
                let Ok(schedule) = codec::schedule(&mut Bytes::new(value)) else { panic!() };
                codec::put_schedule(&mut written, &schedule);
                rules.insert(format!("{:?}", schedule.missed));
            } else {
                let Ok(Some((id, record))) = codec::job_unless(value, |_| false) else { panic!() };
                put_bytes(&mut written, id.as_str().as_bytes());
                flags |= Bytes::new(&value[written.len()..]).number().unwrap();
                codec::put_record(&mut written, &record, None);
            }
            assert_eq!(written, value);
        };
        version.walk(Tree::Due, each).unwrap();
        // The fixture contains everything, except what occurs in the log only.
        assert_eq!(flags, codec::ALL_IN_TABLES, "{flags:b}");
        assert_eq!(rules.len(), 3);
        let all = List::all().map(|list| list.index() as u8).chain([SCHEDULES]);
        assert_eq!(lists, all.collect());
        assert!(version.due.len() > 1 && version.ids.len() > 1);
        assert!(version.due.iter().chain(&version.ids).any(|run| run.generation > 0));
        assert!(!version.range_tombstones.all().is_empty());
    }
}
