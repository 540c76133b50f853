//! A disk on which the creation of tables can be blocked.

use super::forwarding::forward_disk;
use requeue_disk::{Disk, DiskFile};
use std::io;
use std::sync::{Arc, Condvar, Mutex};

/// While it is shut, creating a table blocks: the frozen layer stays in memory.
#[derive(Clone)]
pub(crate) struct GatedDisk<D> {
    disk: D,
    shut: Arc<(Mutex<bool>, Condvar)>,
}

impl<D> GatedDisk<D> {
    pub(crate) fn new(disk: D) -> Self {
        GatedDisk { disk, shut: Arc::default() }
    }

    pub(crate) fn set_shut(&self, shut: bool) {
        *self.shut.0.lock().expect("the lock is not poisoned") = shut;
        self.shut.1.notify_all();
    }

    fn pass(&self) {
        let shut = self.shut.0.lock().expect("the lock is not poisoned");
        drop(self.shut.1.wait_while(shut, |shut| *shut));
    }
}

impl<D: Disk> Disk for GatedDisk<D> {
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        if name.starts_with("table-") {
            self.pass();
        }
        self.disk.create(name)
    }

    forward_disk!(open rename remove names sync_names free);
}
