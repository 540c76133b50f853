//! Puts in a transaction of the application.

use crate::put::{PutColumns, outcome};
use crate::statements::Statements;
use crate::store::PostgresStore;
use requeue_jobs::{Placed, Put, PutError, PutJob, StoreError};
use std::future::Future;
use std::pin::Pin;
use tokio_postgres::GenericClient;

/// Puts a job in a transaction of the application, instead of in one of its own.
///
/// The job exists if and only if the transaction commits. Until then no one sees it, and it is not due.
/// If the transaction commits after the due time, the job is late, not lost. Two open transactions that
/// put the same job wait for each other.
///
/// The transaction belongs to a connection of the application, from
/// [`tokio_postgres`] or from a pool of it, to the same database. The schema must be the one of the store.
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

async fn put(
    put: &Put,
    store: &PostgresStore,
    transaction: &(impl GenericClient + Sync),
) -> Result<Placed, PutError> {
    let failed = |error: tokio_postgres::Error| StoreError::Unavailable {
        reason: crate::database::text(&error),
    };
    // In the transaction as well: a kind that is created exists if and only if the transaction commits.
    let Statements { kind_id, put: sql, .. } = &store.shared.statements;
    let kind = transaction
        .query_typed(&kind_id.text, &[(&put.kind.as_str(), kind_id.types[0].clone())])
        .await
        .map_err(failed)?;
    let kind: Option<i32> = kind[0].get(0);
    let Some(kind) = kind else {
        let (what, limit) = ("kinds", requeue_jobs::limits::MAX_KINDS);
        return Err(requeue_jobs::Invalid::TooMany { what, count: limit + 1, limit }.into());
    };
    let (columns, test) = (PutColumns::new(&[put]), store.shared.test_time());
    let params = columns.params(&test, &kind);
    let params: Vec<_> = params.into_iter().zip(sql.types.iter().cloned()).collect();
    let rows = transaction.query_typed(&sql.text, &params).await.map_err(failed)?;
    let row = rows.first().ok_or_else(|| crate::rows::damaged("a put without an outcome"))?;
    outcome(put, row)?.ok_or_else(|| {
        let reason = format!("the numbers of kind {} are near their limit", put.kind);
        StoreError::Invalid(requeue_jobs::Invalid::Refused { reason }).into()
    })
}
