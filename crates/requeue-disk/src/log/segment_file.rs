//! The file of a segment, which is open only as long as it is written to: while the store cannot
//! flush, there may be any number of segments.

use crate::disk::{Disk, DiskFile};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(super) struct SegmentFile {
    disk: Arc<dyn Disk>,
    name: String,
    open: Mutex<Option<Arc<dyn DiskFile>>>,
}

impl SegmentFile {
    /// The file of this name, which is open as `file` now.
    pub(super) fn new(disk: Arc<dyn Disk>, name: &str, file: Arc<dyn DiskFile>) -> Arc<Self> {
        Arc::new(SegmentFile { disk, name: name.to_owned(), open: Mutex::new(Some(file)) })
    }

    /// Closes the file. It is opened for each later call, as long as it has its name.
    pub(super) fn close(&self) {
        let file = self.lock().take();
        drop(file);
    }

    fn open(&self) -> io::Result<Arc<dyn DiskFile>> {
        let open = self.lock().clone();
        open.map_or_else(|| self.disk.open(&self.name), Ok)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<dyn DiskFile>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiskFile for SegmentFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.open()?.read_at(bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.open()?.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.open()?.sync()
    }

    fn size(&self) -> io::Result<u64> {
        self.open()?.size()
    }
}
