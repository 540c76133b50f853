//! Whether jobs can be kept on a server.

use super::Settings;
use super::connection::{RedisConnection, unavailable};
use super::outcome::Failure;
use crate::address::Topology;
use crate::error::RedisConnectError;
use redis::Value;

/// Scripts say what they need in their first line, and older servers do not understand that.
const OLDEST: (u32, u32) = (7, 0);

/// How the keys are laid out. Another layout has another number.
const FORMAT: &str = "1";

/// Asks a server all that has to be known before it is used.
pub(super) async fn check(
    connection: &mut RedisConnection,
    settings: &Settings,
) -> Result<(), RedisConnectError> {
    let address = connection.endpoint.to_string();
    let unfit = |reason: String| RedisConnectError::Unfit { address: address.clone(), reason };
    let info = match connection.ask(&redis::cmd("INFO")).await {
        Ok(Value::BulkString(info)) => String::from_utf8_lossy(&info).into_owned(),
        Ok(_) => return Err(unfit("it answers INFO with something else".to_owned())),
        Err(failure) => return Err(refusal(connection, failure)),
    };
    let is_cluster = matches!(settings.address.topology, Topology::Cluster(_));
    fits(&info, is_cluster).map_err(unfit)?;
    if field(&info, "loading") == Some("1") {
        return Err(unavailable(&connection.endpoint, "it is still reading its files"));
    }
    check_format(connection, settings).await
}

/// Whether what a server tells of itself will do.
fn fits(info: &str, is_cluster: bool) -> Result<(), String> {
    let found = |name| field(info, name).unwrap_or("unknown");
    let version = found("redis_version");
    let mut numbers = version.split('.').map_while(|number| number.parse().ok());
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if (major, minor) < OLDEST {
        let (major, minor) = OLDEST;
        return Err(format!("it is Redis {version}, and {major}.{minor} or newer is needed"));
    }
    // Valkey calls it otherwise.
    let mode = field(info, "redis_mode").unwrap_or_else(|| found("server_mode"));
    match (mode, is_cluster) {
        ("standalone", false) | ("cluster", true) => {}
        ("cluster", false) => {
            let action = "give its address as redis+cluster://…";
            return Err(format!("it is a node of a Cluster: {action}"));
        }
        ("sentinel", _) => {
            let action = "give its address as redis+sentinel://…/master";
            return Err(format!("it is a sentinel: {action}"));
        }
        (mode, true) => {
            let action = "give its address as redis://…";
            return Err(format!("it is not a node of a Cluster, but {mode}: {action}"));
        }
        // Not what it was called when this was written; if it can be used, it is.
        (_, false) => {}
    }
    let policy = found("maxmemory_policy");
    if policy != "noeviction" {
        return Err(format!(
            "its maxmemory-policy is {policy}, source would drop jobs when memory is full: \
             CONFIG SET maxmemory-policy noeviction, and the same in its redis.conf"
        ));
    }
    if found("role") != "master" {
        let master = format!("{}:{}", found("master_host"), found("master_port"));
        return Err(format!("it is a replica of {master}, and only a master takes jobs"));
    }
    Ok(())
}

/// One line of what a server tells of itself.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// Writes down which format the jobs have, or reads it.
async fn check_format(
    connection: &mut RedisConnection,
    settings: &Settings,
) -> Result<(), RedisConnectError> {
    let key = format!("{{{}}}:format", settings.options.prefix);
    // First read: nothing can be written when memory is full, but jobs can be worked off.
    let mut get = redis::cmd("GET");
    get.arg(&key);
    let mut set = redis::cmd("SET");
    set.arg(&key).arg(FORMAT).arg("NX");
    for cmd in [&get, &set, &get] {
        match connection.ask(cmd).await {
            Ok(Value::BulkString(found)) if found == FORMAT.as_bytes() => break,
            Ok(Value::BulkString(found)) => {
                let found = String::from_utf8_lossy(&found).into_owned();
                let (address, known) = (connection.endpoint.to_string(), FORMAT.to_owned());
                return Err(RedisConnectError::Format { address, key, found, known });
            }
            Ok(_) => {}
            // Another node has it, and is asked too.
            Err(Failure::Answer(error)) if ["MOVED", "ASK"].contains(&error.code()) => break,
            Err(failure) => return Err(refusal(connection, failure)),
        }
    }
    Ok(())
}

/// Why a server does not answer such simple questions.
pub(super) fn refusal(connection: &RedisConnection, failure: Failure) -> RedisConnectError {
    let (address, reason) = (connection.endpoint.to_string(), failure.reason());
    match &failure {
        Failure::Answer(error)
            if ["ERR", "NOAUTH", "NOPERM", "WRONGTYPE"].contains(&error.code()) =>
        {
            RedisConnectError::Refused { address, reason }
        }
        _ => RedisConnectError::Unavailable { address, reason },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINE: &str = "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\n\
        redis_mode:standalone\r\nmaxmemory_policy:noeviction\r\nrole:master\r\n";

    #[test]
    fn what_does_not_fit_is_named() {
        assert_eq!(fits(FINE, false), Ok(()));
        for (this, that, is_cluster, what) in [
            ("7.2.4", "6.2.14", false, "it is Redis 6.2.14, and 7.0 or newer is needed"),
            ("redis_version", "other", false, "it is Redis unknown, and 7.0"),
            ("noeviction", "allkeys-lru", false, "its maxmemory-policy is allkeys-lru"),
            ("noeviction", "allkeys-lru", false, "CONFIG SET maxmemory-policy noeviction"),
            ("standalone", "cluster", false, "give its address as redis+cluster://"),
            ("standalone", "sentinel", false, "give its address as redis+sentinel://"),
            ("standalone", "standalone", true, "give its address as redis://"),
            (
                "role:master",
                "role:slave\r\nmaster_host:h\r\nmaster_port:1",
                false,
                "it is a replica of h:1",
            ),
        ] {
            let told = fits(&FINE.replace(this, that), is_cluster).expect_err(what);
            assert!(told.contains(what), "{told}");
        }
        let valkey = FINE.replace("redis_mode:standalone", "server_mode:cluster");
        assert_eq!(fits(&valkey, true), Ok(()));
        assert_eq!(fits(&FINE.replace("7.2.4", "7.0.0"), false), Ok(()));
        assert_eq!(fits(&FINE.replace("7.2.4", "10.0.0-rc1"), false), Ok(()));
    }
}
