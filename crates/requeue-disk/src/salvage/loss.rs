//! What is lost, by name.

use crate::error::Corrupt;
use crate::log::LogDamage;
use crate::state::SCHEDULES;
use crate::tables::{LostPart, Tree, table};
use requeue_jobs::rules::List;
use requeue_jobs::{Generation, JobId, Kind};
use std::fmt;

/// Something that a [`Salvage`](crate::Salvage) cannot read.
///
/// The text of a loss is one line that names it, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// Bytes of a file.
    Bytes {
        /// The name of the file.
        file: String,
        /// The offset of the first lost byte.
        from: u64,
        /// The offset behind the last lost byte.
        to: u64,
        /// A description of the damage, for people.
        what: String,
        /// A description of what the bytes contained, for people.
        contents: String,
    },
    /// Groups of the log: changes that were made after the tables were written. Jobs that they
    /// added are missing. Jobs that they changed or removed are as they were before.
    Groups {
        /// The number of the first.
        first: u64,
        /// The number of the last.
        last: u64,
    },
    /// A job that existed.
    Job {
        /// The kind.
        kind: Kind,
        /// The id.
        id: JobId,
        /// Why it cannot be read, for people.
        why: String,
    },
    /// The latest version of a job. An earlier version is returned instead.
    Version {
        /// The kind.
        kind: Kind,
        /// The id.
        id: JobId,
        /// The generation that is lost.
        lost: Generation,
        /// The generation that is returned.
        returned: Generation,
    },
    /// Failed attempts of a job. The job is returned without some or all of them.
    FailedAttempts {
        /// The kind.
        kind: Kind,
        /// The id.
        id: JobId,
    },
    /// The name of a kind. Its jobs are returned under another name.
    KindName {
        /// The number of the kind in the files.
        number: u32,
        /// The name under which its jobs are returned.
        returned_as: Kind,
    },
}

impl Loss {
    pub(super) fn of_log(damage: &LogDamage) -> Loss {
        Loss::Bytes {
            file: damage.file.clone(),
            from: damage.bytes.start,
            to: damage.bytes.end,
            what: damage.what.clone(),
            contents: "changes".to_owned(),
        }
    }

    pub(super) fn of_table(lost: &LostPart, name: &impl Fn(u32) -> Option<Kind>) -> Loss {
        Loss::Bytes {
            file: lost.file.clone(),
            from: lost.bytes.start,
            to: lost.bytes.end,
            what: lost.what.clone(),
            contents: contents(lost, name),
        }
    }
}

/// Describes the entries that a lost part of a table had.
fn contents(lost: &LostPart, name: &impl Fn(u32) -> Option<Kind>) -> String {
    let kind = |key: &[u8]| -> Option<(u32, String)> {
        let number = u32::from_be_bytes(*key.first_chunk()?);
        Some((
            number,
            name(number).map_or_else(|| format!("kind {number}"), |kind| kind.to_string()),
        ))
    };
    let (after, upto) = (lost.after.as_deref(), lost.upto.as_deref());
    let (first, last) = (after.and_then(kind), upto.and_then(kind));
    let kinds = match (&first, &last) {
        (Some((a, name)), Some((b, _))) if a == b => format!("of kind {name}"),
        (Some((_, a)), Some((_, b))) => format!("of the kinds from {a} to {b}"),
        (None, Some((_, b))) => format!("of kinds up to {b}"),
        (Some((_, a)), None) => format!("of kinds from {a} on"),
        (None, None) => "of any kind".to_owned(),
    };
    let same_kind = matches!((&first, &last), (Some((a, _)), Some((b, _))) if a == b);
    match lost.tree {
        Tree::Ids if same_kind => {
            let id = |key: Option<&[u8]>| {
                String::from_utf8_lossy(&key.unwrap_or_default()[4..]).into_owned()
            };
            format!("ids {kinds} after {:?} up to {:?}", id(after), id(upto))
        }
        Tree::Ids => format!("ids {kinds}"),
        Tree::Due => {
            let list = |key: Option<&[u8]>| key.and_then(|key| key.get(4).copied());
            let at = |key: Option<&[u8]>| {
                let at = key.and_then(|key| key.get(5..13)?.try_into().ok());
                at.map_or(0, u64::from_be_bytes)
            };
            let both = (list(after), list(upto));
            let one = both.0.filter(|list| same_kind && Some(*list) == both.1);
            let (list, at_what) = match one.map(|list| List::by_index(list.into())) {
                Some(Some(List::Pending(_))) => ("pending", "due at"),
                Some(Some(List::Leased(_))) => ("leased", "with a lease that ends at"),
                Some(Some(List::Dead)) => ("dead", "that died at"),
                Some(Some(List::Done)) => ("done", "that were done at"),
                Some(None) if one == Some(SCHEDULES) => return format!("schedules {kinds}"),
                _ => return format!("jobs and schedules {kinds}"),
            };
            let (from, to) = (at(after), at(upto));
            format!("{list} jobs {kinds} {at_what} {from} to {to} (milliseconds since 1970)")
        }
    }
}

/// The losses of a directory without a manifest that can be read: all tables.
pub(super) fn no_manifest(tables: &[u64], damaged: Vec<Corrupt>) -> Vec<Loss> {
    let manifests = damaged.into_iter().map(|Corrupt { file, offset, what }| Loss::Bytes {
        file,
        from: offset,
        to: offset,
        what,
        contents: "the list of tables, the names of kinds and their settings".to_owned(),
    });
    let tables = tables.iter().map(|table| Loss::Bytes {
        file: table::name(*table),
        from: 0,
        to: 0,
        what: "no manifest can be read that lists the table".to_owned(),
        contents: "jobs or ids".to_owned(),
    });
    manifests.chain(tables).collect()
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Bytes { file, from, to, what, contents } => {
                write!(f, "{file}, bytes {from} to {to}: {what}; contains {contents}")
            }
            Loss::Groups { first, last } if first == last => {
                write!(f, "group {first} of the log: the changes of its operations")
            }
            Loss::Groups { first, last } => {
                write!(f, "groups {first} to {last} of the log: the changes of their operations")
            }
            Loss::Job { kind, id, why } => write!(f, "job {:?} of kind {kind}: {why}", id.as_str()),
            Loss::Version { kind, id, lost, returned } => write!(
                f,
                "generation {} of job {:?} of kind {kind}: generation {} is written instead",
                lost.0,
                id.as_str(),
                returned.0
            ),
            Loss::FailedAttempts { kind, id } => write!(
                f,
                "failed attempts of job {:?} of kind {kind}: it is written without some of them",
                id.as_str()
            ),
            Loss::KindName { number, returned_as } => {
                write!(f, "the name of kind number {number}: its jobs are written as {returned_as}")
            }
        }
    }
}
