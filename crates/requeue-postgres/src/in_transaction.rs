//! Puts, reschedules and cancels in a transaction of the application.

use crate::put::{PutColumns, outcome};
use crate::rows::{number, stored_duration, stored_number, stored_time, stored_type};
use crate::statements::Statements;
use crate::store::PostgresStore;
use crate::text::escape;
use requeue_jobs::limits::MAX_DELAY;
use requeue_jobs::{
    Body, ChangeError, Changed, Due, Generation, Invalid, JobId, Kind, Placed, Put, PutError,
    PutJob, PutOutcome, Reschedule, StoreError,
};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use tokio_postgres::GenericClient;
use tokio_postgres::types::ToSql;

/// Puts a job in a transaction of the application, instead of in one of its own.
///
/// The job exists if and only if the transaction commits. Until then no one sees it, and it is not due.
/// If the transaction commits after the due time, the job is late, not lost. Two open transactions that
/// put the same job wait for each other. Nothing else waits for an open transaction.
///
/// If the kind does not exist yet, a connection of the store creates it, whether or not the transaction
/// commits. In a transaction with the isolation level *repeatable read* or *serializable*, the transaction
/// itself creates it: then others that put jobs of this new kind wait until the transaction has ended.
///
/// The transaction belongs to a connection of the application, from
/// [`tokio_postgres`] or from a pool of it, to the same database. The schema must be the one of the store. A
/// pool may wrap the transaction in a type of its own: with `deadpool-postgres`, pass `&*transaction`.
///
/// [`PostgresStore::cancel_on`] cancels a job, and [`PostgresStore::reschedule_on`] moves it.
///
/// ```no_run
/// use requeue_jobs::Jobs;
/// use requeue_postgres::{PostgresStore, PutInTransaction};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// # async fn doc(mut client: tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let store = PostgresStore::connect("postgres://app@localhost/shop").await?;
/// let jobs = Jobs::new(Arc::new(store.clone()));
///
/// let transaction = client.transaction().await?;
/// transaction.execute("insert into orders (id) values (42)", &[]).await?;
/// jobs.put("order.remind", "order-42", "unpaid")
///     .after(Duration::from_secs(300))
///     .on(&store, &transaction)
///     .await?;
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
pub trait PutInTransaction {
    /// Puts the job in `transaction`. Fails if the put is invalid, if its condition does not hold, or if
    /// the statement fails; after a failed statement the transaction can only be rolled back.
    fn on<'a, C: GenericClient + Sync>(
        self,
        store: &'a PostgresStore,
        transaction: &'a C,
    ) -> Pin<Box<dyn Future<Output = Result<Placed, PutError>> + Send + 'a>>;
}

impl PutInTransaction for PutJob {
    fn on<'a, C: GenericClient + Sync>(
        self,
        store: &'a PostgresStore,
        transaction: &'a C,
    ) -> Pin<Box<dyn Future<Output = Result<Placed, PutError>> + Send + 'a>> {
        Box::pin(async move { put(&self.into_put()?, store, transaction).await })
    }
}

impl PostgresStore {
    /// Cancels a job in a transaction of the application: the job is gone if and only if the transaction
    /// commits.
    ///
    /// Returns [`Changed::Removed`]; or [`Changed::Ending`] if a worker holds the job, which is then removed
    /// when its lease ends. Fails with [`ChangeError::Absent`] if there is no such job, which does not
    /// end the transaction. After a statement that failed, the transaction can only be rolled back.
    ///
    /// ```no_run
    /// use requeue_jobs::ChangeError;
    /// use requeue_postgres::PostgresStore;
    ///
    /// # async fn doc(store: PostgresStore, mut client: tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let transaction = client.transaction().await?;
    /// transaction.execute("update orders set paid = true where id = 42", &[]).await?;
    /// match store.cancel_on(&transaction, "order.remind", "order-42").await {
    ///     // The customer was reminded before: there is nothing to cancel.
    ///     Ok(_) | Err(ChangeError::Absent { .. }) => {}
    ///     Err(error) => return Err(error.into()),
    /// }
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn cancel_on<C: GenericClient + Sync>(
        &self,
        transaction: &C,
        kind: &str,
        id: &str,
    ) -> Result<Changed, ChangeError> {
        let (kind, id) = (Kind::new(kind)?, JobId::new(id)?);
        if id.as_str().contains('\0') {
            let reason = format!("job id {id:?} contains a NUL character, which SQL cannot pass");
            return Err(Invalid::Refused { reason }.into());
        }
        let sql = &self.shared.statements.cancel;
        let types = sql.types.iter().cloned();
        let (kind_text, id_text) = (kind.as_str(), id.as_str());
        let params: [&(dyn ToSql + Sync); 2] = [&kind_text, &id_text];
        let params: Vec<_> = params.into_iter().zip(types).collect();
        let rows = transaction.query_typed(&sql.text, &params).await.map_err(failed)?;
        match rows.first().map(|row| row.get(0)) {
            Some("removed") => Ok(Changed::Removed),
            Some("ending") => Ok(Changed::Ending),
            Some("absent") => Err(ChangeError::Absent { kind, id }),
            _ => Err(crate::rows::damaged("a cancel without an outcome").into()),
        }
    }
}

impl PostgresStore {
    /// Changes the due time, the priority or the body of a job in a transaction of the application: it is
    /// changed if and only if the transaction commits.
    ///
    /// Fails with [`ChangeError::Absent`], [`ChangeError::Done`] or [`ChangeError::Generation`] as
    /// [`Jobs::reschedule`](requeue_jobs::Jobs::reschedule) does, which does not end the transaction. After a
    /// statement that failed, the transaction can only be rolled back.
    ///
    /// ```no_run
    /// use requeue_jobs::{Due, Reschedule};
    /// use requeue_postgres::PostgresStore;
    /// use std::time::Duration;
    ///
    /// # async fn doc(store: PostgresStore, mut client: tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let transaction = client.transaction().await?;
    /// transaction.execute("update orders set promised = now() + '2 days' where id = 42", &[]).await?;
    /// let due = Some(Due::After(Duration::from_secs(2 * 86_400)));
    /// let set = Reschedule { due, ..Reschedule::default() };
    /// store.reschedule_on(&transaction, "order.remind", "order-42", set).await?;
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn reschedule_on<C: GenericClient + Sync>(
        &self,
        transaction: &C,
        kind: &str,
        id: &str,
        set: Reschedule,
    ) -> Result<Placed, ChangeError> {
        let (kind, id) = (Kind::new(kind)?, JobId::new(id)?);
        set.check()?;
        let (mut delay, mut due_at) = (None, None);
        match set.due {
            None => {}
            Some(Due::Now) => delay = Some(0),
            Some(Due::After(after)) => delay = Some(stored_duration(after)),
            Some(Due::At(at)) => due_at = Some(stored_time(at)),
        }
        let (test, kind_text, job_id) =
            (self.shared.test_time(), kind.as_str(), escape(id.as_str()));
        let bytes = set.body.as_ref().map(Body::bytes);
        let content_type = set.body.as_ref().and_then(stored_type);
        let priority = set.priority.map(|priority| i16::from(priority.get()));
        let expected = set.if_generation.map(|Generation(number)| stored_number(number));
        let params: [&(dyn ToSql + Sync); 9] = [
            &test,
            &kind_text,
            &job_id,
            &bytes,
            &content_type,
            &delay,
            &due_at,
            &priority,
            &expected,
        ];
        let sql = &self.shared.statements.reschedule;
        let params: Vec<_> = params.into_iter().zip(sql.types.iter().cloned()).collect();
        let rows = transaction.query_typed(&sql.text, &params).await.map_err(failed)?;
        let row =
            rows.first().ok_or_else(|| crate::rows::damaged("a reschedule without an outcome"))?;
        let generation = || Generation(number(row.get(1)));
        let outcome = match row.get(0) {
            "updated" => PutOutcome::Updated,
            "coalesced" => PutOutcome::Coalesced,
            "revived" => PutOutcome::Revived,
            "absent" => return Err(ChangeError::Absent { kind, id }),
            "done" => return Err(ChangeError::Done { kind, id }),
            "other_generation" => {
                let (expected, found) = (set.if_generation.unwrap_or_default(), generation());
                return Err(ChangeError::Generation { kind, id, expected, found });
            }
            "too_late" => {
                let value = Duration::from_millis(number(row.get(1)));
                let (field, min, max) = ("the delay", Duration::ZERO, MAX_DELAY);
                return Err(Invalid::OutOfRange { field, value, min, max }.into());
            }
            "used_up" => {
                let reason = format!("the numbers of kind {kind} are near their limit");
                return Err(Invalid::Refused { reason }.into());
            }
            other => return Err(crate::rows::damaged(&format!("the outcome {other:?}")).into()),
        };
        Ok(Placed { outcome, generation: generation() })
    }
}

fn failed(error: tokio_postgres::Error) -> StoreError {
    StoreError::Unavailable { reason: crate::database::text(&error) }
}

async fn put(
    put: &Put,
    store: &PostgresStore,
    transaction: &(impl GenericClient + Sync),
) -> Result<Placed, PutError> {
    put.content.check()?;
    let Statements { visible_kind, kind_id, put: sql, .. } = &store.shared.statements;
    let name = put.kind.as_str();
    let found = transaction
        .query_typed(&visible_kind.text, &[(&name, visible_kind.types[0].clone())])
        .await
        .map_err(failed)?;
    let kind = match found[0].get::<_, Option<i32>>(0) {
        Some(kind) => kind,
        // Outside of the transaction: others that put jobs of the kind would otherwise wait until the transaction ends. A kind
        // without jobs is not listed.
        None if found[0].get::<_, &str>(1) == "read committed" => make(store, &put.kind).await?,
        // A transaction with an older snapshot would not see that kind.
        None => {
            let made =
                transaction.query_typed(&kind_id.text, &[(&name, kind_id.types[0].clone())]).await;
            let kind: Option<i32> = made.map_err(failed)?[0].get(0);
            let (what, limit) = ("kinds", requeue_jobs::limits::MAX_KINDS);
            kind.ok_or(Invalid::TooMany { what, count: limit + 1, limit })?
        }
    };
    let (columns, test) = (PutColumns::new(&[put]), store.shared.test_time());
    let params = columns.params(&test, &kind);
    let params: Vec<_> = params.into_iter().zip(sql.types.iter().cloned()).collect();
    let rows = transaction.query_typed(&sql.text, &params).await.map_err(failed)?;
    let row = rows.first().ok_or_else(|| crate::rows::damaged("a put without an outcome"))?;
    outcome(put, row)?.ok_or_else(|| {
        let reason = format!("the numbers of kind {} are near their limit", put.kind);
        StoreError::Invalid(Invalid::Refused { reason }).into()
    })
}

/// Creates a kind with a connection of the store.
async fn make(store: &PostgresStore, kind: &Kind) -> Result<i32, StoreError> {
    let (shared, kind) = (store.shared.clone(), kind.clone());
    let making = store.shared.database.spawn(async move { shared.made(&kind).await });
    let made = making.await.map_err(|error| StoreError::Unavailable { reason: error.to_string() });
    Ok(made??.number)
}
