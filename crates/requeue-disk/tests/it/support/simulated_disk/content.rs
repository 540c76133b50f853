//! Bytes that are cheap to copy: copies share the chunks that neither has changed.

use std::sync::Arc;

const CHUNK: usize = 4096;

/// The bytes of a file. Chunks that were never written are zeros, and take no memory.
#[derive(Clone, Default)]
pub(super) struct Content {
    size: u64,
    chunks: Arc<Vec<Option<Arc<[u8; CHUNK]>>>>,
}

impl Content {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Extends it with zeros, or truncates it.
    pub(super) fn resize(&mut self, size: u64) {
        let chunks = Arc::make_mut(&mut self.chunks);
        chunks.resize((size as usize).div_ceil(CHUNK), None);
        let used = size as usize % CHUNK;
        if size < self.size && used > 0 {
            // Truncated bytes must not come back when it grows again.
            if let Some(Some(last)) = chunks.last_mut() {
                Arc::make_mut(last)[used..].fill(0);
            }
        }
        self.size = size;
    }

    pub(super) fn write(&mut self, mut bytes: &[u8], offset: u64) {
        let end = offset + bytes.len() as u64;
        if end > self.size {
            self.resize(end);
        }
        let chunks = Arc::make_mut(&mut self.chunks);
        let mut offset = offset as usize;
        while !bytes.is_empty() {
            let from = offset % CHUNK;
            let (part, rest) = bytes.split_at(bytes.len().min(CHUNK - from));
            let chunk = &mut chunks[offset / CHUNK];
            if chunk.is_some() || part.iter().any(|byte| *byte != 0) {
                let chunk = chunk.get_or_insert_with(|| Arc::new([0; CHUNK]));
                Arc::make_mut(chunk)[from..from + part.len()].copy_from_slice(part);
            }
            offset += part.len();
            bytes = rest;
        }
    }

    /// Fills `bytes` from `offset` on. The range must be within the content.
    pub(super) fn read(&self, bytes: &mut [u8], offset: u64) {
        let (mut done, offset) = (0, offset as usize);
        while done < bytes.len() {
            let from = (offset + done) % CHUNK;
            let length = (bytes.len() - done).min(CHUNK - from);
            let part = &mut bytes[done..done + length];
            match &self.chunks[(offset + done) / CHUNK] {
                Some(chunk) => part.copy_from_slice(&chunk[from..from + length]),
                None => part.fill(0),
            }
            done += length;
        }
    }
}
