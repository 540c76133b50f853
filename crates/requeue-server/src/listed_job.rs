//! A job of a list, without the bodies that are longer than the client wants.
//!
//! The bodies are dropped before the response is written, so that they take no memory meanwhile.

use crate::response_memory::Weighed;
use requeue_http::wire::JobJson;
use requeue_jobs::{Body, JobView};

/// A job. Where a body was left out, the view has an empty body, and its length is here.
pub(crate) struct ListedJob {
    job: JobView,
    body_bytes: Option<usize>,
    next_bytes: Option<usize>,
    result_bytes: Option<usize>,
}

impl ListedJob {
    /// Drops the bodies that are longer than `body_limit`, if there is one.
    pub(crate) fn new(mut job: JobView, body_limit: Option<usize>) -> Self {
        let limit = body_limit.unwrap_or(usize::MAX);
        let body_bytes = leave_out(&mut job.version.content.body, limit);
        let next_bytes =
            job.next.as_mut().and_then(|next| leave_out(&mut next.content.body, limit));
        let result = job.done.as_mut().and_then(|done| done.result.as_mut());
        let result_bytes = result.and_then(|result| leave_out(result, limit));
        ListedJob { job, body_bytes, next_bytes, result_bytes }
    }

    /// Returns the JSON of the job, with `body_bytes` where a body was left out.
    pub(crate) fn json(&self) -> JobJson {
        let mut json = JobJson::from(&self.job);
        if self.body_bytes.is_some() {
            // An empty text would be the body of the job.
            json.body_text = None;
            json.body_bytes = self.body_bytes;
        }
        if let (Some(next), Some(_)) = (&mut json.next, self.next_bytes) {
            next.body_text = None;
            next.body_bytes = self.next_bytes;
        }
        let result = json.done.as_mut().and_then(|done| done.result.as_mut());
        if let (Some(result), Some(_)) = (result, self.result_bytes) {
            result.body_text = None;
            result.body_bytes = self.result_bytes;
        }
        json
    }
}

impl Weighed for ListedJob {
    fn weight(&self) -> usize {
        self.job.weight()
    }
}

/// Empties a body that is longer than `limit`. Returns its length if it was.
fn leave_out(body: &mut Body, limit: usize) -> Option<usize> {
    let len = body.len();
    if len <= limit {
        return None;
    }
    *body = Body::new([], body.content_type()).expect("the content type of a body is valid");
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use requeue_jobs::{Generation, JobId, Kind, Timestamp, Version};

    #[test]
    fn a_body_that_is_left_out_takes_no_memory() {
        let (kind, id) = (Kind::new("mail").expect("a kind"), JobId::new("a").expect("an id"));
        let body = Body::octets(vec![b'x'; 1000]).expect("a body");
        let job = JobView::new(kind, id, Version::new(body, Timestamp::default(), Generation(1)));
        let all = ListedJob::new(job.clone(), None);
        let exact = ListedJob::new(job.clone(), Some(1000));
        let without = ListedJob::new(job.clone(), Some(999));
        assert_eq!((all.weight(), exact.weight()), (job.weight(), job.weight()));
        assert_eq!(without.weight(), job.weight() - 1000);
        assert_eq!(without.json().body_bytes, Some(1000));
    }
}
