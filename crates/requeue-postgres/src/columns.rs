//! The columns of the table `job`: the only list of them outside of `tables.sql`.
//!
//! It generates the type of a row, how one is read, the parameters of the function `_write`, and that function's text. So a new
//! column is one line here, and what [`rows`](crate::rows) does with it.

use crate::head::StoredHead;
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

macro_rules! columns {
    ($($(#[$doc:meta])* $name:ident: $rust:ty = $sql:literal $array:ident;)*) => {
        /// A row of the table `job`, without its kind.
        pub(crate) struct StoredJob<'a> {
            $($(#[$doc])* pub(crate) $name: $rust,)*
        }

        impl<'a> StoredJob<'a> {
            /// Reads the columns of a job, after `skip` others.
            pub(crate) fn read(row: &'a Row, skip: usize) -> Self {
                let mut columns = skip..;
                StoredJob { $($name: row.get(columns.next().expect("it has no end")),)* }
            }
        }

        /// Rows to write, by column.
        #[derive(Default)]
        pub(crate) struct Columns<'a> {
            $($name: Vec<$rust>,)*
        }

        impl<'a> Columns<'a> {
            pub(crate) fn add(&mut self, row: StoredJob<'a>) {
                $(self.$name.push(row.$name);)*
            }

            /// The parameters of the function `_write`, after the others.
            pub(crate) fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
                vec![$(&self.$name,)*]
            }
        }

        /// Their types.
        pub(crate) fn array_types() -> Vec<Type> {
            vec![$(Type::$array,)*]
        }

        /// The names of the columns, with their types.
        const COLUMNS: &[(&str, &str)] = &[$((stringify!($name), $sql),)*];
    };
}

columns! {
    list: i16 = "smallint" INT2_ARRAY;
    priority: Option<i16> = "smallint" INT2_ARRAY;
    at: i64 = "bigint" INT8_ARRAY;
    place: i64 = "bigint" INT8_ARRAY;
    due: Option<i64> = "bigint" INT8_ARRAY;
    generation: i64 = "bigint" INT8_ARRAY;
    created_at: i64 = "bigint" INT8_ARRAY;
    updated_at: Option<i64> = "bigint" INT8_ARRAY;
    attempts: Option<i32> = "int" INT4_ARRAY;
    deaths: Option<i32> = "int" INT4_ARRAY;
    floor: Option<i64> = "bigint" INT8_ARRAY;
    first_put_at: Option<i64> = "bigint" INT8_ARRAY;
    fence: Option<i64> = "bigint" INT8_ARRAY;
    nonce: Option<i64> = "bigint" INT8_ARRAY;
    claimed_at: Option<i64> = "bigint" INT8_ARRAY;
    cancelled: Option<bool> = "boolean" BOOL_ARRAY;
    next_generation: Option<i64> = "bigint" INT8_ARRAY;
    next_due: Option<i64> = "bigint" INT8_ARRAY;
    next_put_at: Option<i64> = "bigint" INT8_ARRAY;
    next_priority: Option<i16> = "smallint" INT2_ARRAY;
    id: String = "text" TEXT_ARRAY;
    worker: Option<String> = "text" TEXT_ARRAY;
    content_type: Option<String> = "text" TEXT_ARRAY;
    next_content_type: Option<String> = "text" TEXT_ARRAY;
    failures: Option<String> = "text" TEXT_ARRAY;
    /// `None` in a row to write: it stays as it is, with its head.
    body: Option<&'a [u8]> = "bytea" BYTEA_ARRAY;
    next_body: Option<&'a [u8]> = "bytea" BYTEA_ARRAY;
    result: Option<&'a [u8]> = "bytea" BYTEA_ARRAY;
    head: Option<StoredHead> = "jsonb" JSONB_ARRAY;
    next_head: Option<StoredHead> = "jsonb" JSONB_ARRAY;
}

fn each(separator: &str, of: impl Fn(&str, &str) -> String) -> String {
    let all: Vec<String> = COLUMNS.iter().map(|(name, sql)| of(name, sql)).collect();
    all.join(separator)
}

/// Replaces what stands for the columns in a text of SQL. `$1` and so on are the parameters before theirs.
pub(crate) fn with_columns(text: &str, parameters: usize) -> String {
    if !text.contains("JOB_") {
        return text.to_owned();
    }
    let numbers = (parameters + 1..).take(COLUMNS.len());
    let numbers: Vec<String> = numbers.map(|n| format!("${n}")).collect();
    text.replace("JOB_COLUMNS", &each(", ", |name, _| name.to_owned()))
        .replace("JOB_ARGUMENTS", &each(", ", |name, sql| format!("all_{name} {sql}[]")))
        .replace("JOB_ARRAYS", &each(", ", |name, _| format!("all_{name}")))
        .replace("JOB_VALUES", &each(", ", |name, _| format!("r.{name}")))
        .replace(
            "JOB_CHANGES",
            &each(", ", |name, _| match name {
                "body" => "body = coalesce(u.body, j.body)".to_owned(),
                "head" => "head = case when u.body is null then j.head else u.head end".to_owned(),
                _ => format!("{name} = u.{name}"),
            }),
        )
        .replace("JOB_NUMBERS", &numbers.join(", "))
}
