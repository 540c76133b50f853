//! Disks and files that wrap others: a test writes the methods that it changes, and forwards the
//! rest.

/// Defines the listed methods of `Disk`, which forward to the field `disk`.
macro_rules! forward_disk {
    () => {};
    (open $($rest:ident)*) => {
        fn open(&self, name: &str) -> std::io::Result<std::sync::Arc<dyn requeue_disk::DiskFile>> {
            self.disk.open(name)
        }
        forward_disk!($($rest)*);
    };
    (rename $($rest:ident)*) => {
        fn rename(&self, from: &str, to: &str) -> std::io::Result<()> {
            self.disk.rename(from, to)
        }
        forward_disk!($($rest)*);
    };
    (remove $($rest:ident)*) => {
        fn remove(&self, name: &str) -> std::io::Result<()> {
            self.disk.remove(name)
        }
        forward_disk!($($rest)*);
    };
    (names $($rest:ident)*) => {
        fn names(&self) -> std::io::Result<Vec<String>> {
            self.disk.names()
        }
        forward_disk!($($rest)*);
    };
    (sync_names $($rest:ident)*) => {
        fn sync_names(&self) -> std::io::Result<()> {
            self.disk.sync_names()
        }
        forward_disk!($($rest)*);
    };
    (free $($rest:ident)*) => {
        fn free(&self) -> std::io::Result<u64> {
            self.disk.free()
        }
        forward_disk!($($rest)*);
    };
}

/// Defines the listed methods of `DiskFile`, which forward to the field `file`.
macro_rules! forward_file {
    () => {};
    (read_at $($rest:ident)*) => {
        fn read_at(&self, bytes: &mut [u8], offset: u64) -> std::io::Result<()> {
            self.file.read_at(bytes, offset)
        }
        forward_file!($($rest)*);
    };
    (write_at $($rest:ident)*) => {
        fn write_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
            self.file.write_at(bytes, offset)
        }
        forward_file!($($rest)*);
    };
    (sync $($rest:ident)*) => {
        fn sync(&self) -> std::io::Result<()> {
            self.file.sync()
        }
        forward_file!($($rest)*);
    };
    (size $($rest:ident)*) => {
        fn size(&self) -> std::io::Result<u64> {
            self.file.size()
        }
        forward_file!($($rest)*);
    };
}

pub(crate) use {forward_disk, forward_file};
