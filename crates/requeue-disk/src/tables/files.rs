//! The open files of tables, of which there are few: a store has thousands of tables, but a process
//! may have open only so many files.
//!
//! A file is opened when its table is read, and closed when others were read more recently. A file
//! that is closed can be opened again only as long as it has its name. So the file of a table is
//! removed after the last version that contains the table is gone: see
//! [`is_used`](TableFiles::is_used).

use super::table::name;
use crate::disk::{Disk, DiskFile};
use foldhash::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many files of tables are kept open. Opening one takes a few microseconds, and is worth it
/// only for the tables that are read now.
pub(crate) const OPEN_TABLES: usize = 16;

/// Opens and closes the files of all tables of a disk.
pub(super) struct TableFiles {
    disk: Arc<dyn Disk>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Files that are open, by the numbers of their tables, and when they were last used.
    open: HashMap<u64, (Arc<dyn DiskFile>, u64)>,
    uses: u64,
    /// How many [files](TableFile) of each table exist.
    tables: HashMap<u64, usize>,
}

/// The file of one table, open or not.
struct TableFile {
    files: Arc<TableFiles>,
    number: u64,
}

impl TableFiles {
    pub(super) fn new(disk: Arc<dyn Disk>) -> Arc<Self> {
        Arc::new(TableFiles { disk, state: Mutex::default() })
    }

    /// The file of a table, which is open as `file` now.
    pub(super) fn add(self: &Arc<Self>, number: u64, file: Arc<dyn DiskFile>) -> Arc<dyn DiskFile> {
        *self.state().tables.entry(number).or_default() += 1;
        self.keep_open(number, file);
        Arc::new(TableFile { files: self.clone(), number })
    }

    /// Whether a version contains this table, so that its file must not be removed.
    pub(super) fn is_used(&self, number: u64) -> bool {
        self.state().tables.contains_key(&number)
    }

    fn open(&self, number: u64) -> io::Result<Arc<dyn DiskFile>> {
        {
            let mut state = self.state();
            state.uses += 1;
            let uses = state.uses;
            if let Some((file, used)) = state.open.get_mut(&number) {
                *used = uses;
                return Ok(file.clone());
            }
        }
        let file = self.disk.open(&name(number))?;
        self.keep_open(number, file.clone());
        Ok(file)
    }

    fn keep_open(&self, number: u64, file: Arc<dyn DiskFile>) {
        let mut closed = Vec::new();
        let mut state = self.state();
        state.uses += 1;
        let uses = state.uses;
        closed.extend(state.open.insert(number, (file, uses)));
        if state.open.len() > OPEN_TABLES {
            let oldest = state.open.iter().min_by_key(|(_, (_, used))| *used);
            let oldest = oldest.map(|(number, _)| *number);
            closed.extend(oldest.and_then(|number| state.open.remove(&number)));
        }
        // Closing a file takes time, and does not need the lock.
        drop(state);
        drop(closed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TableFile {
    fn drop(&mut self) {
        let mut state = self.files.state();
        let count = state.tables.get_mut(&self.number).map_or(0, |count| {
            *count -= 1;
            *count
        });
        if count == 0 {
            state.tables.remove(&self.number);
            let file = state.open.remove(&self.number);
            drop(state);
            drop(file);
        }
    }
}

impl DiskFile for TableFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.files.open(self.number)?.read_at(bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.files.open(self.number)?.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.files.open(self.number)?.sync()
    }

    fn size(&self) -> io::Result<u64> {
        self.files.open(self.number)?.size()
    }
}
