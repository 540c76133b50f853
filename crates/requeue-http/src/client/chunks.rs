//! Batches that are too large for one request.
//!
//! A batch within the limits of a store can be larger than the request limit of a server, because JSON
//! escapes some bytes to six. Such a batch is sent in several requests, in order.

use super::calls::CallError;
use super::errors::change_error;
use super::{HttpStore, transport};
use crate::problem::{Problem, ProblemType};
use crate::wire::{EntryResult, Results};
use hyper::Method;
use hyper::body::Bytes;
use requeue_jobs::StoreError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::iter::repeat_n;

/// Maximum bytes of a request: a little less than the 32 MiB that a server accepts.
const MAX_REQUEST_LEN: usize = 31 << 20;

/// One request of a batch.
pub(super) struct Chunk {
    bytes: Bytes,
    /// Number of entries of the batch.
    count: usize,
}

/// Splits a batch into requests, at least one. `head` is the JSON of each before its entries.
pub(super) fn chunks<T: Serialize>(head: &str, entries: impl IntoIterator<Item = T>) -> Vec<Chunk> {
    split(MAX_REQUEST_LEN, head, entries)
}

fn split<T: Serialize>(
    max_len: usize,
    head: &str,
    entries: impl IntoIterator<Item = T>,
) -> Vec<Chunk> {
    const TAIL: &[u8] = b"]}";
    let mut chunks = Vec::new();
    let (mut bytes, mut count) = (head.as_bytes().to_vec(), 0);
    let mut end = |mut bytes: Vec<u8>, count| {
        bytes.extend_from_slice(TAIL);
        chunks.push(Chunk { bytes: Bytes::from(bytes), count });
    };
    for entry in entries {
        let entry = serde_json::to_vec(&entry).expect("requests can be serialized");
        if count > 0 && bytes.len() + 1 + entry.len() + TAIL.len() > max_len {
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
    chunks
}

impl HttpStore {
    /// Sends a batch, and returns one result per entry. If one request of several fails, the following
    /// ones are not sent, because entries are executed in order and the outcome of the failed request
    /// may be unknown.
    pub(super) async fn batch<T: DeserializeOwned>(
        &self,
        path: &str,
        chunks: Vec<Chunk>,
    ) -> Result<Vec<Result<T, Problem>>, StoreError> {
        let single = chunks.len() == 1;
        let mut results = Vec::new();
        let mut chunks = chunks.into_iter();
        for Chunk { bytes, count } in chunks.by_ref() {
            match self.send_chunk(path, bytes, count).await {
                Ok(done) => results.extend(done.into_iter().map(EntryResult::into_result)),
                Err(error) if single => return Err(change_error(error)),
                Err(error) => {
                    let problem = Problem::from(change_error(error));
                    results.extend(repeat_n(problem, count).map(Err));
                    break;
                }
            }
        }
        for Chunk { count, .. } in chunks {
            let detail = "not sent, because an earlier part of the batch failed";
            let problem = Problem::new(ProblemType::Unavailable, detail);
            results.extend(repeat_n(problem, count).map(Err));
        }
        Ok(results)
    }

    async fn send_chunk<T: DeserializeOwned>(
        &self,
        path: &str,
        bytes: Bytes,
        count: usize,
    ) -> Result<Vec<EntryResult<T>>, CallError> {
        let call = transport::HttpCall::json(Method::POST, path, Some(bytes));
        let Results { results } = self.read(call).await?;
        if results.len() != count {
            let reason = format!("the response has {} results for {count} entries", results.len());
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
        let split_texts = |max_len, entries: &[&str]| -> Vec<(String, usize)> {
            let chunks = split(max_len, r#"{"jobs":["#, entries);
            let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();
            chunks.into_iter().map(|chunk| (text(chunk.bytes), chunk.count)).collect()
        };
        let chunk = |text: &str, count| (text.to_owned(), count);
        assert_eq!(split_texts(100, &[]), [chunk(r#"{"jobs":[]}"#, 0)]);
        assert_eq!(split_texts(100, &["a", "b"]), [chunk(r#"{"jobs":["a","b"]}"#, 2)]);
        let both = r#"{"jobs":["a","b"]}"#;
        assert_eq!(split_texts(both.len(), &["a", "b"]), [chunk(both, 2)]);
        let cut = [chunk(r#"{"jobs":["a"]}"#, 1), chunk(r#"{"jobs":["b"]}"#, 1)];
        assert_eq!(split_texts(both.len() - 1, &["a", "b"]), cut);
        assert_eq!(split_texts(1, &["a", "b"]), cut);
    }
}
