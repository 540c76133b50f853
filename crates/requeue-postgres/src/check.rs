//! Checks that the tables are consistent.

use crate::database::{Failure, OWN_PATH};
use crate::statements::{Sql, in_schema};
use crate::store::PostgresStore;
use requeue_jobs::StoreError;

/// Each row of this statement is a problem.
const PROBLEMS: &str = "
  select format('kind %s: the totals are %s pending, %s leased, %s dead, %s done, but there are %s, %s, %s, %s',
    k.name, t.pending, t.leased, t.dead, t.done, c.pending, c.leased, c.dead, c.done)
  from requeue.kind k
  cross join lateral requeue._totals(k.kind_id) t
  cross join lateral (
    select count(*) filter (where list < 10) as pending, count(*) filter (where list between 10 and 19) as leased,
      count(*) filter (where list = 20) as dead, count(*) filter (where list = 21) as done
    from requeue.job j where j.kind_id = k.kind_id) c
  where (t.pending, t.leased, t.dead, t.done) <> (c.pending, c.leased, c.dead, c.done)
  union all
  select format('job %s of kind %s: generation %s or fence %s is above the latest, %s and %s', j.id, k.name,
    coalesce(j.next_generation, j.generation), j.fence, t.generation, t.fence)
  from requeue.job j join requeue.kind k using (kind_id) cross join lateral requeue._totals(k.kind_id) t
  where coalesce(j.next_generation, j.generation) > t.generation or j.fence > t.fence
  union all
  select format('job %s of kind %s is in list %s with priority %s, due %s, at %s, fence %s', j.id, k.name, j.list, j.priority,
    j.due, j.at, j.fence)
  from requeue.job j join requeue.kind k using (kind_id)
  where (j.list < 10 and (j.list <> coalesce(j.priority, 0) or j.at <> j.due or j.fence is not null or j.next_generation is not null))
    or (j.list between 10 and 19 and (j.list - 10 <> coalesce(j.priority, 0) or j.fence is null or j.worker is null or j.claimed_at is null))
    or (j.list >= 10 and j.due is null)
    or (j.list >= 20 and (j.fence is not null or j.next_generation is not null))
    or (j.list = 21 and (j.worker is null or j.body <> '' or j.head is not null or j.failures is not null))
    or (j.next_head is not null and j.next_generation is null)
  union all
  select format('job %s has heads of %s bytes, and the number %s', j.id, requeue._heads_len(j.head, j.next_head), j.heads_len)
  from requeue.job j where j.heads_len is distinct from requeue._heads_len(j.head, j.next_head)
  union all
  select format('job %s belongs to no kind', j.id) from requeue.job j where j.kind_id not in (select kind_id from requeue.kind)";

impl PostgresStore {
    /// Compares the counts with the jobs, and checks each job. Reads all jobs. Returns one text per problem. For tests.
    #[doc(hidden)]
    pub async fn check(&self) -> Result<Vec<String>, StoreError> {
        let shared = self.shared.clone();
        let text = in_schema(PROBLEMS, &shared.database.options.schema);
        let check = self.shared.database.spawn(async move {
            let sql = Sql { text, types: Vec::new() };
            let mut session = shared.database.session().await?;
            session.begin().await?;
            session.execute(OWN_PATH).await?;
            let rows = session.query(&sql, &[]).await?;
            session.commit().await?;
            Ok(rows.iter().map(|row| row.get(0)).collect())
        });
        check
            .await
            .map_err(|error| StoreError::Unavailable { reason: error.to_string() })?
            .map_err(Failure::for_read)
    }
}
