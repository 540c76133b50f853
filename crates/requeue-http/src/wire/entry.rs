//! The results of a batch, one per entry.

use crate::problem::Problem;
use serde::{Deserialize, Serialize};

/// The result of one entry of a batch: either `error`, or the fields of the result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Entry))]
#[serde(untagged)]
pub enum EntryResult<T> {
    /// The entry failed, or its outcome is unknown.
    Error {
        /// The problem, as if the entry had been sent alone.
        error: Box<Problem>,
    },
    /// The entry succeeded.
    Done(T),
}

/// The results of a batch, in the order of its entries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Results<T> {
    /// One result per entry.
    pub results: Vec<EntryResult<T>>,
}

impl<T, E: Into<Problem>> From<Result<T, E>> for EntryResult<T> {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(done) => EntryResult::Done(done),
            Err(error) => EntryResult::Error { error: Box::new(error.into()) },
        }
    }
}

impl<T> EntryResult<T> {
    /// Converts this entry to a `Result`.
    pub fn into_result(self) -> Result<T, Problem> {
        match self {
            EntryResult::Done(done) => Ok(done),
            EntryResult::Error { error } => Err(*error),
        }
    }
}

/// The errors of a batch of which some entries are invalid, by position.
///
/// The valid entries are sent to the store. [`join`](BatchErrors::join) then combines its results
/// with the errors, in the order of the request.
///
/// ```
/// use requeue_http::wire::BatchErrors;
/// use requeue_http::{AtField, Problem};
/// use requeue_jobs::JobId;
///
/// let read = |id: &str| JobId::new(id).at("id");
/// let (valid, errors) = BatchErrors::read("jobs", ["1", "", "3"], read);
/// assert_eq!(valid.len(), 2);
/// let results = errors.join(["one", "three"].map(Ok::<_, Problem>)).results;
/// assert_eq!(results.len(), 3);
/// let problem = results[1].clone().into_result().unwrap_err();
/// assert_eq!(problem.field.as_deref(), Some("jobs[1].id"));
/// ```
#[derive(Debug)]
pub struct BatchErrors(Vec<Option<Problem>>);

impl BatchErrors {
    /// Converts the entries of a list, the field `list` of a request, and separates the valid ones from the
    /// errors.
    pub fn read<J, T>(
        list: &str,
        entries: impl IntoIterator<Item = J>,
        read: impl Fn(J) -> Result<T, Problem>,
    ) -> (Vec<T>, BatchErrors) {
        let mut valid = Vec::new();
        let mut errors = Vec::new();
        for (n, entry) in entries.into_iter().enumerate() {
            let entry = read(entry).map_err(|problem| match problem.field {
                Some(_) => problem.within(&format!("{list}[{n}].")),
                None => problem.at(format!("{list}[{n}]")),
            });
            errors.push(entry.map(|entry| valid.push(entry)).err());
        }
        (valid, BatchErrors(errors))
    }

    /// Returns the results of all entries in the order of the request. `done` contains one result
    /// per valid entry.
    pub fn join<T, E: Into<Problem>>(
        self,
        done: impl IntoIterator<Item = Result<T, E>>,
    ) -> Results<T> {
        let mut done = done.into_iter();
        let result = |problem: Option<Problem>| match problem {
            Some(error) => EntryResult::Error { error: Box::new(error) },
            None => done.next().expect("the store returns one result per entry").into(),
        };
        Results { results: self.0.into_iter().map(result).collect() }
    }
}
