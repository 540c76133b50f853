//! Who can have put functions into the schema.
//!
//! The store executes functions of its schema with the privileges of its role. A stranger who owns the schema, because it was
//! created before that of requeue, or who may create functions in it, could make the role do anything. So this is checked
//! before anything of the schema is executed.

use crate::database::{Failure, OWN_PATH, Session};
use crate::statements::Sql;
use tokio_postgres::types::Type;

/// The roles that are trusted are that of the connection, those that it is a member of, and superusers. A superuser counts as a
/// member only of roles that were granted to it.
const OWNER: &str = "
  with recursive membership (member, role) as (
    select m.member, m.roleid from pg_auth_members m
    union all
    select d.datdba, r.oid from pg_database d, pg_roles r where d.datname = current_database() and r.rolname = 'pg_database_owner'),
  own (id) as (
    select r.oid from pg_roles r where r.rolname = current_user
    union
    select m.role from membership m join own on m.member = own.id),
  trusted (id) as (select id from own union select r.oid from pg_roles r where r.rolsuper)
  select pg_get_userbyid(n.nspowner)::text, n.nspowner in (select id from trusted),
    (select r.rolsuper from pg_roles r where r.rolname = current_user),
    (select string_agg(distinct case when a.grantee = 0 then 'public' else pg_get_userbyid(a.grantee)::text end, ', ')
     from aclexplode(n.nspacl) a
     where a.privilege_type = 'CREATE' and a.grantee <> n.nspowner and a.grantee not in (select id from trusted))
  from pg_namespace n where n.nspname = $1";

/// Returns why the schema cannot be trusted. `migrates`: whether this role creates the tables, so that no other one should own them.
pub(crate) async fn problem(
    session: &mut Session<'_>,
    schema: &str,
    migrates: bool,
) -> Result<Option<String>, Failure> {
    let sql = Sql { text: OWNER.to_owned(), types: vec![Type::TEXT] };
    session.begin().await?;
    session.execute(OWN_PATH).await?;
    let rows = session.query(&sql, &[&schema]).await?;
    session.commit().await?;
    // If there is no such schema, this role will own it.
    let Some(row) = rows.first() else { return Ok(None) };
    let (owner, is_trusted, is_superuser): (&str, bool, bool) =
        (row.get(0), row.get(1), row.get(2));
    if !is_trusted && (migrates || is_superuser) {
        let how = match is_superuser {
            true => format!("connect as {owner}, or add `options=-crole%3D{owner}` to the URL"),
            false => format!(
                "connect as {owner} or a member of it, use another schema, or, if this role may own the tables, do not \
                 migrate them (`--postgres-no-migrate`)"
            ),
        };
        return Ok(Some(format!(
            "the schema {schema:?} belongs to the role {owner}, whose functions would run with the privileges of this one: {how}"
        )));
    }
    Ok(row.get::<_, Option<&str>>(3).map(|others| {
        let who = if others == "public" { "every role" } else { others };
        format!(
            "{who} may create functions in the schema {schema:?}: use a schema of its own, or run \
             `revoke create on schema {schema} from {others}`"
        )
    }))
}
