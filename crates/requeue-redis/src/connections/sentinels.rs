//! Asks the sentinels for the address of the current master.

use super::Settings;
use super::check::refusal;
use super::connection::{RedisConnection, unavailable};
use super::stream::Endpoint;
use crate::address::{Host, Login, Topology};
use crate::error::RedisConnectError;
use redis::Value;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Asks all sentinels concurrently, and returns as soon as more than half of them name the same
/// master. So a sentinel that is cut off with an old master does not mislead, and one that is down
/// does not delay the result. Without a majority, the master that most of them name is returned.
pub(super) async fn find_master(settings: &Arc<Settings>) -> Result<Endpoint, RedisConnectError> {
    let Topology::Sentinels(hosts, name) = &settings.address.topology else {
        unreachable!("only an address with sentinels has a master to look up");
    };
    let mut asked = JoinSet::new();
    for host in hosts {
        asked.spawn(ask_sentinel(settings.clone(), host.clone(), name.clone()));
    }
    let mut named: HashMap<Host, usize> = HashMap::new();
    let mut errors = Vec::new();
    let mut unknown = 0;
    while let Some(reply) = asked.join_next().await {
        match reply.expect("the task does not panic") {
            Ok(Some(master)) => {
                let count = named.entry(master.clone()).or_default();
                *count += 1;
                if *count * 2 > hosts.len() {
                    return Ok(Endpoint::Host(master));
                }
            }
            Ok(None) => unknown += 1,
            Err(error) => errors.push(error),
        }
    }
    if let Some((master, _)) = named.into_iter().max_by_key(|(_, count)| *count) {
        return Ok(Endpoint::Host(master));
    }
    if unknown > 0 {
        let reason = format!("the sentinels know no master named {name:?}");
        return Err(RedisConnectError::Unfit { address: settings.address.to_string(), reason });
    }
    let refused = errors.iter().find(|error| matches!(error, RedisConnectError::Refused { .. }));
    match refused {
        Some(refused) => Err(refused.clone()),
        None => {
            let reasons: Vec<_> = errors.iter().map(RedisConnectError::to_string).collect();
            Err(unavailable(&settings.address, reasons.join("; ")))
        }
    }
}

/// Asks one sentinel. Returns `None` if it knows no master of that name.
async fn ask_sentinel(
    settings: Arc<Settings>,
    host: Host,
    name: String,
) -> Result<Option<Host>, RedisConnectError> {
    let (options, endpoint) = (&settings.options, Endpoint::Host(host));
    let login =
        Login { user: options.sentinel_user.clone(), password: options.sentinel_password.clone() };
    let asking = async {
        let mut connection = RedisConnection::dial(&settings, &endpoint, &login, 0).await?;
        let mut cmd = redis::cmd("SENTINEL");
        cmd.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
        match connection.ask(&cmd).await {
            Ok(Value::Nil) => Ok(None),
            Ok(value) => match redis::from_redis_value(value) {
                Ok((name, port)) => Ok(Some(Host { name, port })),
                Err(_) => Err(unavailable(
                    &endpoint,
                    "it returned an unexpected reply to SENTINEL GET-MASTER-ADDR-BY-NAME",
                )),
            },
            Err(failure) => Err(refusal(&connection, failure)),
        }
    };
    // The other half of the time is for the connection to the master.
    let limit = options.connect_timeout / 2;
    let late = || Err(unavailable(&endpoint, format!("no reply within {limit:?}")));
    timeout(limit, asking).await.unwrap_or_else(|_| late())
}
