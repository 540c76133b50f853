//! Changes bytes of files and makes their checksums valid again, by `docs/disk-format.md`.

use super::simulated_disk::SimulatedDisk;
use requeue_disk::Disk;
use requeue_testkit::Random;
use std::ops::Range;

/// The parts of a file that have a checksum each, without it.
fn parts(name: &str, bytes: &[u8]) -> Vec<Range<usize>> {
    match name.split('-').next() {
        Some("manifest") => std::iter::once(16..bytes.len()).collect(),
        Some("log") => segment(bytes),
        Some("table") => table(bytes),
        _ => Vec::new(),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes")) as usize
}

fn u64_at(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes")) as usize
}

/// The header, then the frames from their lengths on.
fn segment(bytes: &[u8]) -> Vec<Range<usize>> {
    let (mut parts, mut at): (Vec<_>, _) = (std::iter::once(16..64).collect(), 4096);
    while bytes.get(at..at + 4) == Some(&bytes[40..44]) {
        let end = at + (24 + u32_at(bytes, at + 8)).next_multiple_of(8);
        parts.push(at + 8..end);
        at = end;
    }
    parts
}

/// The blocks, the index, the filter if there is one, and the footer. None if the process was killed
/// while it wrote the table.
fn table(bytes: &[u8]) -> Vec<Range<usize>> {
    if !bytes.ends_with(b"rq-tab\r\n") {
        return Vec::new();
    }
    let tail = bytes.len() - 20;
    let footer = tail - u32_at(bytes, tail + 4);
    let filter = footer - u64_at(bytes, footer + 32);
    let index = filter - u64_at(bytes, footer + 24);
    let (mut parts, mut at, mut offset) = (Vec::new(), index, 0);
    let varint = |at: &mut usize| {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = bytes[*at];
            *at += 1;
            number |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return number;
            }
        }
    };
    while at < filter - 4 {
        at += varint(&mut at);
        let length = varint(&mut at);
        parts.push(offset..offset + length - 4);
        offset += length;
    }
    parts.push(index..filter - 4);
    if filter < footer {
        parts.push(filter..footer - 4);
    }
    parts.push(footer..tail);
    parts
}

fn crc(parts: &[&[u8]]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize().to_le_bytes()
}

/// Writes the checksum of a part.
fn seal(name: &str, bytes: &mut [u8], part: &Range<usize>) {
    let number = name.rsplit('-').next().expect("a number").parse::<u64>().expect("a number");
    let number = number.to_le_bytes();
    match name.split('-').next() {
        Some("manifest") => {
            let sum = crc(&[&number, &bytes[..12], &bytes[16..]]);
            bytes[12..16].copy_from_slice(&sum);
        }
        Some("log") if part.start == 16 => {
            let sum = crc(&[&bytes[..12], &bytes[16..64]]);
            bytes[12..16].copy_from_slice(&sum);
        }
        Some("log") => {
            let sum = crc(&[&number, &bytes[part.clone()]]);
            bytes[part.start - 4..part.start].copy_from_slice(&sum);
        }
        _ => {
            let offset = (part.start as u64).to_le_bytes();
            let is_footer = part.end + 20 == bytes.len();
            let rest = if is_footer { part.end + 4..bytes.len() } else { part.end..part.end };
            let sum = crc(&[&number, &offset, &bytes[part.clone()], &bytes[rest]]);
            bytes[part.end..part.end + 4].copy_from_slice(&sum);
        }
    }
}

/// Sets the number of the format in a file.
pub(crate) fn set_format(disk: &SimulatedDisk, name: &str, format: u32) {
    let mut bytes = disk.bytes(name);
    let is_table = name.starts_with("table-");
    let at = if is_table { bytes.len() - 12 } else { 8 };
    bytes[at..at + 4].copy_from_slice(&format.to_le_bytes());
    let parts = parts(name, &bytes);
    let part = if is_table { parts.last() } else { parts.first() };
    seal(name, &mut bytes, part.expect("the file is complete"));
    disk.put(name, &bytes);
}

/// Changes some bytes in one part of a file, and makes the checksums valid. Returns `false` if the
/// file has no checksums.
pub(crate) fn forge(disk: &SimulatedDisk, name: &str, random: &mut Random) -> bool {
    let mut bytes = disk.bytes(name);
    let parts = parts(name, &bytes);
    // Blocks and frames are many. The other parts are few and short, and hit more often.
    let part = match parts.len() {
        0 => return false,
        count if random.chance(50) => parts[count - 1 - random.below(count.min(4))].clone(),
        count => parts[random.below(count)].clone(),
    };
    for _ in 0..1 + random.below(4) {
        let at = part.start + random.below(part.len().max(1));
        let Some(room) = bytes.get_mut(at..part.end).filter(|room| !room.is_empty()) else {
            break;
        };
        match random.below(6) {
            0 => room[0] ^= 1 << random.below(8),
            1 => room[0] = random.number() as u8,
            2 => room[0] = *random.pick(&[0, 1, 0x7f, 0x80, 0xff]),
            3 => room[0] = room[0].wrapping_add(*random.pick(&[1, 0xff])),
            4 => {
                let length = room.len().min(*random.pick(&[2, 4, 8, 10]));
                room[..length].fill(*random.pick(&[0, 0xff]));
            }
            _ => {
                let length = room.len();
                room[..length.min(9)].rotate_left(1);
            }
        }
    }
    let old = (name.starts_with("table-")).then(|| tail_crc(&disk.bytes(name)));
    seal(name, &mut bytes, &part);
    disk.put(name, &bytes);
    // The manifests contain the crc of a table's tail.
    if let Some(old) = old.filter(|old| *old != tail_crc(&bytes)) {
        for manifest in disk.names().expect("the power is on") {
            if !manifest.starts_with("manifest-") {
                continue;
            }
            let mut contents = disk.bytes(&manifest);
            let found = contents.windows(4).position(|window| *window == old);
            if let Some(at) = found {
                contents[at..at + 4].copy_from_slice(&tail_crc(&bytes));
                let all = 16..contents.len();
                seal(&manifest, &mut contents, &all);
                disk.put(&manifest, &contents);
            }
        }
    }
    true
}

fn tail_crc(bytes: &[u8]) -> [u8; 4] {
    let tail = bytes.len() - 20;
    bytes[tail..tail + 4].try_into().expect("4 bytes")
}
