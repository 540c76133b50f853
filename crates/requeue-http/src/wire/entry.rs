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
/// use requeue_http::{Problem, ProblemType};
/// use requeue_http::wire::BatchErrors;
///
/// let read = ["1", "x", "3"].map(|text| {
///     let invalid = |_| Problem::new(ProblemType::Invalid, format!("{text} is not a number"));
///     text.parse::<u8>().map_err(invalid)
/// });
/// let (valid, errors) = BatchErrors::split(read);
/// assert_eq!(valid, [1, 3]);
/// let results = errors.join(["one", "three"].map(Ok::<_, Problem>)).results;
/// assert_eq!(results.len(), 3);
/// assert!(results[1].clone().into_result().is_err());
/// ```
#[derive(Debug)]
pub struct BatchErrors(Vec<Option<Problem>>);

impl BatchErrors {
    /// Separates the valid entries from the errors.
    pub fn split<T>(read: impl IntoIterator<Item = Result<T, Problem>>) -> (Vec<T>, BatchErrors) {
        let mut valid = Vec::new();
        let mut errors = Vec::new();
        for entry in read {
            match entry {
                Ok(entry) => {
                    valid.push(entry);
                    errors.push(None);
                }
                Err(problem) => errors.push(Some(problem)),
            }
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
