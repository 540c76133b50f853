//! Lists jobs in the order of time.
//!
//! The sorted sets of a kind are in this order, so a page costs about as many commands as it has
//! jobs, however many jobs there are. A cursor is the time and the id of the last job of its page.

use crate::deployment::Deployment;
use crate::keys::Keys;
use crate::reply::Reply;
use crate::script::SCRIPTS;
use crate::view::{MAX_BYTES, letter, read};
use requeue_jobs::limits::MAX_BATCH;
use requeue_jobs::rules::ResultSize;
use requeue_jobs::{Invalid, JobId, JobView, StoreError, TimeCursor, TimePage, TimeQuery};

/// A place in a list: a time in milliseconds, and an id.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    at: u64,
    id: String,
}

impl Place {
    fn read(cursor: &TimeCursor) -> Result<Place, Invalid> {
        let parse = |text: &str| {
            let (at, id) = text.split_once('-')?;
            let place = Place { at: at.parse().ok()?, id: JobId::new(id).ok()?.to_string() };
            (place.text() == text).then_some(place)
        };
        parse(cursor.as_str()).ok_or_else(|| cursor.malformed())
    }

    fn text(&self) -> String {
        format!("{}-{}", self.at, self.id)
    }

    fn cursor(&self) -> TimeCursor {
        TimeCursor::new(self.text()).expect("a time and an id are short enough")
    }
}

/// The result of one call of the script.
struct Piece {
    jobs: Vec<(Place, JobView)>,
    /// The last entry that was examined, if more may follow.
    next: Option<Place>,
}

impl Deployment {
    pub(crate) async fn list_by_time(&self, query: TimeQuery) -> Result<TimePage, StoreError> {
        let mut after = query.after.as_ref().map(Place::read).transpose()?;
        let limit = query.limit.clamp(1, MAX_BATCH);
        let keys = self.keys(&query.kind);
        let (mut page, mut size, mut last) = (TimePage::default(), ResultSize::default(), None);
        loop {
            let room = limit - page.jobs.len();
            let Piece { jobs, next } =
                self.piece_by_time(&query, &keys, after.as_ref(), room).await?;
            for (place, job) in jobs {
                if !size.admit(job.content_bytes()) {
                    break;
                }
                page.jobs.push(job);
                last = Some(place);
            }
            let is_full = size.is_full() || page.jobs.len() >= limit;
            if next.is_none() && !size.is_full() {
                return Ok(page);
            }
            if is_full {
                page.cursor = last.as_ref().map(Place::cursor);
                return Ok(page);
            }
            after = next;
        }
    }

    /// Returns up to `max` jobs after a place, and fewer if they are large.
    async fn piece_by_time(
        &self,
        query: &TimeQuery,
        keys: &Keys,
        after: Option<&Place>,
        max: usize,
    ) -> Result<Piece, StoreError> {
        let reply = self.run(&SCRIPTS.list_by_time, &query.kind, |cmd| {
            cmd.arg(letter(query.state)).arg(u8::from(query.newest_first));
            match after {
                Some(Place { at, id }) => cmd.arg(at).arg(id),
                None => cmd.arg("").arg(""),
            };
            cmd.arg(max).arg(MAX_BYTES);
        });
        let mut reply = Reply::of(reply.await?)?;
        let more = reply.number()? == 1;
        let next = match more {
            true => Some(Place { at: reply.number()?, id: reply.text()? }),
            false => {
                reply.next()?;
                reply.next()?;
                None
            }
        };
        let (mut fields, mut jobs) = (reply.array()?, Vec::new());
        while !fields.is_empty() {
            let job = read(&mut fields, keys)?;
            let place = Place { at: job.at.as_millis(), id: job.id.to_string() };
            jobs.push((place, job.view(&query.kind, keys)?));
        }
        Ok(Piece { jobs, next })
    }
}
