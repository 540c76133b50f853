//! Help, the manual, completions, and errors about the command line.

use crate::support::Dir;

const COMMANDS: [&str; 33] = [
    "serve",
    "demo",
    "put",
    "reschedule",
    "get",
    "ls",
    "stats",
    "top",
    "workers",
    "events",
    "claim",
    "ack",
    "retry",
    "release",
    "extend",
    "bury",
    "cancel",
    "revive",
    "run-now",
    "pause",
    "resume",
    "kind",
    "schedule",
    "work",
    "bridge",
    "export",
    "import",
    "verify",
    "backup",
    "postgres",
    "bench",
    "completions",
    "man",
];

#[test]
fn every_command_has_help() {
    let dir = Dir::new();
    let all = dir.run(&["--help"]).ok();
    for command in COMMANDS {
        assert!(all.out.contains(&format!("\n  {command} ")), "no {command} in {}", all.out);
        for help in ["--help", "-h"] {
            let done = dir.run(&[command, help]).ok().says(&format!("Usage: requeue {command}"));
            let wide = done.out.lines().find(|line| line.chars().count() > 100);
            assert_eq!(wide, None, "{command}");
        }
    }
    let listed = all.out.split("Commands:").nth(1).and_then(|rest| rest.split("\n\n").next());
    let listed = listed.expect("commands are listed").lines().filter(|line| !line.is_empty());
    assert_eq!(listed.count(), COMMANDS.len() + 1, "a command other than `help` is not tested");
}

#[test]
fn help_can_be_asked_for_in_the_usual_ways() {
    let dir = Dir::new();
    let of_put = dir.run(&["put", "--help"]).ok().out;
    assert_eq!(dir.run(&["help", "put"]).ok().out, of_put);
    assert_eq!(dir.run(&["help"]).ok().out, dir.run(&["--help"]).ok().out);
    dir.run(&["help", "schedule", "set"]).ok().says("Usage: requeue schedule set");
    dir.run(&["help", "kind", "delete"]).ok().says("Usage: requeue kind delete");
    dir.run(&["help", "list"]).ok().says("Usage: requeue ls");
    dir.run(&["help", "nonsense"]).code(2).complains("unrecognized subcommand 'nonsense'");
}

#[test]
fn the_options_for_tuning_a_store_are_only_in_the_help_of_the_program_and_of_serve() {
    let dir = Dir::new();
    for args in [&["--help"][..], &["help", "serve"], &["serve", "--help"]] {
        dir.run(args).ok().says("--postgres-poll").says("--redis-cert");
    }
    let put = dir.run(&["put", "--help"]).ok().says("--postgres-schema").says("--redis-prefix");
    assert!(!put.out.contains("--postgres-poll") && !put.out.contains("--redis-cert"), "{put:?}");
    // They work all the same.
    dir.run(&["put", "a", "b", "--postgres-poll", "2h"]).code(2).complains("1ms to 1h");
    dir.run(&["schedule", "ls", "--redis-cert", "f"]).code(2).complains("--redis-key");
}

#[test]
fn exit_codes_and_commands_are_in_the_help_the_manual_and_the_docs() {
    let dir = Dir::new();
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let docs = std::fs::read_to_string(docs).expect("docs/cli.md");
    let help = dir.run(&["--help"]).ok().out;
    let man = dir.run(&["man"]).ok().out;
    for code in 0..=6 {
        assert!(help.contains(&format!("\n  {code}  ")), "{help}");
        assert!(man.contains(&format!("\n  {code}  ")), "{man}");
        assert!(docs.contains(&format!("| {code} |")), "{code} in docs/cli.md");
    }
    for command in COMMANDS {
        assert!(docs.contains(&format!("`{command}")), "{command} in docs/cli.md");
    }
}

#[test]
fn completions_exist_for_all_shells() {
    let dir = Dir::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        dir.run(&["completions", shell]).ok().says("run-now");
    }
    dir.run(&["completions", "tcsh"]).code(2).complains("possible values: bash");
}

#[test]
fn bash_accepts_its_completion_script() {
    let dir = Dir::new();
    dir.write("script", dir.run(&["completions", "bash"]).ok().out);
    let script = "set -e; . ./script; COMP_WORDS=(requeue pa); COMP_CWORD=1
        _requeue requeue pa requeue; echo \"${COMPREPLY[@]}\"";
    let mut bash = std::process::Command::new("bash");
    let output = bash.args(["-c", script]).current_dir(dir.path("")).output();
    let output = output.expect("bash runs");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "pause", "{err}");
}

#[test]
fn the_manual_has_a_page_for_every_command() {
    let dir = Dir::new();
    dir.run(&["man"]).ok().says(".TH requeue 1");
    dir.run(&["man", "--out", "pages"]).ok();
    for command in COMMANDS {
        let page = dir.read(&format!("pages/requeue-{command}.1"));
        assert!(page.contains(".TH"), "{page}");
    }
}

#[test]
fn an_invalid_command_line_exits_with_2_and_names_the_problem() {
    let dir = Dir::new();
    let cases: &[(&[&str], &str)] = &[
        (&[], "Usage: requeue"),
        (&["pt"], "unrecognized subcommand 'pt'"),
        (&["put", "mail"], "<ID>"),
        (&["put", "ma il", "a"], "contains the character ' '; allowed are A-Z a-z 0-9 . _ -"),
        (&["put", "mail", ""], "the id must not be empty"),
        (&["put", "mail", "a", "--in", "5"], "write 5s or 5m"),
        (&["put", "mail", "a", "--in", "soon"], "is not a duration"),
        (&["put", "mail", "a", "--at", "5m"], "write in 5m"),
        (&["put", "mail", "a", "--at", "09:00 Mars/Base"], "Mars/Base"),
        (&["put", "mail", "a", "--in", "5m", "--at", "09:00"], "cannot be used with"),
        (
            &["put", "mail", "a", "--mode", "debounce"],
            "--max-wait: mode debounce requires max_wait",
        ),
        (
            &["put", "mail", "a", "--max-wait", "5m"],
            "--max-wait: max_wait is only allowed with mode debounce",
        ),
        (&["put", "mail", "a", "--if-absent", "--if-generation", "1"], "cannot be used with"),
        (&["put", "mail", "a", "--file", "f"], "cannot be used with"),
        (&["ack"], "<RECEIPT>"),
        (&["ack", "nonsense"], "\"nonsense\" is not a receipt"),
        (&["revive", "mail"], "<ID>"),
        (&["get", "mail"], "<ID>"),
        (&["revive", "mail", "a", "--all"], "cannot be used with"),
        (&["ls", "mail", "--state", "asleep"], "waiting, ready, leased, dead"),
        (&["kind", "mail", "--max-attempts", "0"], "0 is not in 1.."),
        (&["kind", "mail", "--concurrency", "many"], "expected a number or `none`"),
        (&["schedule"], "Usage: requeue schedule"),
        (&["schedule", "set", "mail", "a"], "--cron: cron or every is required"),
        (&["schedule", "set", "mail", "a", "--cron", "x", "--every", "1h"], "cannot be used with"),
        (
            &["schedule", "set", "mail", "a", "--time-zone", "UTC", "--every", "1h"],
            "cannot be used with",
        ),
        (&["schedule", "next", "mail"], "<ID>"),
        (&["schedule", "next", "--cron", "0 0 31 2 *"], "never fires"),
        (&["schedule", "next", "--cron", "0 25 * * *"], "the hour \"25\""),
        (&["schedule", "next", "--cron", "@daily", "--time-zone", "Mars/Base"], "Mars/Base"),
        (&["schedule", "next", "--every", "1ms"], "the period of the schedule is 1ms"),
        (&["stats", "--data", "d", "--server", "http://h"], "use only one of"),
        (&["--data", "d", "stats", "--store", "redis://h"], "use only one of"),
        (&["stats", "--store", "http://h"], "invalid URL in --store"),
        (&["stats", "--store", "postgres:h"], "invalid Postgres URL: it must begin with"),
        (
            &["stats", "--store", "postgres://h", "--postgres-schema", "Shop"],
            "the schema is \"Shop\"",
        ),
        (&["stats", "--postgres-connections", "0"], "0 is not in 1..=1000"),
        (&["stats", "--postgres-poll", "2h"], "the interval must be 1ms to 1h"),
        (&["stats", "--store", "postgres://h", "--ca-file", "f"], "sslrootcert=FILE"),
        (&["postgres"], "Usage: requeue postgres"),
        (&["postgres", "migrate", "--store", "redis://h"], "use --store postgres://"),
        (&["postgres", "check"], "use --store postgres://"),
        (
            &["postgres", "migrate", "--store", "postgres://h", "--postgres-no-migrate"],
            "--postgres-no-migrate does not apply",
        ),
        (&["backup", "--store", "postgres://h"], "use pg_dump"),
        (&["serve", "--store", "postgres://h", "--backups", "b"], "--backups does not apply"),
        (&["backup", "--data", "d"], "--data needs --to DIR"),
        (&["serve", "--server", "http://h"], "--data DIR or --store URL"),
        (&["serve", "--listen", "here"], "--listen <ADDR>"),
        (&["serve", "--tls-cert", "c"], "--tls-key"),
        (&["serve", "--log", "a=b=c"], "is not a valid filter"),
    ];
    for (args, message) in cases {
        dir.run(args).code(2).complains(message);
    }
    assert!(!dir.path("requeue-data").exists() && !dir.path("d").exists());
}

#[test]
fn without_a_server_a_hint_explains_how_to_start_one() {
    let dir = Dir::new();
    let nobody = "http://127.0.0.1:1";
    let done = dir.run(&["stats", "--server", nobody]).code(4);
    done.complains("127.0.0.1:1").complains("hint: ").complains("requeue serve");
    let mut command = dir.command(&["stats", "--json"]);
    let output = command.env("REQUEUE_SERVER", nobody).output().expect("it starts");
    let error: serde_json::Value = serde_json::from_slice(&output.stderr).expect("JSON");
    assert_eq!(error["exit"], 4, "{error}");
    assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("requeue serve")), "{error}");
}
