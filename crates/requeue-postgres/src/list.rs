//! Reading jobs: one, or pages of them by id or by time.

use crate::database::Failure;
use crate::rows::{self, stored_number, stored_time, time};
use crate::store::Shared;
use crate::text::escape;
use requeue_jobs::limits::{MAX_BATCH, MAX_RESULT_BYTES};
use requeue_jobs::rules::{PageBuilder, Position, TimePageBuilder, TimeRange};
use requeue_jobs::{JobId, JobState, JobView, Kind, Page, Query, StoreError, TimePage, TimeQuery};

/// The lists that contain the jobs of a state.
fn lists(state: Option<JobState>) -> (i32, i32) {
    match state {
        None => (0, rows::DONE.into()),
        Some(JobState::Waiting | JobState::Ready) => (0, 9),
        Some(JobState::Leased) => (rows::LEASED.into(), 19),
        Some(JobState::Dead) => (rows::DEAD.into(), rows::DEAD.into()),
        Some(JobState::Done) => (rows::DONE.into(), rows::DONE.into()),
    }
}

/// Returns the first text that is after all texts with this prefix, or `None` if there is none.
fn end_of(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        let next = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
        if let Some(next) = next {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

/// One row more than a page has, to see whether there is another page.
fn rows_for(limit: usize) -> i32 {
    i32::try_from(limit.clamp(1, MAX_BATCH) + 1).unwrap_or(i32::MAX)
}

impl Shared {
    pub(crate) async fn view_of(
        &self,
        kind: Kind,
        id: JobId,
    ) -> Result<Option<JobView>, StoreError> {
        let (test, stored) = (self.test_time(), escape(id.as_str()));
        let rows =
            self.database.query(&self.statements.get, &[&test, &kind.as_str(), &stored]).await;
        let rows = rows.map_err(Failure::for_read)?;
        let Some(row) = rows.first() else { return Ok(None) };
        let (id, record) = rows::read(row, 1)?;
        Ok(Some(record.view(&kind, &id, time(row.get(0)))))
    }

    pub(crate) async fn page(&self, query: Query) -> Result<Page, StoreError> {
        let Some(kind) = self.kind(&query.kind).await? else { return Ok(Page::default()) };
        let prefix = escape(&query.prefix);
        let after = query.after.as_ref().map(|id| escape(id.as_str()));
        let (from, is_after) = match &after {
            Some(after) if **after >= *prefix => (&**after, true),
            _ => (&*prefix, false),
        };
        let end = end_of(&prefix);
        let (first_list, last_list) = lists(query.state);
        let (mut first, mut last) = (i64::MIN, i64::MAX);
        if matches!(query.state, Some(JobState::Ready | JobState::Waiting)) {
            // The page is of one time: that of this call.
            let now = stored_time(self.now().await?);
            if query.state == Some(JobState::Ready) {
                last = now;
            } else {
                first = now.saturating_add(1);
            }
        }
        let (test, limit, bytes) =
            (self.test_time(), rows_for(query.limit), MAX_RESULT_BYTES as i64);
        let rows = self
            .database
            .query(
                &self.statements.list,
                &[
                    &test,
                    &kind.number,
                    &from,
                    &end,
                    &is_after,
                    &first_list,
                    &last_list,
                    &first,
                    &last,
                    &limit,
                    &bytes,
                ],
            )
            .await
            .map_err(Failure::for_read)?;
        let mut page = PageBuilder::new(query.limit);
        for row in &rows {
            let (id, record) = rows::read(row, 1)?;
            let mut view = record.view(&query.kind, &id, time(row.get(0)));
            if let Some(state @ (JobState::Ready | JobState::Waiting)) = query.state {
                view.state = state;
            }
            if !page.add(view) {
                break;
            }
        }
        Ok(page.build())
    }

    pub(crate) async fn page_by_time(&self, query: TimeQuery) -> Result<TimePage, StoreError> {
        let now = self.now().await?;
        let Some(range) = TimeRange::of(&query, now)? else { return Ok(TimePage::default()) };
        let Some(kind) = self.kind(&query.kind).await? else { return Ok(TimePage::default()) };
        let (first_list, last_list) = lists(Some(query.state));
        let place = |position: Position| (stored_time(position.at), stored_number(position.seq));
        let ((first_at, first), (last_at, last)) = (place(range.first), place(range.last));
        let (test, limit, bytes) =
            (self.test_time(), rows_for(query.limit), MAX_RESULT_BYTES as i64);
        let rows = self
            .database
            .query(
                &self.statements.list_by_time,
                &[
                    &test,
                    &kind.number,
                    &first_list,
                    &last_list,
                    &first_at,
                    &first,
                    &last_at,
                    &last,
                    &range.newest_first,
                    &limit,
                    &bytes,
                ],
            )
            .await
            .map_err(Failure::for_read)?;
        let mut page = TimePageBuilder::new(query.limit);
        for row in &rows {
            let (id, record) = rows::read(row, 1)?;
            let (_, position) = record.position();
            if !page.add(position, record.view(&query.kind, &id, now)) {
                break;
            }
        }
        Ok(page.build())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_after_all_that_begin_with_it() {
        assert_eq!(end_of(""), None);
        assert_eq!(end_of("a"), Some("b".to_owned()));
        assert_eq!(end_of("a\u{10ffff}"), Some("b".to_owned()));
        assert_eq!(end_of("\u{d7ff}"), Some("\u{e000}".to_owned()));
        assert_eq!(end_of("\u{10ffff}"), None);
    }
}
