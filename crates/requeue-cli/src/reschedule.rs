//! `reschedule`: changes the due time, the priority or the body of a job, and nothing else.

use crate::body::BodyType;
use crate::error::{CliError, Result};
use crate::job_name::JobName;
use crate::output::{Output, print_labelled};
use crate::put::print;
use crate::store_args::{IfMissing, StoreArgs};
use crate::times;
use requeue_jobs::limits::{MAX_BODY_LEN, MAX_PRIORITY};
use requeue_jobs::{
    Change, ChangeError, ChangeKind, Changed, Due, Generation, Priority, PutOutcome, Reschedule,
    Timestamp,
};
use std::time::Duration;

#[derive(Debug, clap::Args)]
#[command(override_usage = "\
requeue reschedule [OPTIONS] <KIND> <ID>
       requeue reschedule [OPTIONS] <KIND>/<ID>")]
#[command(after_help = "\
What is not named stays as it is. `requeue put` replaces the whole job instead.

  A leased job    Its current run goes on; the change applies to the next one,
                  which the change adds if there is none.
  A dead job      With --in or --at, it is revived; otherwise it stays dead.
  A job that is done or does not exist
                  The command fails, and changes nothing.

Examples:
  requeue reschedule order.close order-42 --in 3d
  requeue reschedule mail/order-42 --at 'tomorrow 09:00 Europe/Berlin'
  requeue reschedule mail order-42 --priority 9 --if-generation 17
  requeue reschedule mail order-42 --body @letter.json")]
pub(crate) struct Args {
    #[command(flatten)]
    name: JobName,
    /// Time until the job is due, such as 5m or 1h30m
    #[arg(long = "in", visible_alias = "delay", value_name = "DURATION")]
    #[arg(value_parser = times::duration, conflicts_with = "at")]
    delay: Option<Duration>,
    /// Time at which the job is due, such as 'tomorrow 09:00 Europe/Berlin'
    #[arg(long, visible_alias = "due", value_name = "TIME", value_parser = times::time)]
    at: Option<Timestamp>,
    /// Priority, 0 to 9
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=i64::from(MAX_PRIORITY)))]
    priority: Option<u8>,
    /// New body: text, - to read stdin, or @FILE to read a file
    #[arg(long)]
    body: Option<String>,
    #[command(flatten)]
    body_type: BodyType,
    /// Fail unless the latest put or reschedule of the job returned generation N
    #[arg(long, value_name = "N")]
    if_generation: Option<u64>,
}

impl Args {
    fn set(&self) -> Result<Reschedule> {
        if self.body.is_none() && !self.body_type.is_default() {
            return Err(CliError::usage("--content-type and --text need --body BODY"));
        }
        let read = |body: &String| self.body_type.read(body, MAX_BODY_LEN);
        let set = Reschedule {
            due: self.delay.map(Due::After).or(self.at.map(Due::At)),
            priority: self.priority.map(Priority::new).transpose()?,
            body: self.body.as_ref().map(read).transpose()?,
            if_generation: self.if_generation.map(Generation),
        };
        if set.check().is_err() {
            return Err(CliError::usage(
                "nothing to change: give at least one of --in, --at, --priority and --body",
            ));
        }
        Ok(set)
    }
}

pub(crate) async fn reschedule(args: Args, store_args: &StoreArgs, out: Output) -> Result<()> {
    let action = ChangeKind::Reschedule(args.set()?);
    let (kind, id) = args.name.read()?;
    let store = store_args.open(IfMissing::Fail).await?;
    let change = Change { kind: kind.clone(), id: id.clone(), action };
    let changed = store.change(vec![change]).await?;
    let changed = changed.into_iter().next().expect("a store returns one result per entry");
    let changed = changed.map_err(|error| {
        let is_absent = matches!(error, ChangeError::Absent { .. });
        let hint = "a job that is done is removed; to put it again: requeue put";
        CliError::from(error).or_hint(is_absent.then(|| hint.to_owned()))
    })?;
    let Changed::Rescheduled(placed) = changed else {
        unreachable!("a reschedule has the result of a reschedule: {changed:?}");
    };
    print(out, &kind, &id, placed)?;
    if placed.outcome == PutOutcome::Coalesced && !out.json {
        print_labelled("note", "the job is leased; the change applies to its next run");
    }
    Ok(())
}
