//! Consistency check of the keys.

use crate::deployment::Deployment;
use crate::keys::Keys;
use crate::kinds::AT_ONCE;
use crate::reply::Reply;
use futures_util::future::join_all;
use redis::Cmd;
use requeue_jobs::{Kind, StoreError};
use std::collections::BTreeSet;

impl Deployment {
    pub(crate) async fn check(&self) -> Result<Vec<String>, StoreError> {
        let mut problems = Vec::new();
        for kinds in self.names().await?.chunks(AT_ONCE) {
            for checked in join_all(kinds.iter().map(|kind| self.check_kind(kind))).await {
                problems.extend(checked?);
            }
        }
        Ok(problems)
    }

    async fn check_kind(&self, kind: &Kind) -> Result<Vec<String>, StoreError> {
        let keys = self.keys(kind);
        let (mut problems, mut listed) = (Vec::new(), BTreeSet::new());
        let mut by_state = [(); 4].map(|()| BTreeSet::new());
        for (list, ids) in keys.lists().into_iter().zip(&mut by_state) {
            for id in self.texts(&keys, range(list)).await? {
                if !listed.insert(id.clone()) {
                    problems.push(format!("job {id:?} of kind {kind} is in two lists"));
                }
                ids.insert(id);
            }
        }
        let [_, leased, dead, done] = &by_state;
        let hashes = [keys.job(), keys.lease(), keys.next(), keys.past()].map(hash_keys);
        let all = join_all(hashes.into_iter().map(|cmd| self.texts(&keys, cmd))).await;
        let all = all.into_iter().collect::<Result<Vec<_>, _>>()?;
        let [job, lease, next, past] = &all[..] else { return Ok(problems) };
        for id in listed.symmetric_difference(job) {
            problems.push(format!("job {id:?} of kind {kind} is not both listed and recorded"));
        }
        if lease != leased {
            problems.push(format!("the leases of kind {kind} are not those of its leased jobs"));
        }
        if !next.is_subset(leased) {
            problems.push(format!("kind {kind} has a successor of what is not leased"));
        }
        if !past.is_subset(job) || !dead.is_subset(past) || !done.is_subset(past) {
            problems.push(format!(
                "kind {kind} has a past without a job, or a dead or done job without a past"
            ));
        }
        Ok(problems)
    }

    async fn texts(&self, keys: &Keys, cmd: Cmd) -> Result<BTreeSet<String>, StoreError> {
        let mut reply = Reply::of(self.read(&keys.tag, cmd).await?)?;
        let mut texts = BTreeSet::new();
        while !reply.is_empty() {
            texts.insert(reply.text()?);
        }
        Ok(texts)
    }
}

fn range(list: &str) -> Cmd {
    let mut cmd = redis::cmd("ZRANGE");
    cmd.arg(list).arg(0).arg(-1);
    cmd
}

fn hash_keys(hash: &str) -> Cmd {
    let mut cmd = redis::cmd("HKEYS");
    cmd.arg(hash);
    cmd
}
