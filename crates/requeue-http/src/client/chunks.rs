//! Batches that are too large for one request.
//!
//! A batch that a store takes may be larger than what a server takes: JSON writes some bytes as six.
//! Then it is sent in several requests, in its order.

use super::calls::CallError;
use super::refused;
use super::{HttpStore, link};
use crate::problem::{Problem, Sort};
use crate::wire::{Entry, Results};
use hyper::Method;
use hyper::body::Bytes;
use requeue_jobs::StoreError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::iter::repeat_n;

/// Bytes of a request: a little less than the 32 MiB that a server takes.
const MOST: usize = 31 << 20;

/// A request, and how many entries of the batch it has.
pub(super) struct Part {
    bytes: Bytes,
    count: usize,
}

/// A batch as requests, at least one. `head` is what each begins with, up to its entries.
pub(super) fn parts<T: Serialize>(head: &str, entries: impl IntoIterator<Item = T>) -> Vec<Part> {
    parts_of(MOST, head, entries)
}

fn parts_of<T: Serialize>(
    most: usize,
    head: &str,
    entries: impl IntoIterator<Item = T>,
) -> Vec<Part> {
    const TAIL: &[u8] = b"]}";
    let mut parts = Vec::new();
    let (mut bytes, mut count) = (head.as_bytes().to_vec(), 0);
    let mut end = |mut bytes: Vec<u8>, count| {
        bytes.extend_from_slice(TAIL);
        parts.push(Part { bytes: Bytes::from(bytes), count });
    };
    for entry in entries {
        let entry = serde_json::to_vec(&entry).expect("it can be written as JSON");
        if count > 0 && bytes.len() + 1 + entry.len() + TAIL.len() > most {
            end(std::mem::replace(&mut bytes, head.as_bytes().to_vec()), count);
            count = 0;
        }
        if count > 0 {
            bytes.push(b',');
        }
        bytes.extend_from_slice(&entry);
        count += 1;
    }
    end(bytes, count);
    parts
}

impl HttpStore {
    /// Sends a batch, and answers each of its entries. Where one request of several fails, the
    /// next ones are not sent: entries are done in order, and what became of these is not known.
    pub(super) async fn batch<T: DeserializeOwned>(
        &self,
        path: &str,
        parts: Vec<Part>,
    ) -> Result<Vec<Result<T, Problem>>, StoreError> {
        let alone = parts.len() == 1;
        let mut each = Vec::new();
        let mut parts = parts.into_iter();
        for Part { bytes, count } in parts.by_ref() {
            match self.part(path, bytes, count).await {
                Ok(results) => each.extend(results.into_iter().map(Entry::into_result)),
                Err(error) if alone => return Err(refused::of_a_change(error)),
                Err(error) => {
                    let problem = Problem::from(refused::of_a_change(error));
                    each.extend(repeat_n(problem, count).map(Err));
                    break;
                }
            }
        }
        for Part { count, .. } in parts {
            let detail = "it was not sent, since what is before it in the batch failed";
            let problem = Problem::new(Sort::Unavailable, detail);
            each.extend(repeat_n(problem, count).map(Err));
        }
        Ok(each)
    }

    async fn part<T: DeserializeOwned>(
        &self,
        path: &str,
        bytes: Bytes,
        count: usize,
    ) -> Result<Vec<Entry<T>>, CallError> {
        let call = link::Call::json(Method::POST, path, Some(bytes));
        let Results { results } = self.read(call).await?;
        if results.len() != count {
            let reason = format!("there are {} answers to {count} entries", results.len());
            return Err(CallError::Unknown { reason });
        }
        Ok(results)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_sent_in_as_few_requests_as_it_fits_in() {
        let told = |most, entries: &[&str]| -> Vec<(String, usize)> {
            let parts = parts_of(most, r#"{"jobs":["#, entries);
            let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
            parts.into_iter().map(|part| (text(part.bytes), part.count)).collect()
        };
        let part = |text: &str, count| (text.to_owned(), count);
        assert_eq!(told(100, &[]), [part(r#"{"jobs":[]}"#, 0)]);
        assert_eq!(told(100, &["a", "b"]), [part(r#"{"jobs":["a","b"]}"#, 2)]);
        let both = r#"{"jobs":["a","b"]}"#;
        assert_eq!(told(both.len(), &["a", "b"]), [part(both, 2)]);
        let cut = [part(r#"{"jobs":["a"]}"#, 1), part(r#"{"jobs":["b"]}"#, 1)];
        assert_eq!(told(both.len() - 1, &["a", "b"]), cut);
        assert_eq!(told(1, &["a", "b"]), cut);
    }
}
