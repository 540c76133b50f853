//! `work --exec`: what commands receive, and what happens to their jobs.

use crate::support::{Dir, Worker, await_end, runs, signal_to, until};
use rustix::process::Signal;
use std::io::Read;
use std::process::{Command, Stdio};

fn with_job(body: &str) -> Dir {
    put_job(Dir::served(), body)
}

fn put_job(dir: Dir, body: &str) -> Dir {
    dir.write("body", body);
    dir.ask(&["put", "mail", "a", "@body"]).ok();
    dir
}

#[test]
fn a_command_gets_the_body_on_stdin_and_the_job_in_its_environment() {
    let dir = with_job("{\"to\":\"ü\"}");
    let exec = "cat > stdin; env | grep ^REQUEUE_ | sort > env; echo > over";
    let mut worker = Worker::start(&dir, &["mail", "--exec", exec]);
    let done = worker.event("done");
    assert_eq!(
        (&done["kind"], &done["id"], &done["attempt"]),
        (&"mail".into(), &"a".into(), &1.into())
    );
    worker.stop();
    assert_eq!(dir.read("stdin"), "{\"to\":\"ü\"}");
    let env = dir.read("env");
    let names: Vec<&str> = env.lines().filter_map(|line| line.split('=').next()).collect();
    let expected =
        ["ATTEMPT", "CONTENT_TYPE", "DUE", "GENERATION", "ID", "KIND", "PRIORITY", "RECEIPT"];
    assert_eq!(names, expected.map(|name| format!("REQUEUE_{name}")));
    for line in ["REQUEUE_KIND=mail", "REQUEUE_ID=a", "REQUEUE_ATTEMPT=1", "REQUEUE_GENERATION=1"] {
        assert!(env.contains(line), "{env}");
    }
    assert!(env.contains("REQUEUE_CONTENT_TYPE=application/json"), "{env}");
    dir.ask(&["get", "mail", "a"]).code(3);
}

#[test]
fn a_command_does_not_inherit_the_access_of_its_worker() {
    let dir = with_job("x");
    let names = [
        "REQUEUE_TOKEN",
        "REQUEUE_TOKEN_FILE",
        "REQUEUE_READ_TOKEN",
        "REQUEUE_STORE",
        "REQUEUE_BRIDGE_FROM",
        "REQUEUE_BRIDGE_TO",
    ];
    dir.write("token", "unused-unused-unused-unused-unused");
    let exec = "env >&2; kill -TERM $PPID; exit 65";
    let args = ["work", "mail", "--exec", exec, "--token-file", "token"];
    let mut command = dir.command(&[&args[..], &dir.place()].concat());
    for name in names {
        let value = if name == "REQUEUE_TOKEN_FILE" { "token" } else { "postgres://me:hunter2@h/" };
        command.env(name, value);
    }
    let output = command.env("OTHER", "kept").output().expect("it starts");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(err.contains("OTHER=kept") && err.contains("REQUEUE_ID=a"), "{err}");
    let error = dir.job("mail", "a")["failures"][0]["error"].to_string();
    for name in names {
        let named = format!("{name}=");
        assert!(!err.contains(&named) && !error.contains(&named), "{err}{error}");
    }
    assert!(!err.contains("hunter2"), "{err}");
}

#[test]
fn a_command_that_fails_is_retried_with_the_end_of_its_stderr() {
    let dir = with_job("x");
    let exec = "echo out; echo first >&2; echo the bank is busy >&2; exit 3";
    let mut worker = Worker::start(&dir, &["mail", "--exec", exec]);
    let failed = worker.event("failed");
    assert!(failed["retry_in"].is_string(), "{failed}");
    let err = worker.stop();
    // The output of the command is passed through to stderr; stdout contains only events.
    assert!(err.contains("out\n") && err.contains("the bank is busy\n"), "{err}");
    let job = dir.job("mail", "a");
    assert_eq!(job["attempts"], 1);
    assert_eq!(job["failures"][0]["error"], "exit code 3: first\nthe bank is busy");
}

#[test]
fn a_command_that_ends_with_65_buries_its_job() {
    let dir = with_job("x");
    let exec = "echo no such order >&2; exit 65";
    let mut worker = Worker::start(&dir, &["mail", "--exec", exec]);
    assert_eq!(worker.event("dead")["error"], "exit code 65: no such order");
    worker.stop();
    let job = dir.job("mail", "a");
    assert_eq!((&job["state"], &job["deaths"]), (&"dead".into(), &1.into()));
    assert_eq!(job["failures"][0]["error"], "exit code 65: no such order");
}

#[test]
fn a_command_that_is_killed_is_retried_and_the_signal_named() {
    let dir = with_job("x");
    let mut worker = Worker::start(&dir, &["mail", "--exec", "kill -9 $$"]);
    assert_eq!(worker.event("failed")["error"], "killed by SIGKILL");
    worker.stop();
}

#[test]
fn a_command_that_times_out_is_stopped_with_its_children() {
    let dir = with_job("x");
    let exec = "sleep 600 & echo $! > child; wait";
    let args = ["mail", "--timeout", "300ms", "--exec", exec];
    let mut worker = Worker::start(&dir, &args);
    assert_eq!(worker.event("failed")["error"], "timed out after 300ms");
    await_end(&dir.await_file("child"));
    worker.stop();
}

#[test]
fn a_command_that_ignores_sigterm_is_killed() {
    let dir = with_job("x");
    let exec = "trap '' TERM; echo $$ > pid; while :; do sleep 1; done";
    let mut worker = Worker::start(&dir, &["mail", "--timeout", "500ms", "--exec", exec]);
    assert_eq!(worker.event("failed")["error"], "timed out after 500ms");
    // The file shows that the command had installed its trap.
    await_end(&dir.await_file("pid"));
    worker.stop();
}

#[test]
fn a_command_need_not_read_its_stdin() {
    let dir = with_job(&"x".repeat(1 << 20));
    let mut worker = Worker::start(&dir, &["mail", "--exec", "exit 0"]);
    worker.event("done");
    worker.stop();
}

#[test]
fn only_the_end_of_a_long_stderr_is_kept() {
    let dir = with_job("x");
    let exec = "yes error | head -c 3000000 >&2; echo last >&2; exit 1";
    let mut worker = Worker::start(&dir, &["mail", "--exec", exec]);
    let failed = worker.event("failed");
    let error = failed["error"].as_str().expect("a text");
    assert!(error.starts_with("exit code 1: ") && error.ends_with("error\nlast"), "{error}");
    assert!(error.len() <= 2048);
    assert!(worker.stop().len() >= 3_000_000);
    assert_eq!(dir.job("mail", "a")["failures"][0]["error"], error);
}

#[test]
fn processes_that_a_command_leaves_behind_are_killed() {
    let dir = with_job("x");
    let exec = "sleep 600 & echo $! > child; exit 0";
    let mut worker = Worker::start(&dir, &["mail", "--exec", exec]);
    worker.event("done");
    await_end(&dir.await_file("child"));
    worker.stop();
}

#[test]
fn a_process_that_left_the_group_does_not_delay_the_job() {
    let dir = with_job("x");
    let exec = "setsid sh -c 'echo $$ > child; exec sleep 600' & while [ ! -s child ]; do :; done";
    let mut worker = Worker::start(&dir, &["mail", "--exec", exec]);
    worker.event("done");
    let child = dir.await_file("child");
    assert!(runs(&child));
    crate::support::kill(&child);
    worker.stop();
}

#[test]
fn the_lease_is_extended_while_the_command_runs() {
    let dir = with_job("x");
    let mut worker = Worker::start(&dir, &["mail", "--lease", "1s", "--exec", "sleep 2.5"]);
    assert_eq!(worker.event("done")["attempt"], 1);
    worker.stop();
    dir.ask(&["get", "mail", "a"]).code(3);
}

#[test]
fn on_a_signal_a_worker_waits_for_running_commands() {
    // On a data directory, which no other process can open meanwhile.
    let dir = put_job(Dir::new(), "x");
    let exec = "echo > started; while [ ! -e go ]; do sleep 0.01; done";
    let mut worker = Worker::start(&dir, &["mail", "--exec", exec]);
    dir.await_file("started");
    dir.ask(&["get", "mail", "a"]).code(4).complains("in use by process");
    worker.signal(Signal::TERM);
    assert_eq!(worker.event("stopping")["running"], 1);
    dir.write("go", "");
    worker.event("done");
    assert_eq!(worker.end().0, Some(0));
    dir.ask(&["get", "mail", "a"]).code(3);
}

#[test]
fn after_the_grace_period_commands_are_stopped_and_jobs_retried() {
    let dir = with_job("x");
    let exec = "echo $$ > pid; while :; do sleep 0.01; done";
    let mut worker = Worker::start(&dir, &["mail", "--grace", "0s", "--exec", exec]);
    let pid = dir.await_file("pid");
    worker.signal(Signal::INT);
    assert_eq!(worker.event("killing")["id"], "a");
    assert_eq!(worker.event("failed")["error"], "the worker was stopped");
    assert_eq!(worker.end().0, Some(1));
    await_end(&pid);
    let job = dir.job("mail", "a");
    assert_eq!((&job["state"], &job["attempts"]), (&"waiting".into(), &1.into()));
}

#[test]
fn a_second_signal_skips_the_grace_period_and_a_third_kills() {
    let dir = with_job("x");
    let exec = "trap '' TERM; echo $$ > pid; while :; do sleep 0.01; done";
    let mut worker = Worker::start(&dir, &["mail", "--exec", exec]);
    let pid = dir.await_file("pid");
    worker.signal(Signal::TERM);
    worker.event("stopping");
    worker.signal(Signal::TERM);
    worker.event("killing");
    worker.signal(Signal::TERM);
    assert_eq!(worker.event("failed")["error"], "the worker was stopped");
    assert_eq!(worker.end().0, Some(1));
    await_end(&pid);
}

#[test]
fn commands_run_concurrently_up_to_the_limit() {
    let dir = Dir::served();
    for id in ["a", "b", "c"] {
        dir.ask(&["put", "mail", id]).ok();
    }
    // Each waits for the other two.
    let exec = "echo > $REQUEUE_ID; while [ ! -e a ] || [ ! -e b ] || [ ! -e c ]; do :; done";
    let mut worker = Worker::start(&dir, &["mail", "--concurrency", "3", "--exec", exec]);
    for _ in 0..3 {
        worker.event("done");
    }
    worker.stop();
}

#[test]
fn errors_at_start_are_reported() {
    let dir = with_job("x");
    dir.ask(&["work", "mail"]).code(2).complains("--exec <COMMAND>");
    dir.ask(&["work", "--exec", "true"]).code(2).complains("<KIND>");
    dir.ask(&["work", "mail", "--exec", " "]).code(2).complains("the command is empty");
    dir.ask(&["work", "ma il", "--exec", "true"]).code(2).complains("allowed are");
    let lease = ["work", "mail", "--exec", "true", "--lease", "1ms"];
    dir.ask(&lease).code(2).complains("the lease is 1ms; the range is 10ms");
    let none = ["work", "mail", "--exec", "true", "--data", "none"];
    dir.run(&none).code(1).complains("none is not a data directory");
}

#[test]
fn the_command_of_a_cancelled_job_is_killed() {
    let dir = with_job("x");
    let exec = "trap '' TERM; echo $$ > pid; while :; do sleep 0.01; done";
    let worker = Worker::start(&dir, &["mail", "--lease", "500ms", "--exec", exec]);
    let pid = dir.await_file("pid");
    assert_eq!(dir.job("mail", "a")["state"], "leased");
    dir.ask(&["cancel", "mail", "a"]).ok().says("ending mail/a");
    await_end(&pid);
    until("the end of the job", || (dir.ask(&["get", "mail", "a"]).code == Some(3)).then_some(()));
    worker.stop();
}

#[test]
fn the_command_of_a_lost_lease_is_killed() {
    let dir = with_job("x");
    let exec = "echo $REQUEUE_RECEIPT > receipt; echo $$ > pid; while :; do sleep 0.01; done";
    let mut worker = Worker::start(&dir, &["mail", "--lease", "500ms", "--exec", exec]);
    let pid = dir.await_file("pid");
    // Another process settles the job with the receipt.
    dir.ask(&["ack", &dir.await_file("receipt")]).ok();
    assert_eq!(worker.event("lost")["id"], "a");
    await_end(&pid);
    worker.stop();
}

#[test]
fn sighup_stops_a_worker_and_its_commands() {
    let dir = with_job("x");
    let exec = "echo $$ > pid; while :; do sleep 0.01; done";
    let mut worker = Worker::start(&dir, &["mail", "--grace", "0s", "--exec", exec]);
    let pid = dir.await_file("pid");
    worker.signal(Signal::HUP);
    worker.event("stopping");
    assert_eq!(worker.end().0, Some(1));
    await_end(&pid);
}

#[test]
fn a_worker_continues_if_stderr_is_closed() {
    let dir = with_job("x");
    let exec = "echo > ran-$REQUEUE_ID; [ $REQUEUE_ID = b ]";
    let mut command = dir.command(&[&["work", "mail", "--exec", exec], &dir.place()[..]].concat());
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
    drop(child.stderr.take());
    dir.await_file("ran-a");
    dir.ask(&["put", "mail", "b"]).ok();
    dir.await_file("ran-b");
    signal_to(&child, Signal::TERM);
    let status = until("its end", || child.try_wait().expect("it is ours"));
    assert_eq!(status.code(), Some(0));
}

#[test]
fn the_limit_of_open_files_is_raised_as_needed() {
    let dir = Dir::served();
    let lines = (0..40).map(|id| format!("{{\"kind\":\"mail\",\"id\":\"{id}\"}}\n"));
    dir.write("jobs.jsonl", lines.collect::<String>());
    dir.ask(&["put", "--file", "jobs.jsonl"]).ok();
    // All of them must run concurrently, or none ends.
    let exec = "> ran-$REQUEUE_ID; while [ $(ls | grep -c ran-) -lt 40 ]; do sleep 0.2; done";
    let args = [&["work", "mail", "-c", "40", "--exec", exec], &dir.place()[..]].concat();
    let work = dir.command(&args);
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -S -n 64; exec \"$@\"", "sh"]).arg(work.get_program());
    limited.args(work.get_args()).current_dir(dir.path("."));
    let mut child = limited.stderr(Stdio::piped()).spawn().expect("it starts");
    until("all jobs", || dir.ask(&["ls", "mail", "--json"]).ok().out.is_empty().then_some(()));
    signal_to(&child, Signal::TERM);
    let mut err = String::new();
    child.stderr.take().expect("it is piped").read_to_string(&mut err).expect("it is text");
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "{err}");
    assert!(!err.contains("Too many open files"), "{err}");
}
