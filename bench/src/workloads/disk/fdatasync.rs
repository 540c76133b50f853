//! The lower limit for a disk: a file that grows, a write and an `fdatasync` per group.

use super::job::Job;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// The least that a log needs: magic, length, checksum and flags of 4 bytes each, and a number.
const GROUP_HEADER: usize = 24;

pub(super) struct Appends {
    file: File,
    buffer: Vec<u8>,
    appended: u64,
}

impl Appends {
    pub(super) fn create(dir: &Path) -> Self {
        let file = File::create(dir.join("log")).expect("the directory is new");
        Appends { file, buffer: Vec::new(), appended: 0 }
    }

    /// Per job a byte for its type, the number of its kind (4), the lengths of id and body
    /// (2 + 4), its due time and generation (8 each): 27, then id and body.
    pub(super) fn append(&mut self, jobs: &[Job]) {
        let now = UNIX_EPOCH.elapsed().expect("it is after 1970");
        let buffer = &mut self.buffer;
        buffer.clear();
        buffer.resize(GROUP_HEADER, 1);
        for Job { id, body, delay } in jobs {
            self.appended += 1;
            buffer.push(1);
            buffer.extend_from_slice(&1u32.to_le_bytes());
            buffer.extend_from_slice(&(id.len() as u16).to_le_bytes());
            buffer.extend_from_slice(&(body.len() as u32).to_le_bytes());
            buffer.extend_from_slice(&((now + *delay).as_millis() as u64).to_le_bytes());
            buffer.extend_from_slice(&self.appended.to_le_bytes());
            buffer.extend_from_slice(id.as_bytes());
            buffer.extend_from_slice(body);
        }
        self.file.write_all(buffer).expect("there is space");
        self.file.sync_data().expect("the disk works");
    }
}
