//! Creates the schema, and refuses one that this version of requeue does not know.
//!
//! The files in `sql/` are executed in order, in one transaction. Several processes may start at the same time, and one of them
//! creates the schema: in the others, creating it or its first table fails once the first has committed, and they look again.
//!
//! No name in these files is looked up by the `search_path` of whoever calls a function or reads a view, who may have operators
//! and functions of others in it. What a table, a view or an SQL function (`begin atomic`) refers to is looked up when it is
//! created, so that is done under a path of its own. PL/pgSQL looks up names when it runs, so these functions set a path.

use crate::columns::with_columns;
use crate::database::{Database, Failure, OWN_PATH, Session};
use crate::error::PostgresConnectError;
use crate::statements::{Sql, in_schema};
use crate::trust;
use tokio_postgres::types::Type;

/// The number of the format in the table `format`.
const FORMAT: i32 = 1;

/// The optional features that this version of requeue knows. The table `format` lists those that the jobs of a schema use.
const FEATURES: [&str; 0] = [];

/// SQL functions refer to functions that exist: those of earlier files.
const FILES: [&str; 14] = [
    include_str!("sql/tables.sql"),
    include_str!("sql/numbers.sql"),
    include_str!("sql/kinds.sql"),
    include_str!("sql/counting.sql"),
    include_str!("sql/put.sql"),
    include_str!("sql/reschedule.sql"),
    include_str!("sql/settle.sql"),
    include_str!("sql/claim.sql"),
    include_str!("sql/rules.sql"),
    include_str!("sql/peek.sql"),
    include_str!("sql/reap.sql"),
    include_str!("sql/page.sql"),
    include_str!("sql/view.sql"),
    include_str!("sql/api.sql"),
];

/// The oldest supported version of Postgres.
const OLDEST: i32 = 140_000;

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

/// What a schema contains.
enum Found {
    /// No tables of requeue, or not even the schema.
    Nothing,
    /// Tables of an unreleased version, which had no table `format`.
    NoFormat,
    Format {
        version: i32,
        features: Vec<String>,
    },
}

fn sql<const N: usize>(text: &str, types: [Type; N]) -> Sql {
    Sql { text: text.to_owned(), types: types.to_vec() }
}

/// Checks the server and the schema, and creates the schema if there is none and the options allow it.
pub(crate) async fn open(database: &Database) -> Result<Migrated, PostgresConnectError> {
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
         pg_catalog.current_setting('server_encoding'), pg_catalog.pg_is_in_recovery()",
        [],
    );
    let facts = session.query(&facts, &[]).await.map_err(failed)?;
    let (number, version): (i32, &str) = (facts[0].get(0), facts[0].get(1));
    let (encoding, is_replica): (&str, bool) = (facts[0].get(2), facts[0].get(3));
    let reason = if number < OLDEST {
        Some(format!("its version is {version}; 14 is the oldest supported one"))
    } else if encoding != "UTF8" {
        Some(format!("the database has the encoding {encoding}; create one with UTF8"))
    } else if is_replica {
        let hint = "add all servers and target_session_attrs=read-write to the URL";
        Some(format!("it is a read-only replica; {hint}"))
    } else {
        // Before anything of the schema is executed.
        trust::problem(&mut session, &schema, database.options.migrate).await.map_err(failed)?
    };
    if let Some(reason) = reason {
        return Err(PostgresConnectError::Unfit { address, reason });
    }
    let mut found = look(&mut session, &schema).await.map_err(failed)?;
    let mut from = FORMAT;
    if matches!(found, Found::Nothing) && database.options.migrate {
        session.begin().await.map_err(failed)?;
        match create(&mut session, &schema).await {
            Ok(()) => {
                session.commit().await.map_err(failed)?;
                // A stranger may have created the schema since it was checked.
                if let Some(reason) =
                    trust::problem(&mut session, &schema, true).await.map_err(failed)?
                {
                    return Err(PostgresConnectError::Unfit { address, reason });
                }
                from = 0;
                found = look(&mut session, &schema).await.map_err(failed)?;
            }
            Err(failure) => {
                session.roll_back().await;
                found = look(&mut session, &schema).await.map_err(failed)?;
                if matches!(found, Found::Nothing) {
                    return Err(failed(failure));
                }
                // Another process has created it meanwhile.
            }
        }
    }
    let found = match found {
        Found::Nothing => {
            let reason = format!(
                "the schema {schema:?} has no tables of requeue: create them with `requeue postgres migrate`"
            );
            return Err(PostgresConnectError::Unfit { address, reason });
        }
        Found::NoFormat => {
            "has a table job, but no table format: an unreleased version has created it".to_owned()
        }
        Found::Format { version, .. } if version != FORMAT => {
            format!(
                "has format {version}, and this version of requeue supports only format {FORMAT}"
            )
        }
        Found::Format { features, .. } => {
            let unknown = |feature: &&String| !FEATURES.contains(&feature.as_str());
            let unknown: Vec<&str> = features.iter().filter(unknown).map(String::as_str).collect();
            if unknown.is_empty() {
                let recount = in_schema("select requeue._recount_if_moved()", &schema);
                session.query(&sql(&recount, []), &[]).await.map_err(failed)?;
                return Ok(Migrated { from, to: FORMAT });
            }
            let unknown = unknown.join(", ");
            format!("uses features that this version of requeue does not support: {unknown}")
        }
    };
    Err(PostgresConnectError::Format { address, schema, found })
}

async fn look(session: &mut Session<'_>, schema: &str) -> Result<Found, Failure> {
    // Not `to_regclass`: it would use what the connection remembers about the schema from before it
    // waited for the lock.
    let tables = sql(
        "select c.relname from pg_catalog.pg_class c \
         join pg_catalog.pg_namespace n on n.oid operator(pg_catalog.=) c.relnamespace \
         where n.nspname operator(pg_catalog.=) $1 \
         and c.relname operator(pg_catalog.=) any('{format,job}'::pg_catalog.name[])",
        [Type::NAME],
    );
    let tables = session.query(&tables, &[&schema]).await?;
    if !tables.iter().any(|row| row.get::<_, &str>(0) == "format") {
        return Ok(if tables.is_empty() { Found::Nothing } else { Found::NoFormat });
    }
    let format = in_schema("select version, features from requeue.format", schema);
    let rows = session.query(&sql(&format, []), &[]).await?;
    let (version, features) = rows.first().map(|row| (row.get(0), row.get(1))).unwrap_or_default();
    Ok(Found::Format { version, features })
}

/// Creates everything. The transaction has begun.
async fn create(session: &mut Session<'_>, schema: &str) -> Result<(), Failure> {
    session.execute(OWN_PATH).await?;
    let exists = sql("select 1 from pg_namespace where nspname = $1", [Type::TEXT]);
    if session.query(&exists, &[&schema]).await?.is_empty() {
        session.execute(&format!("create schema \"{schema}\"")).await?;
    }
    for file in FILES {
        session.execute(&in_schema(&with_columns(file, 0), schema)).await?;
    }
    Ok(())
}
