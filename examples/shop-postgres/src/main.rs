//! A web shop whose orders and reminders are one Postgres transaction. See `README.md`.

mod orders;
mod reminders;
mod shop;
#[cfg(test)]
mod tests;

use requeue_jobs::BoxError;
use shop::{Delays, Shop};
use std::env;
use std::time::Duration;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let url = env::var("SHOP_DATABASE").map_err(
        |_| "set SHOP_DATABASE to a Postgres database, such as postgres://me@localhost/shop",
    )?;
    let delays = Delays {
        remind: seconds("SHOP_REMIND_AFTER", Delays::default().remind)?,
        close: seconds("SHOP_CLOSE_AFTER", Delays::default().close)?,
    };
    let shop = Shop::open(&url, delays).await?;
    let worker = reminders::start(&shop)?;

    let address = env::var("SHOP_LISTEN").unwrap_or_else(|_| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(&address).await?;
    println!("listening on http://{address}");
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(listener, orders::routes(shop)).with_graceful_shutdown(stop).await?;
    // Handlers that run get time to finish.
    worker.shut_down(Duration::from_secs(10)).await;
    Ok(())
}

/// Reads a number of seconds from the environment.
fn seconds(name: &str, default: Duration) -> Result<Duration, BoxError> {
    match env::var(name) {
        Err(_) => Ok(default),
        Ok(text) => {
            let seconds = text.parse().map_err(|_| format!("{name} is {text:?}, not seconds"))?;
            Ok(Duration::from_secs(seconds))
        }
    }
}
