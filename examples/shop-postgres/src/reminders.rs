//! The worker: reminds customers of unpaid orders, and closes orders that stay unpaid.
//!
//! A job can be delivered more than once, and an order can be paid while its job runs. So each handler reads the
//! order, and changes it only if it is still unpaid.

use crate::shop::{CLOSE, REMIND, Shop};
use requeue_jobs::{BoxError, JobWorker, RunningJobs};

/// Starts the worker, on the tokio runtime of the caller.
pub(crate) fn start(shop: &Shop) -> Result<RunningJobs, BoxError> {
    let worker = JobWorker::new(&shop.jobs, [REMIND, CLOSE], "shop-1")?.concurrency(10);
    let shop = shop.clone();
    Ok(worker.spawn(move |run| {
        let shop = shop.clone();
        async move {
            let order: i64 = str::from_utf8(run.job.body().bytes())?.parse()?;
            match run.job.kind().as_str() {
                REMIND => remind(&shop, order).await,
                _ => close(&shop, order).await,
            }
        }
    }))
}

async fn remind(shop: &Shop, order: i64) -> Result<(), BoxError> {
    let client = shop.pool.get().await?;
    let select = "select from orders where id = $1 and state = 'unpaid' and reminded_at is null";
    if client.query_opt(select, &[&order]).await?.is_some() {
        println!("mail: please pay order {order}"); // an error here would be a retry
        client.execute("update orders set reminded_at = now() where id = $1", &[&order]).await?;
    }
    Ok(())
}

/// Closes an unpaid order and returns its item to the stock, in one statement.
async fn close(shop: &Shop, order: i64) -> Result<(), BoxError> {
    let client = shop.pool.get().await?;
    let update = "with closed as (
            update orders set state = 'closed' where id = $1 and state = 'unpaid' returning item)
        update stock set quantity = quantity + 1 from closed where stock.item = closed.item";
    if client.execute(update, &[&order]).await? > 0 {
        println!("order {order} was not paid: closed");
    }
    Ok(())
}
