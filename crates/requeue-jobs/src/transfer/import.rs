//! From JSON Lines into a store.

use super::error::TransferError;
use super::kind::{KindLine, schedule_read};
use super::lines::Lines;
use super::object::Fields;
use super::{FORMAT, Progress, VERSION, job};
use crate::job::JobView;
use crate::limits::{MAX_BATCH, MAX_BATCH_BYTES};
use crate::names::{JobId, Kind};
use crate::receipt::{Fence, Generation};
use crate::restore::{Restore, Restored, bodies_len};
use crate::settings::Settings;
use crate::store::Store;
use std::collections::HashSet;
use std::io::BufRead;
use std::mem;

/// Jobs of a batch that is imported, and bytes of their bodies: half and a quarter of what a store
/// takes, so that others have their turn.
const BATCH: usize = MAX_BATCH / 2;
const BATCH_BYTES: usize = MAX_BATCH_BYTES / 4;

/// Reads what [`export`](super::export) wrote into a store.
///
/// It adds, and touches nothing that is there: jobs and schedules of the same id, and settings
/// that are not the default, stay as they are. How jobs arrive says [`Store::restore`]. After an
/// error, or if the future was dropped, what was read before it is in the store, and the import
/// can be begun again; but not once somebody works on what has arrived, or what is done comes back.
///
/// `progress` is called after each batch of jobs, and each kind. Reading blocks the thread.
pub async fn import(
    store: &dyn Store,
    input: &mut (impl BufRead + ?Sized),
    progress: impl FnMut(Progress),
) -> Result<Progress, TransferError> {
    let mut lines = Lines::new(input);
    let mut import = Import {
        store,
        progress,
        done: Progress::default(),
        kind: None,
        jobs: Vec::new(),
        lines: Vec::new(),
        bytes: 0,
    };
    let mut header = lines.next()?.ok_or(TransferError::Cut { line: 0 })?;
    header.expect_type(FORMAT)?;
    let found = header.take("version")?;
    if found > VERSION {
        return Err(TransferError::Version { found, known: VERSION });
    }
    import.done.jobs_in_all = header.take("jobs")?;
    header.finish()?;
    loop {
        let Some(mut fields) = lines.next()? else {
            return Err(TransferError::Cut { line: lines.number() });
        };
        import.done.bytes = fields.bytes_so_far();
        match &*fields.take::<String>("type")? {
            "kind" => {
                let (line, kind) = (fields.line(), KindLine::read(&mut fields)?);
                fields.finish()?;
                import.kind(line, kind).await?;
            }
            "schedule" => import.schedule(fields).await?,
            "job" => import.job(fields).await?,
            "end" => {
                import.send().await?;
                import.end(fields)?;
                return match lines.next()? {
                    None => Ok(import.done),
                    Some(fields) => Err(TransferError::AfterEnd { line: fields.line() }),
                };
            }
            other => return Err(fields.wrong("type", other, "kind, schedule, job or end")),
        }
    }
}

struct Import<'a, P> {
    store: &'a dyn Store,
    progress: P,
    done: Progress,
    /// The kind that was read last.
    kind: Option<Begun>,
    /// Jobs of that kind that were read and not sent, and in which lines they were.
    jobs: Vec<JobView>,
    lines: Vec<u64>,
    /// Of their bodies.
    bytes: usize,
}

struct Begun {
    name: Kind,
    generation: Generation,
    fence: Fence,
    /// Schedules that the store had before.
    schedules: HashSet<JobId>,
}

impl<P: FnMut(Progress)> Import<'_, P> {
    async fn kind(&mut self, line: u64, read: KindLine) -> Result<(), TransferError> {
        self.send().await?;
        let KindLine { kind: name, generation, fence, settings } = read;
        let refused = |source| TransferError::Refused { line, source };
        // Before its jobs, and also if it has none: what was given out is not given out again.
        let restore = Restore { kind: name.clone(), generation, fence, jobs: Vec::new() };
        self.store.restore(restore).await.map_err(refused)?;
        if self.store.settings(name.clone()).await? == Settings::default() {
            self.store.set(name.clone(), settings).await.map_err(refused)?;
        } else {
            self.done.kept += 1;
        }
        let schedules = self.store.schedules(name.clone()).await?;
        let schedules = schedules.into_iter().map(|schedule| schedule.id).collect();
        self.kind = Some(Begun { name, generation, fence, schedules });
        self.done.kinds += 1;
        (self.progress)(self.done);
        Ok(())
    }

    /// The kind of a line: that whose line came before.
    fn kind_of(&self, fields: &mut Fields<'_>) -> Result<&Begun, TransferError> {
        let name: String = fields.take("kind")?;
        match &self.kind {
            Some(kind) if kind.name.as_str() == name => Ok(kind),
            Some(kind) => {
                let expected = format!("{:?}, whose lines these are", kind.name);
                Err(fields.wrong("kind", &name, &expected))
            }
            None => Err(fields.wrong("kind", &name, "its line of type kind before")),
        }
    }

    async fn schedule(&mut self, mut fields: Fields<'_>) -> Result<(), TransferError> {
        let kind = self.kind_of(&mut fields)?;
        let (line, schedule) = (fields.line(), schedule_read(&mut fields)?);
        fields.finish()?;
        if kind.schedules.contains(&schedule.id) {
            self.done.kept += 1;
        } else {
            let set = self.store.set_schedule(kind.name.clone(), schedule).await;
            set.map_err(|source| TransferError::Refused { line, source })?;
        }
        self.done.schedules += 1;
        Ok(())
    }

    async fn job(&mut self, mut fields: Fields<'_>) -> Result<(), TransferError> {
        let kind = self.kind_of(&mut fields)?.name.clone();
        let (line, job) = (fields.line(), job::read(kind, &mut fields)?);
        fields.finish()?;
        let bytes = bodies_len(&job);
        if self.jobs.len() == BATCH || self.bytes + bytes > BATCH_BYTES {
            self.send().await?;
        }
        self.jobs.push(job);
        self.lines.push(line);
        self.bytes += bytes;
        Ok(())
    }

    /// Lets the store keep what was read.
    async fn send(&mut self) -> Result<(), TransferError> {
        let Some(kind) = self.kind.as_ref().filter(|_| !self.jobs.is_empty()) else {
            return Ok(());
        };
        let (generation, fence, jobs) = (kind.generation, kind.fence, mem::take(&mut self.jobs));
        let restore = Restore { kind: kind.name.clone(), generation, fence, jobs };
        let lines = mem::take(&mut self.lines);
        self.bytes = 0;
        let answers = self.store.restore(restore).await?;
        for (answer, line) in answers.into_iter().zip(lines) {
            match answer.map_err(|source| TransferError::Refused { line, source })? {
                Restored::Created => {}
                Restored::Kept => self.done.kept += 1,
                Restored::Ended => self.done.ended += 1,
            }
            self.done.jobs += 1;
        }
        (self.progress)(self.done);
        Ok(())
    }

    /// The last line says how many there should have been.
    fn end(&mut self, mut fields: Fields<'_>) -> Result<(), TransferError> {
        let line = fields.line();
        let Progress { kinds, schedules, jobs, .. } = self.done;
        for (what, found) in [("kinds", kinds), ("schedules", schedules), ("jobs", jobs)] {
            let said = fields.take(what)?;
            if said != found {
                return Err(TransferError::Count { line, what, said, found });
            }
        }
        fields.finish()?;
        (self.progress)(self.done);
        Ok(())
    }
}
