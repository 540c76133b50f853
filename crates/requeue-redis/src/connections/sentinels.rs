//! Who is master, as the sentinels know it.

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

/// Asks all at once. What more than half of them say counts at once, so that one that is cut
/// off with an old master does not mislead, and one that is gone does not hold up.
pub(super) async fn find_master(settings: &Arc<Settings>) -> Result<Endpoint, RedisConnectError> {
    let Topology::Sentinels(hosts, name) = &settings.address.topology else {
        unreachable!("only an address with sentinels is looked up");
    };
    let mut asked = JoinSet::new();
    for host in hosts {
        asked.spawn(ask(settings.clone(), host.clone(), name.clone()));
    }
    let mut named: HashMap<Host, usize> = HashMap::new();
    let mut errors = Vec::new();
    let mut unknown = 0;
    while let Some(answer) = asked.join_next().await {
        match answer.expect("asking does not panic") {
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
        let reason = format!("its sentinels know no master {name:?}");
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

/// Whom one sentinel calls master.
async fn ask(
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
                Err(_) => Err(unavailable(&endpoint, "it does not answer as sentinels do")),
            },
            Err(failure) => Err(refusal(&connection, failure)),
        }
    };
    // Time has to be left for the master.
    let limit = options.connect_timeout / 2;
    let late = || Err(unavailable(&endpoint, format!("no answer within {limit:?}")));
    timeout(limit, asking).await.unwrap_or_else(|_| late())
}
