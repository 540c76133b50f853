//! One answer per entry of a batch.

use crate::problem::Problem;
use serde::{Deserialize, Serialize};

/// What became of an entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum Entry<T> {
    /// It was not done, or that is not known.
    Error {
        /// Why.
        error: Box<Problem>,
    },
    /// It was done.
    Done(T),
}

/// What became of the entries of a batch, in their order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Results<T> {
    /// One for each.
    pub results: Vec<Entry<T>>,
}

impl<T, E: Into<Problem>> From<Result<T, E>> for Entry<T> {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(done) => Entry::Done(done),
            Err(error) => Entry::Error { error: Box::new(error.into()) },
        }
    }
}

impl<T> Entry<T> {
    /// What was done, or why it was not.
    pub fn into_result(self) -> Result<T, Problem> {
        match self {
            Entry::Done(done) => Ok(done),
            Entry::Error { error } => Err(*error),
        }
    }
}

/// The entries of a request of which some could not be read: these are answered, and the others
/// are sent to the store.
///
/// ```
/// use requeue_http::{Problem, Sort};
/// use requeue_http::wire::BatchErrors;
///
/// let read = ["1", "x", "3"].map(|text| {
///     text.parse::<u8>().map_err(|_| Problem::new(Sort::Invalid, format!("{text} is no number")))
/// });
/// let (sent, answered) = BatchErrors::split(read);
/// assert_eq!(sent, [1, 3]);
/// let results = answered.join(["one", "three"].map(Ok::<_, Problem>)).results;
/// assert_eq!(results.len(), 3);
/// assert!(results[1].clone().into_result().is_err());
/// ```
#[derive(Debug)]
pub struct BatchErrors(Vec<Option<Problem>>);

impl BatchErrors {
    /// Those that could be read, and the rest.
    pub fn split<T>(read: impl IntoIterator<Item = Result<T, Problem>>) -> (Vec<T>, BatchErrors) {
        let mut sent = Vec::new();
        let mut answered = Vec::new();
        for entry in read {
            match entry {
                Ok(entry) => {
                    sent.push(entry);
                    answered.push(None);
                }
                Err(problem) => answered.push(Some(problem)),
            }
        }
        (sent, BatchErrors(answered))
    }

    /// All answers, in the order of the request. `done` has one for each that was sent.
    pub fn join<T, E: Into<Problem>>(
        self,
        done: impl IntoIterator<Item = Result<T, E>>,
    ) -> Results<T> {
        let mut done = done.into_iter();
        let answer = |problem: Option<Problem>| match problem {
            Some(error) => Entry::Error { error: Box::new(error) },
            None => done.next().expect("the store answers each entry").into(),
        };
        Results { results: self.0.into_iter().map(answer).collect() }
    }
}
