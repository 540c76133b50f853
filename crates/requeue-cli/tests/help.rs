//! What the program says about itself, and about what it cannot do.

mod support;

use support::Dir;

const VERBS: [&str; 25] = [
    "serve",
    "put",
    "get",
    "ls",
    "stats",
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
    "work",
    "export",
    "import",
    "verify",
    "backup",
    "bench",
    "completions",
    "man",
];

#[test]
fn every_verb_explains_itself() {
    let dir = Dir::new();
    let all = dir.run(&["--help"]).ok();
    for verb in VERBS {
        assert!(all.out.contains(&format!("\n  {verb} ")), "no {verb} in {}", all.out);
        for help in ["--help", "-h"] {
            let done = dir.run(&[verb, help]).ok().says(&format!("Usage: requeue {verb}"));
            let wide = done.out.lines().find(|line| line.chars().count() > 100);
            assert_eq!(wide, None, "{verb}");
        }
    }
    let listed = all.out.split("Commands:").nth(1).and_then(|rest| rest.split("\n\n").next());
    let listed = listed.expect("verbs are listed").lines().filter(|line| !line.is_empty());
    assert_eq!(listed.count(), VERBS.len(), "a verb is not tested");
}

#[test]
fn exit_codes_are_in_the_help_in_the_manual_and_in_the_docs() {
    let dir = Dir::new();
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let docs = std::fs::read_to_string(docs).expect("docs/cli.md");
    let help = dir.run(&["--help"]).ok().out;
    let man = dir.run(&["man"]).ok().out;
    for code in 0..=5 {
        assert!(help.contains(&format!("\n  {code}  ")), "{help}");
        assert!(man.contains(&format!("\n  {code}  ")), "{man}");
        assert!(docs.contains(&format!("| {code} |")), "{code} in docs/cli.md");
    }
    for verb in VERBS {
        assert!(docs.contains(&format!("`{verb}")), "{verb} in docs/cli.md");
    }
}

#[test]
fn there_are_completions_for_shells() {
    let dir = Dir::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        dir.run(&["completions", shell]).ok().says("run-now");
    }
    dir.run(&["completions", "tcsh"]).code(2).complains("possible values: bash");
}

#[test]
fn bash_reads_its_completions() {
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
fn the_manual_has_a_page_for_every_verb() {
    let dir = Dir::new();
    dir.run(&["man"]).ok().says(".TH requeue 1");
    dir.run(&["man", "--out", "pages"]).ok();
    for verb in VERBS {
        let page = dir.read(&format!("pages/requeue-{verb}.1"));
        assert!(page.contains(".TH"), "{page}");
    }
}

#[test]
fn a_wrong_command_line_ends_with_2_and_says_what_is_wrong() {
    let dir = Dir::new();
    let cases: &[(&[&str], &str)] = &[
        (&[], "Usage: requeue"),
        (&["pt"], "unrecognized subcommand 'pt'"),
        (&["put", "mail"], "<ID>"),
        (&["put", "ma il", "a"], "contains the character ' '; allowed are A-Z a-z 0-9 . _ -"),
        (&["put", "mail", ""], "the id must not be empty"),
        (&["put", "mail", "a", "--in", "5"], "write 5s for seconds or 5m for minutes"),
        (&["put", "mail", "a", "--in", "soon"], "is no duration"),
        (&["put", "mail", "a", "--at", "5m"], "write in 5m"),
        (&["put", "mail", "a", "--at", "09:00 Mars/Base"], "Mars/Base"),
        (&["put", "mail", "a", "--in", "5m", "--at", "09:00"], "cannot be used with"),
        (&["put", "mail", "a", "--mode", "debounce"], "mode debounce needs a max-wait"),
        (&["put", "mail", "a", "--max-wait", "5m"], "max-wait is for mode debounce"),
        (&["put", "mail", "a", "--if-absent", "--if-generation", "1"], "cannot be used with"),
        (&["put", "mail", "a", "--file", "f"], "cannot be used with"),
        (&["ack"], "<RECEIPT>"),
        (&["ack", "nonsense"], "\"nonsense\" is not a receipt"),
        (&["revive", "mail"], "<IDS>"),
        (&["revive", "mail", "a", "--all"], "cannot be used with"),
        (&["ls", "mail", "--state", "asleep"], "waiting, ready, leased, dead"),
        (&["kind", "mail", "--max-attempts", "0"], "0 is not in 1.."),
        (&["kind", "mail", "--concurrency", "many"], "a number, or `none`"),
        (&["stats", "--data", "d", "--server", "http://h"], "only one of"),
        (&["--data", "d", "stats", "--store", "redis://h"], "only one of"),
        (&["backup", "--data", "d"], "where --to says"),
        (&["serve", "--server", "http://h"], "--data DIR or --store URL"),
        (&["serve", "--listen", "here"], "--listen <ADDR>"),
        (&["serve", "--tls-cert", "c"], "--tls-key"),
        (&["serve", "--log", "a=b=c"], "is no filter"),
    ];
    for (args, told) in cases {
        dir.run(args).code(2).complains(told);
    }
    assert!(!dir.path("requeue-data").exists() && !dir.path("d").exists());
}

#[test]
fn where_no_server_runs_one_is_told_how_to_start_it() {
    let dir = Dir::new();
    let nobody = "http://127.0.0.1:1";
    let done = dir.run(&["stats", "--server", nobody]).code(4);
    done.complains("127.0.0.1:1").complains("hint: ").complains("requeue serve");
    let mut command = dir.command(&["stats", "--json"]);
    let output = command.env("REQUEUE_SERVER", nobody).output().expect("it starts");
    let told: serde_json::Value = serde_json::from_slice(&output.stderr).expect("JSON");
    assert_eq!(told["exit"], 4, "{told}");
    assert!(told["hint"].as_str().is_some_and(|hint| hint.contains("requeue serve")), "{told}");
}
