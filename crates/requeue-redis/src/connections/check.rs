//! Checks whether a server can store jobs: version, mode, eviction policy, role and format.

use super::Settings;
use super::connection::{RedisConnection, unavailable};
use super::health::OUT_OF_MEMORY;
use super::outcome::Failure;
use crate::address::Topology;
use crate::error::RedisConnectError;
use crate::keys;
use redis::Value;

/// The oldest supported version. Older servers do not support the flags in the first line of a
/// script.
const OLDEST: (u32, u32) = (7, 0);

/// The format of a deployment. The key contains it, followed by the features that the deployment uses,
/// separated by spaces.
const FORMAT: &str = "1";
/// The features that this version knows.
const FEATURES: [&str; 0] = [];

/// Checks a server before it is used. Fails with the first check that does not pass.
pub(super) async fn check(
    connection: &mut RedisConnection,
    settings: &Settings,
) -> Result<(), RedisConnectError> {
    let address = connection.endpoint.to_string();
    let unfit = |reason: String| RedisConnectError::Unfit { address: address.clone(), reason };
    let info = match connection.ask(&redis::cmd("INFO")).await {
        Ok(Value::BulkString(info)) => String::from_utf8_lossy(&info).into_owned(),
        Ok(_) => return Err(unfit("it returned an unexpected reply to INFO".to_owned())),
        Err(failure) => return Err(refusal(connection, failure)),
    };
    let is_cluster = matches!(settings.address.topology, Topology::Cluster(_));
    check_info(&info, is_cluster).map_err(unfit)?;
    let number = |name| field(&info, name).and_then(|number| number.parse::<u64>().ok());
    match (number("used_memory"), number("maxmemory")) {
        (Some(used), Some(max)) if max > 0 && used >= max => {
            let text = format!("it uses {used} bytes, and its maxmemory is {max}");
            settings.health.rejected(&address, "OOM", &text);
        }
        _ => settings.health.resolve(OUT_OF_MEMORY, &address),
    }
    if field(&info, "loading") == Some("1") {
        return Err(unavailable(&connection.endpoint, "it is still loading its data"));
    }
    check_format(connection, settings).await
}

/// Checks the reply to INFO. Fails with the reason why the server cannot be used.
fn check_info(info: &str, is_cluster: bool) -> Result<(), String> {
    let found = |name| field(info, name).unwrap_or("unknown");
    let version = found("redis_version");
    let mut numbers = version.split('.').map_while(|number| number.parse().ok());
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if (major, minor) < OLDEST {
        let (major, minor) = OLDEST;
        return Err(format!("it is Redis {version}, but {major}.{minor} or newer is required"));
    }
    // Valkey may name this field `server_mode`.
    let mode = field(info, "redis_mode").unwrap_or_else(|| found("server_mode"));
    match (mode, is_cluster) {
        ("standalone", false) | ("cluster", true) => {}
        ("cluster", false) => {
            let hint = "use an address that begins with redis+cluster://";
            return Err(format!("it is a node of a Cluster: {hint}"));
        }
        ("sentinel", _) => {
            let hint =
                "use an address that begins with redis+sentinel://, with the name of the master";
            return Err(format!("it is a sentinel: {hint}"));
        }
        (mode, true) => {
            let hint = "use an address that begins with redis://";
            return Err(format!("it is not a node of a Cluster (its mode is {mode}): {hint}"));
        }
        // An unknown mode, perhaps of a newer server: the other checks decide.
        (_, false) => {}
    }
    let policy = found("maxmemory_policy");
    if policy != "noeviction" {
        return Err(format!(
            "its maxmemory-policy is {policy}, which would drop jobs when memory is full: run \
             CONFIG SET maxmemory-policy noeviction, and set the same in its redis.conf"
        ));
    }
    if found("role") != "master" {
        let master = format!("{}:{}", found("master_host"), found("master_port"));
        return Err(format!("it is a replica of {master}, and only a master accepts writes"));
    }
    Ok(())
}

/// Returns a field of the reply to INFO.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// Checks that this version knows the format and the features of the stored jobs, and writes the format
/// if there is none yet.
async fn check_format(
    connection: &mut RedisConnection,
    settings: &Settings,
) -> Result<(), RedisConnectError> {
    let key = keys::format(&settings.options.prefix);
    // The first command only reads. When memory is full, nothing can be written, but the jobs that
    // are there can still be processed.
    let mut get = redis::cmd("GET");
    get.arg(&key);
    let mut set = redis::cmd("SET");
    set.arg(&key).arg(FORMAT).arg("NX");
    for cmd in [&get, &set, &get] {
        match connection.ask(cmd).await {
            Ok(Value::BulkString(found)) => {
                let found = String::from_utf8_lossy(&found).into_owned();
                let Some(reason) = unsupported(&found) else { break };
                let address = connection.endpoint.to_string();
                return Err(RedisConnectError::Format { address, key, found, reason });
            }
            Ok(_) => {}
            // Another node owns this key, and is checked as well.
            Err(Failure::Reply(error)) if ["MOVED", "ASK"].contains(&error.code()) => break,
            Err(failure) => return Err(refusal(connection, failure)),
        }
    }
    Ok(())
}

/// Returns why this version does not support this format with its features, or `None` if it does.
fn unsupported(found: &str) -> Option<String> {
    let mut words = found.split(' ');
    if words.next() != Some(FORMAT) {
        return Some(format!("supports only format {FORMAT}"));
    }
    let feature = words.find(|feature| !FEATURES.contains(feature))?;
    Some(format!("does not know the feature {feature:?}"))
}

/// Converts the failure of a simple command into the reason why there is no connection.
pub(super) fn refusal(connection: &RedisConnection, failure: Failure) -> RedisConnectError {
    let (address, reason) = (connection.endpoint.to_string(), failure.reason());
    match &failure {
        Failure::Reply(error)
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

    const VALID: &str = "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\n\
        redis_mode:standalone\r\nmaxmemory_policy:noeviction\r\nrole:master\r\n";

    #[test]
    fn a_server_that_cannot_be_used_is_rejected_with_the_reason() {
        assert_eq!(check_info(VALID, false), Ok(()));
        for (from, to, is_cluster, expected) in [
            ("7.2.4", "6.2.14", false, "it is Redis 6.2.14, but 7.0 or newer is required"),
            ("redis_version", "other", false, "it is Redis unknown, but 7.0"),
            ("noeviction", "allkeys-lru", false, "its maxmemory-policy is allkeys-lru"),
            ("noeviction", "allkeys-lru", false, "CONFIG SET maxmemory-policy noeviction"),
            ("standalone", "cluster", false, "use an address that begins with redis+cluster://"),
            ("standalone", "sentinel", false, "use an address that begins with redis+sentinel://"),
            ("standalone", "standalone", true, "use an address that begins with redis://"),
            (
                "role:master",
                "role:slave\r\nmaster_host:h\r\nmaster_port:1",
                false,
                "it is a replica of h:1",
            ),
        ] {
            let reason = check_info(&VALID.replace(from, to), is_cluster).expect_err(expected);
            assert!(reason.contains(expected), "{reason}");
        }
        let valkey = VALID.replace("redis_mode:standalone", "server_mode:cluster");
        assert_eq!(check_info(&valkey, true), Ok(()));
        assert_eq!(check_info(&VALID.replace("7.2.4", "7.0.0"), false), Ok(()));
        assert_eq!(check_info(&VALID.replace("7.2.4", "10.0.0-rc1"), false), Ok(()));
    }
}
