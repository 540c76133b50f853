//! The name of a job or schedule on the command line: `KIND ID`, or `KIND/ID` as the program prints it.
//!
//! A kind contains no `/`, so that the first one ends it. An id can contain any.

use crate::error::{CliError, Result};
use requeue_jobs::{JobId, Kind};

/// The name of one job or schedule.
#[derive(Debug, clap::Args)]
pub(crate) struct JobName {
    /// Kind; or KIND/ID, as the program prints it
    pub(crate) kind: String,
    /// Id
    pub(crate) id: Option<String>,
}

impl JobName {
    pub(crate) fn read(self) -> Result<(Kind, JobId)> {
        let (kind, id) = self.texts()?;
        names(kind, id)
    }

    /// Also accepts the kinds of the service itself, which can only be read.
    pub(crate) fn read_any(self) -> Result<(Kind, JobId)> {
        let (kind, id) = self.texts()?;
        Ok((Kind::with_reserved(kind)?, JobId::new(id)?))
    }

    fn texts(self) -> Result<(String, String)> {
        let (kind, id, rest) = split(self.kind, [self.id])?;
        no_more(&kind, &id, rest)?;
        Ok((kind, id))
    }
}

/// Splits the arguments of a command that takes `KIND ID` or `KIND/ID`, and then other arguments. Returns
/// kind, id and the others.
pub(crate) fn split<const N: usize>(
    first: String,
    more: [Option<String>; N],
) -> Result<(String, String, Option<String>)> {
    let mut more = more.into_iter().flatten();
    let (kind, id) = match first.split_once('/') {
        Some((kind, id)) => (kind.to_owned(), id.to_owned()),
        None => (first, more.next().ok_or_else(no_id)?),
    };
    let rest = more.next();
    if let (Some(_), Some(extra)) = (&rest, more.next()) {
        no_more(&kind, &id, Some(extra))?;
    }
    Ok((kind, id, rest))
}

fn no_more(kind: &str, id: &str, extra: Option<String>) -> Result<()> {
    match extra {
        None => Ok(()),
        Some(extra) => Err(CliError::usage(format!(
            "unexpected argument {extra:?}: {kind}/{id} contains the id already"
        ))),
    }
}

/// The names of several jobs: `KIND ID…`, or `KIND/ID…`.
pub(crate) fn several(first: String, more: Vec<String>) -> Result<Vec<(Kind, JobId)>> {
    if !first.contains('/') {
        if more.is_empty() {
            return Err(no_id());
        }
        return more.into_iter().map(|id| names(first.clone(), id)).collect();
    }
    let full = std::iter::once(first).chain(more).map(|name| match name.split_once('/') {
        Some((kind, id)) => names(kind.to_owned(), id.to_owned()),
        None => Err(CliError::usage(format!(
            "{name:?} is not KIND/ID, although the first name is; write all names in the same form"
        ))),
    });
    full.collect()
}

fn names(kind: String, id: String) -> Result<(Kind, JobId)> {
    Ok((Kind::new(kind)?, JobId::new(id)?))
}

fn no_id() -> CliError {
    CliError::usage("the id is missing: write <KIND> <ID>, or <KIND>/<ID>")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn several(names: &[&str]) -> Result<Vec<String>> {
        let mut names = names.iter().map(|name| (*name).to_owned());
        let first = names.next().expect("there is a name");
        let read = super::several(first, names.collect())?;
        Ok(read.iter().map(|(kind, id)| format!("{kind} {}", id.as_str())).collect())
    }

    #[test]
    fn the_first_slash_ends_the_kind_and_an_id_can_contain_more() {
        assert_eq!(several(&["mail", "a/b", "c"]).unwrap(), ["mail a/b", "mail c"]);
        assert_eq!(several(&["mail/a/b", "sms/c"]).unwrap(), ["mail a/b", "sms c"]);
        for names in [&["mail"][..], &["mail/"], &["mail/a", "b"], &["ma il/a"], &["/a"]] {
            assert!(several(names).is_err(), "{names:?}");
        }
    }

    #[test]
    fn an_argument_after_the_name_is_not_part_of_it() {
        let split = |first: &str, more: [Option<&str>; 2]| {
            split(first.to_owned(), more.map(|text| text.map(str::to_owned)))
        };
        let of = |body: Option<&str>| ("mail".to_owned(), "a".to_owned(), body.map(str::to_owned));
        assert_eq!(split("mail", [Some("a"), None]).unwrap(), of(None));
        assert_eq!(split("mail", [Some("a"), Some("x/y")]).unwrap(), of(Some("x/y")));
        assert_eq!(split("mail/a", [Some("x/y"), None]).unwrap(), of(Some("x/y")));
        assert!(split("mail/a", [Some("b"), Some("x")]).is_err());
        assert!(split("mail", [None, None]).is_err());
    }
}
