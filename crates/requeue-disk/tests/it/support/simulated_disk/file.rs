//! One file: its contents as they are read, and the part of them that is synced.

use super::content::Content;
use requeue_testkit::Random;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// The size of the blocks that a disk writes completely or not at all.
const SECTOR: u64 = 512;

#[derive(Clone, Default)]
pub(super) struct File {
    /// The contents as they are read.
    now: Content,
    /// The contents that survive a power cut in any case.
    synced: Content,
    /// The writes since the last sync, in order.
    pending: Vec<Write>,
    /// The writes that a failed sync covered. No later sync makes them durable, because the kernel
    /// considers them written. Only writing them again helps.
    lost: Vec<Write>,
}

#[derive(Clone)]
struct Write {
    offset: u64,
    bytes: Arc<[u8]>,
}

impl File {
    /// A file whose contents are synced.
    pub(super) fn of(bytes: &[u8]) -> File {
        let mut now = Content::default();
        now.write(bytes, 0);
        File { synced: now.clone(), now, ..File::default() }
    }

    pub(super) fn size(&self) -> u64 {
        self.now.size()
    }

    pub(super) fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        if offset.saturating_add(bytes.len() as u64) > self.now.size() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.now.read(bytes, offset);
        Ok(())
    }

    pub(super) fn write_at(&mut self, bytes: &[u8], offset: u64) {
        if !bytes.is_empty() {
            self.now.write(bytes, offset);
            self.pending.push(Write { offset, bytes: bytes.into() });
        }
    }

    pub(super) fn sync(&mut self) {
        if self.lost.is_empty() {
            self.synced = self.now.clone();
            self.pending.clear();
        }
        for write in self.pending.drain(..) {
            self.synced.write(&write.bytes, write.offset);
            for lost in &mut self.lost {
                write.cover(lost);
            }
        }
    }

    /// The ranges of bytes that were written and not synced.
    pub(super) fn unsynced(&self) -> Vec<Range<u64>> {
        let range = |write: &Write| write.offset..write.offset + write.bytes.len() as u64;
        self.pending.iter().map(range).collect()
    }

    /// Destroys any bytes of the blocks that contain bytes of `range`, on disk and, if `visible`, in
    /// the contents as they are read.
    pub(super) fn tear(
        &mut self,
        range: Range<u64>,
        block: u64,
        visible: bool,
        random: &mut Random,
    ) {
        if visible {
            // What is read is what is on disk.
            self.sync();
        }
        for number in range.start / block..range.end.div_ceil(block) {
            let mut at = [random.below(block as usize + 1), random.below(block as usize + 1)];
            at.sort_unstable();
            let junk: Vec<u8> = (at[0]..at[1]).map(|_| random.number() as u8).collect();
            let contents = [&mut self.synced, &mut self.now];
            for content in contents.into_iter().take(1 + usize::from(visible)) {
                let from = number * block + at[0] as u64;
                let length = junk.len().min(content.size().saturating_sub(from) as usize);
                if length > 0 {
                    content.write(&junk[..length], from);
                }
            }
        }
    }

    pub(super) fn sync_failed(&mut self) {
        self.lost.append(&mut self.pending);
    }

    pub(super) fn flip(&mut self, offset: u64, bits: u8) {
        for content in [&mut self.now, &mut self.synced] {
            let mut byte = [0];
            if offset < content.size() {
                content.read(&mut byte, offset);
                content.write(&[byte[0] ^ bits], offset);
            }
        }
    }

    pub(super) fn truncate(&mut self, bytes: u64) {
        self.sync();
        self.now.resize(bytes);
        *self = File { synced: self.now.clone(), now: self.now.clone(), ..File::default() };
    }

    /// The file that is found after a power cut: any sectors of the writes that were not synced,
    /// and where two writes overlap, either of them.
    pub(super) fn after_cut(&self, random: &mut Random) -> File {
        let percent = *random.pick(&[0, 10, 50, 90, 100]);
        let mut sectors: Vec<Write> =
            self.lost.iter().chain(&self.pending).flat_map(Write::sectors).collect();
        // All writes in order: nothing is incomplete.
        if percent < 100 {
            for last in (1..sectors.len()).rev() {
                sectors.swap(last, random.below(last + 1));
            }
        }
        let mut found = self.synced.clone();
        for sector in sectors.iter().filter(|_| random.chance(percent)) {
            found.write(&sector.bytes, sector.offset);
        }
        // A file may have its new size without the bytes that were written there.
        if found.size() < self.now.size() && random.chance(30) {
            found.resize(self.now.size());
        }
        File { synced: found.clone(), now: found, ..File::default() }
    }
}

impl Write {
    fn sectors(&self) -> impl Iterator<Item = Write> {
        let end = self.offset + self.bytes.len() as u64;
        let first = self.offset / SECTOR;
        (first..end.div_ceil(SECTOR)).map(move |sector| {
            let from = self.offset.max(sector * SECTOR);
            let to = end.min((sector + 1) * SECTOR);
            let bytes = &self.bytes[(from - self.offset) as usize..(to - self.offset) as usize];
            Write { offset: from, bytes: bytes.into() }
        })
    }

    /// Copies the bytes of this write into `other` where they overlap.
    fn cover(&self, other: &mut Write) {
        let from = self.offset.max(other.offset);
        let end = self.offset + self.bytes.len() as u64;
        let to = end.min(other.offset + other.bytes.len() as u64);
        if from < to {
            let mine = &self.bytes[(from - self.offset) as usize..(to - self.offset) as usize];
            let place = (from - other.offset) as usize..(to - other.offset) as usize;
            let mut bytes = other.bytes.to_vec();
            bytes[place].copy_from_slice(mine);
            other.bytes = bytes.into();
        }
    }
}
