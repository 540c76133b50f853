//! Which files a directory has, by their names.

use crate::disk::Disk;
use crate::error::DiskError;
use crate::log::segment_name;
use crate::manifest;
use crate::tables::table;

/// The numbers of the files of each type, ascending.
#[derive(Default)]
pub(crate) struct FileNames {
    pub(crate) manifests: Vec<u64>,
    pub(crate) tables: Vec<u64>,
    /// Segments of the log.
    pub(crate) segments: Vec<u64>,
    /// All other names.
    pub(crate) others: Vec<String>,
}

impl FileNames {
    pub(crate) fn list(disk: &dyn Disk) -> Result<FileNames, DiskError> {
        let mut names = FileNames::default();
        for name in disk.names().map_err(DiskError::io("list", "the directory"))? {
            let number = name.rsplit_once('-').and_then(|(_, number)| number.parse().ok());
            let is = |of: fn(u64) -> String| number.is_some_and(|number| of(number) == name);
            match number {
                Some(number) if is(manifest::name) => names.manifests.push(number),
                Some(number) if is(table::name) => names.tables.push(number),
                Some(number) if is(segment_name) => names.segments.push(number),
                _ => names.others.push(name),
            }
        }
        for numbers in [&mut names.manifests, &mut names.tables, &mut names.segments] {
            numbers.sort_unstable();
        }
        names.others.sort_unstable();
        Ok(names)
    }

    /// Whether nothing was ever stored: there is at most an incomplete first manifest.
    pub(crate) fn is_new(&self) -> bool {
        let first = self.manifests.iter().all(|&number| number == 1);
        first && self.tables.is_empty() && self.segments.is_empty()
    }
}
