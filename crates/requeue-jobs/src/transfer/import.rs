//! Import of JSON Lines into a store.

use super::error::TransferError;
use super::kind::{KindLine, read_schedule};
use super::lines::LineReader;
use super::object::ObjectReader;
use super::{FORMAT, TransferProgress, VERSION, job};
use crate::cron::ScheduleCondition;
use crate::job::JobView;
use crate::limits::{MAX_BATCH, MAX_BATCH_BYTES};
use crate::names::{JobId, Kind};
use crate::receipt::{Fence, Generation};
use crate::restore::{Restore, Restored};
use crate::settings::Settings;
use crate::store::Store;
use std::collections::HashSet;
use std::io::BufRead;
use std::mem;

/// Maximum jobs of a batch, and maximum bytes of their bodies: a half and a quarter of a store's
/// limits, so that other clients of the store do not wait for long.
const BATCH: usize = MAX_BATCH / 2;
const BATCH_BYTES: usize = MAX_BATCH_BYTES / 4;

/// Reads the output of [`export`](super::export) and adds it to a store.
///
/// An import only adds. If the store already has a job or a schedule with the same id, or settings
/// other than the defaults, these stay unchanged. [`Store::restore`] describes how each job arrives.
/// Lines about [reserved kinds](Kind::with_reserved) are counted as kept and not imported: the timers of
/// schedules are made anew from the schedules.
///
/// Returns the final counts. After an error, or if the future is dropped, everything that was read
/// before is in the store, and the import can be repeated from the first line. Do that before
/// workers start on the imported jobs; otherwise jobs that they have completed are added again.
///
/// `progress` is called after each batch of jobs and after each kind. Reading blocks the thread.
pub async fn import(
    store: &dyn Store,
    input: &mut (impl BufRead + ?Sized),
    progress: impl FnMut(TransferProgress),
) -> Result<TransferProgress, TransferError> {
    let mut lines = LineReader::new(input);
    let mut import = Import {
        store,
        progress,
        done: TransferProgress::default(),
        kind: None,
        jobs: Vec::new(),
        lines: Vec::new(),
        bytes: 0,
    };
    let mut header = lines.next()?.ok_or(TransferError::Incomplete { line: 0 })?;
    header.expect_type(FORMAT)?;
    let found = header.take("version")?;
    if found > VERSION {
        return Err(TransferError::Version { found, known: VERSION });
    }
    import.done.jobs_in_all = header.take("jobs")?;
    header.finish()?;
    loop {
        let Some(mut fields) = lines.next()? else {
            return Err(TransferError::Incomplete { line: lines.number() });
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
            other => return Err(fields.unexpected("type", other, "kind, schedule, job or end")),
        }
    }
}

struct Import<'a, P> {
    store: &'a dyn Store,
    progress: P,
    done: TransferProgress,
    /// The kind whose line was read last.
    kind: Option<CurrentKind>,
    /// Jobs of that kind that were read and not yet sent to the store.
    jobs: Vec<JobView>,
    /// The line number of each of `jobs`.
    lines: Vec<u64>,
    /// Total length of the bodies of `jobs`.
    bytes: usize,
}

struct CurrentKind {
    name: Kind,
    generation: Generation,
    fence: Fence,
    /// Schedules that the store had before the import.
    schedules: HashSet<JobId>,
}

impl<P: FnMut(TransferProgress)> Import<'_, P> {
    async fn kind(&mut self, line: u64, read: KindLine) -> Result<(), TransferError> {
        self.send().await?;
        let KindLine { kind: name, generation, fence, settings } = read;
        if name.is_reserved() {
            // Timers are made anew from the schedules.
            let schedules = HashSet::new();
            self.kind = Some(CurrentKind { name, generation, fence, schedules });
            self.done.kinds += 1;
            self.done.kept += 1;
            return Ok(());
        }
        let refused = |source| TransferError::Refused { line, source };
        // Sent before the jobs, and also for a kind without jobs, so that the store does not assign
        // the same generations and fences again.
        let restore = Restore { kind: name.clone(), generation, fence, jobs: Vec::new() };
        self.store.restore(restore).await.map_err(refused)?;
        if self.store.settings(name.clone()).await? == Settings::default() {
            self.store.set(name.clone(), settings).await.map_err(refused)?;
        } else {
            self.done.kept += 1;
        }
        let schedules = self.store.schedules(name.clone()).await?;
        let schedules = schedules.into_iter().map(|schedule| schedule.id).collect();
        self.kind = Some(CurrentKind { name, generation, fence, schedules });
        self.done.kinds += 1;
        (self.progress)(self.done);
        Ok(())
    }

    /// Returns the current kind. Fails if the line belongs to another one.
    fn kind_of(&self, fields: &mut ObjectReader<'_>) -> Result<&CurrentKind, TransferError> {
        let name: String = fields.take("kind")?;
        match &self.kind {
            Some(kind) if kind.name.as_str() == name => Ok(kind),
            Some(kind) => {
                let expected = format!("{:?}, the kind of the preceding lines", kind.name);
                Err(fields.unexpected("kind", &name, &expected))
            }
            None => Err(fields.unexpected("kind", &name, "a line of type kind before this line")),
        }
    }

    async fn schedule(&mut self, mut fields: ObjectReader<'_>) -> Result<(), TransferError> {
        let kind = self.kind_of(&mut fields)?;
        let (line, schedule) = (fields.line(), read_schedule(&mut fields)?);
        fields.finish()?;
        if kind.name.is_reserved() || kind.schedules.contains(&schedule.id) {
            self.done.kept += 1;
        } else {
            let condition = ScheduleCondition::Absent;
            let set = self.store.set_schedule(kind.name.clone(), schedule, condition).await;
            set.map_err(|source| TransferError::Refused { line, source })?;
        }
        self.done.schedules += 1;
        Ok(())
    }

    async fn job(&mut self, mut fields: ObjectReader<'_>) -> Result<(), TransferError> {
        let kind = self.kind_of(&mut fields)?.name.clone();
        let (line, job) = (fields.line(), job::read_job(kind, &mut fields)?);
        fields.finish()?;
        if job.kind.is_reserved() {
            self.done.jobs += 1;
            self.done.kept += 1;
            return Ok(());
        }
        let bytes = job.content_bytes();
        if self.jobs.len() == BATCH || self.bytes + bytes > BATCH_BYTES {
            self.send().await?;
        }
        self.jobs.push(job);
        self.lines.push(line);
        self.bytes += bytes;
        Ok(())
    }

    /// Sends the jobs that were read to the store.
    async fn send(&mut self) -> Result<(), TransferError> {
        let Some(kind) = self.kind.as_ref().filter(|_| !self.jobs.is_empty()) else {
            return Ok(());
        };
        let (generation, fence, jobs) = (kind.generation, kind.fence, mem::take(&mut self.jobs));
        let restore = Restore { kind: kind.name.clone(), generation, fence, jobs };
        let lines = mem::take(&mut self.lines);
        self.bytes = 0;
        let results = self.store.restore(restore).await?;
        for (result, line) in results.into_iter().zip(lines) {
            match result.map_err(|source| TransferError::Refused { line, source })? {
                Restored::Created => {}
                Restored::Kept => self.done.kept += 1,
                Restored::Ended => self.done.ended += 1,
            }
            self.done.jobs += 1;
        }
        (self.progress)(self.done);
        Ok(())
    }

    /// Compares the counts of the last line with what was read.
    fn end(&mut self, mut fields: ObjectReader<'_>) -> Result<(), TransferError> {
        let line = fields.line();
        let TransferProgress { kinds, schedules, jobs, .. } = self.done;
        for (what, found) in [("kinds", kinds), ("schedules", schedules), ("jobs", jobs)] {
            let stated = fields.take(what)?;
            if stated != found {
                return Err(TransferError::Count { line, what, stated, found });
            }
        }
        fields.finish()?;
        (self.progress)(self.done);
        Ok(())
    }
}
