//! Creates the schema, and updates it.
//!
//! The files in `sql/` are applied in order, each once, in one transaction. Several processes may start at
//! the same time, and one of them migrates: it locks the table of the versions. If there is none yet, creating the
//! schema or that table fails in the others once the first has committed, and they begin again.
//!
//! What a table, view or function of them refers to is looked up when it is created. The migration therefore runs under a
//! `search_path` of its own.

use crate::database::{Database, Failure, OWN_PATH, Session};
use crate::error::PostgresConnectError;
use crate::statements::{Sql, in_schema};
use tokio_postgres::types::Type;

const MIGRATIONS: [&str; 3] = [
    include_str!("sql/0001_tables.sql"),
    include_str!("sql/0002_functions.sql"),
    include_str!("sql/0003_api.sql"),
];

/// The oldest supported version of Postgres.
const OLDEST: i32 = 140_000;

/// The version of the tables that this version of requeue uses.
pub(crate) const VERSION: i32 = MIGRATIONS.len() as i32;

/// What [`PostgresStore::migrate`](crate::PostgresStore::migrate) did: the version of the tables before
/// and after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migrated {
    /// The version that the tables had, or 0 if there were none.
    pub from: i32,
    /// The version that they have now. It equals [`from`](Self::from) if there was nothing to do.
    pub to: i32,
}

fn sql<const N: usize>(text: &str, types: [Type; N]) -> Sql {
    Sql { text: text.to_owned(), types: types.to_vec() }
}

/// Checks the server, and creates or updates the schema if the options allow it.
pub(crate) async fn migrate(database: &Database) -> Result<Migrated, PostgresConnectError> {
    let (address, schema) = (database.address.clone(), database.options.schema.clone());
    let failed = |failure: Failure| {
        let (Failure::NotDone(reason)
        | Failure::Unknown(reason)
        | Failure::Locked(reason)
        | Failure::Repeat(reason)) = failure;
        let (address, reason) = (address.clone(), reason.replace(&format!("{address}: "), ""));
        let denied = ["denied", "password", "authentication", "must be owner", "no pg_hba"];
        if denied.iter().any(|text| reason.contains(text)) {
            PostgresConnectError::Refused { address, reason }
        } else if reason.contains("does not exist") {
            // The database, or the role.
            PostgresConnectError::Unfit { address, reason }
        } else {
            PostgresConnectError::Unavailable { address, reason }
        }
    };
    let mut session = database.session().await.map_err(failed)?;
    let facts = sql(
        "select pg_catalog.current_setting('server_version_num')::int, pg_catalog.current_setting('server_version'), \
         pg_catalog.current_setting('server_encoding'), pg_catalog.pg_is_in_recovery(), \
         (select pg_catalog.has_schema_privilege('public'::pg_catalog.name, n.oid, 'create') \
          from pg_catalog.pg_namespace n where n.nspname operator(pg_catalog.=) $1)",
        [Type::NAME],
    );
    let facts = session.query(&facts, &[&schema]).await.map_err(failed)?;
    let (number, version): (i32, &str) = (facts[0].get(0), facts[0].get(1));
    let (encoding, is_replica): (&str, bool) = (facts[0].get(2), facts[0].get(3));
    let is_open: Option<bool> = facts[0].get(4);
    let reason = if number < OLDEST {
        Some(format!("its version is {version}; 14 is the oldest supported one"))
    } else if encoding != "UTF8" {
        Some(format!("the database has the encoding {encoding}; create one with UTF8"))
    } else if is_replica {
        let hint = "add all servers and target_session_attrs=read-write to the URL";
        Some(format!("it is a read-only replica; {hint}"))
    } else if is_open == Some(true) {
        // Their functions could have the names of ours, and fit better.
        Some(format!(
            "every role may create functions in the schema {schema:?}: use a schema of its own, or run \
             `revoke create on schema {schema} from public`"
        ))
    } else {
        None
    };
    if let Some(reason) = reason {
        return Err(PostgresConnectError::Unfit { address, reason });
    }
    let mut found = version_of(&mut session, &schema).await.map_err(failed)?;
    let mut from = found;
    while found < VERSION && database.options.migrate {
        session.begin().await.map_err(failed)?;
        let done = update(&mut session, &schema).await;
        match done {
            Ok(version) => {
                session.commit().await.map_err(failed)?;
                from = version;
                found = version_of(&mut session, &schema).await.map_err(failed)?;
            }
            Err(failure) => {
                session.roll_back().await;
                let before = found;
                found = version_of(&mut session, &schema).await.map_err(failed)?;
                if found == before {
                    return Err(failed(failure));
                }
                // Another process has migrated meanwhile.
                from = found;
            }
        }
    }
    if found == VERSION {
        let recount = in_schema("select requeue._recount_if_moved()", &schema);
        session.query(&sql(&recount, []), &[]).await.map_err(failed)?;
    }
    if found > VERSION {
        let known = VERSION;
        return Err(PostgresConnectError::Version { address, schema, found, known });
    }
    if found < VERSION {
        let reason = match found {
            0 => format!(
                "the schema {schema:?} has no tables of requeue: create them with `requeue postgres migrate`"
            ),
            _ => format!(
                "the schema {schema:?} has version {found}, and this version of requeue needs {VERSION}: \
                 run `requeue postgres migrate` with a role that owns the schema"
            ),
        };
        return Err(PostgresConnectError::Unfit { address, reason });
    }
    Ok(Migrated { from, to: found })
}

/// Returns the version of the tables, 0 if there are none.
async fn version_of(session: &mut Session<'_>, schema: &str) -> Result<i32, Failure> {
    // Not `to_regclass`: it would use what the connection remembers about the schema from before it
    // waited for the lock.
    let exists = sql(
        "select 1 from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace \
         where n.nspname operator(pg_catalog.=) $1 and c.relname operator(pg_catalog.=) 'migration'",
        [Type::NAME],
    );
    if session.query(&exists, &[&schema]).await?.is_empty() {
        return Ok(0);
    }
    let highest =
        in_schema("select coalesce(pg_catalog.max(version), 0) from requeue.migration", schema);
    Ok(session.query(&sql(&highest, []), &[]).await?[0].get(0))
}

/// Applies what is missing, and returns the version before. The transaction has begun.
async fn update(session: &mut Session<'_>, schema: &str) -> Result<i32, Failure> {
    session.execute(OWN_PATH).await?;
    if version_of(session, schema).await? > 0 {
        // Whoever may only use the schema cannot lock its tables.
        let lock = "lock table requeue.migration in share row exclusive mode";
        session.execute(&in_schema(lock, schema)).await?;
    }
    let from = version_of(session, schema).await?;
    let exists = sql("select 1 from pg_namespace where nspname = $1", [Type::TEXT]);
    if session.query(&exists, &[&schema]).await?.is_empty() {
        session.execute(&format!("create schema \"{schema}\"")).await?;
    }
    for (n, migration) in MIGRATIONS.iter().enumerate().skip(usize::try_from(from).unwrap_or(0)) {
        session.execute(&in_schema(migration, schema)).await?;
        let done = in_schema("insert into requeue.migration (version) values ($1)", schema);
        let version = i32::try_from(n + 1).unwrap_or(i32::MAX);
        session.query(&sql(&done, [Type::INT4]), &[&version]).await?;
    }
    Ok(from)
}
