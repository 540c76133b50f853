//! `serve`: start, access control and shutdown.

use crate::support::{Dir, Done, Server, until};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

const TOKEN: &str = "correct-horse-battery-staple";
const READ: &str = "only-for-dashboards-and-such";

/// Runs a command against a server, with a token. Returns the exit code.
fn ask(dir: &Dir, server: &Server, token: &str, args: &[&str]) -> Option<i32> {
    let mut command = dir.command(&[args, &["--server", &server.url]].concat());
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    command.env("REQUEUE_TOKEN", token).status().expect("it starts").code()
}

#[test]
fn the_token_is_in_a_variable_or_in_a_file_that_a_variable_names() {
    let dir = Dir::new();
    dir.write("tokens", format!("full {TOKEN}\n"));
    dir.write("token", format!("{TOKEN}\n"));
    dir.write("wrong", READ);
    let server = Server::start(&dir, &["--tokens", "tokens"]);
    let run = |variables: &[(&str, &str)], args: &[&str]| {
        let args = [&["stats", "--server", &server.url], args].concat();
        let mut command = dir.command(&args);
        let output = command.envs(variables.iter().copied()).output().expect("it starts");
        Done::new(&args, output)
    };
    let (token, file) = ("REQUEUE_TOKEN", "REQUEUE_TOKEN_FILE");
    run(&[], &[]).code(1).complains("REQUEUE_TOKEN");
    run(&[(token, TOKEN)], &[]).ok();
    run(&[(file, "token")], &[]).ok();
    run(&[(file, "token"), (token, "")], &[]).ok();
    run(&[(token, TOKEN), (file, "")], &[]).ok();
    run(&[(file, "wrong")], &[]).code(1);
    run(&[(file, "absent")], &[]).code(1).complains("could not read absent");
    // Which of them is meant cannot be known.
    let both = run(&[(token, TOKEN), (file, "token")], &[]).code(2);
    both.complains("REQUEUE_TOKEN and REQUEUE_TOKEN_FILE are both set").complains("unset one");
    run(&[(token, READ), (file, "wrong")], &["--token-file", "token"]).ok();
}

#[test]
fn an_acknowledged_put_survives_a_kill() {
    let dir = Dir::new();
    let server = Server::start(&dir, &[]);
    dir.run(&["put", "mail", "a", "hello", "--server", &server.url]).ok();
    server.signal(Signal::KILL);
    server.end();
    assert!(dir.path("requeue-data").exists());
    let server = Server::start(&dir, &[]);
    let claim = ["claim", "mail", "--json", "--server", &server.url];
    assert_eq!(dir.run(&claim).ok().json()["body_text"], "hello");
}

#[test]
fn it_prints_its_address_and_exits_with_0_on_a_signal() {
    let dir = Dir::new();
    for signal in [Signal::TERM, Signal::INT] {
        let mut command = dir.command(&["serve", "--listen", "127.0.0.1:0"]);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("it starts");
        let pid = child.id().to_string();
        until("its directory", || dir.path("requeue-data/lock").exists().then_some(()));
        // A signal before that would end it like any other program.
        until("its socket", || listens(&pid).then_some(()));
        crate::support::signal(&pid, signal);
        let output = child.wait_with_output().expect("it ends");
        let out = String::from_utf8_lossy(&output.stdout);
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{err}");
        assert_eq!(out.lines().count(), 1, "{out}");
        assert!(out.starts_with("listening on http://127.0.0.1:"), "{out}");
        assert!(out.trim_end().ends_with("jobs in requeue-data"), "{out}");
        assert!(err.contains("stopping"), "{err}");
    }
}

#[test]
fn a_waiting_claim_does_not_delay_the_shutdown() {
    let dir = Dir::new();
    let server = Server::start(&dir, &[]);
    let args = ["claim", "mail", "--wait", "50s", "--server", &server.url];
    let mut claim = dir.command(&args).stderr(Stdio::null()).spawn().expect("it starts");
    until("the claim", || {
        dir.http(&server.url, "/v1/stats").contains("\"waiting_claims\":1").then_some(())
    });
    server.signal(Signal::TERM);
    assert_eq!(server.end(), Some(0));
    assert!(!claim.wait().expect("it ends").success());
}

#[test]
fn a_second_signal_does_not_wait_for_running_requests() {
    let dir = Dir::new();
    let server = Server::start(&dir, &[]);
    let address = server.url.strip_prefix("http://").expect("a URL");
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    let half = "PUT /v1/kinds/mail/jobs/a HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n\
                content-type: application/json\r\ncontent-length: 10\r\n\r\n{";
    stream.write_all(half.as_bytes()).expect("it reads");
    // The server reads the body after it has sent "100 Continue".
    let mut go_on = [0; 12];
    stream.read_exact(&mut go_on).expect("it answers");
    assert_eq!(&go_on, b"HTTP/1.1 100");
    server.signal(Signal::TERM);
    until("the end of listening", || std::net::TcpStream::connect(address).err());
    server.signal(Signal::INT);
    assert_eq!(server.end(), Some(1));
}

#[test]
fn tokens_decide_which_requests_are_allowed() {
    let dir = Dir::new();
    let mut command = dir.command(&["serve", "--listen", "127.0.0.1:0", "--json"]);
    command.env("REQUEUE_TOKEN", TOKEN).env("REQUEUE_READ_TOKEN", READ);
    let server = Server::of(command);
    assert_eq!(ask(&dir, &server, TOKEN, &["put", "mail", "a"]), Some(0));
    assert_eq!(ask(&dir, &server, READ, &["get", "mail", "a"]), Some(0));
    assert_eq!(ask(&dir, &server, READ, &["put", "mail", "b"]), Some(1));
    let done = dir.run(&["get", "mail", "a", "--server", &server.url]).code(1);
    done.complains("the token was refused").complains("REQUEUE_TOKEN");
    // A worker does not retry with a token that is rejected.
    let work = ["work", "mail", "--exec", "true", "--server", &server.url];
    dir.run(&work).code(1).complains("the token was refused");
    dir.write("token", format!("{TOKEN}\n"));
    let args = ["get", "mail", "a", "--server", &server.url, "--token-file", "token"];
    dir.run(&args).ok();
    dir.write("token", "");
    dir.run(&args).code(1).complains("the token file token is empty");
}

#[test]
fn a_token_file_is_reloaded_on_sighup() {
    let dir = Dir::new();
    dir.write("tokens", format!("# ours\nfull {TOKEN}\n"));
    let server = Server::start(&dir, &["--tokens", "tokens"]);
    assert_eq!(ask(&dir, &server, TOKEN, &["stats"]), Some(0));
    assert_eq!(ask(&dir, &server, READ, &["stats"]), Some(1));
    dir.write("tokens", format!("read {READ}\n"));
    server.signal(Signal::HUP);
    until("the new tokens", || (ask(&dir, &server, READ, &["stats"]) == Some(0)).then_some(()));
    assert_eq!(ask(&dir, &server, TOKEN, &["stats"]), Some(1));
}

/// A connection with one request, whose responses are read line by line.
fn request(server: &Server, head: &str, body: &str) -> BufReader<TcpStream> {
    let address = server.url.strip_prefix("http://").expect("it speaks HTTP");
    let mut client = TcpStream::connect(address).expect("it listens");
    let length = body.len();
    let request = format!("{head}\r\nhost: {address}\r\ncontent-length: {length}\r\n\r\n{body}");
    client.write_all(request.as_bytes()).expect("it reads");
    BufReader::new(client)
}

/// Returns the next line that contains this.
fn line_with(client: &mut BufReader<TcpStream>, wanted: &str) -> String {
    let mut line = String::new();
    while !line.contains(wanted) {
        line.clear();
        assert!(client.read_line(&mut line).expect("it responds") > 0, "no {wanted:?}");
    }
    line
}

#[test]
fn a_revoked_token_keeps_neither_its_stream_nor_its_claim_nor_its_page() {
    let dir = Dir::new();
    dir.write("tokens", format!("full {TOKEN}\nfull full-token-that-leaks\n"));
    let server = Server::start(&dir, &["--tokens", "tokens"]);
    let leaked = "authorization: Bearer full-token-that-leaks";
    let mut stream = request(&server, &format!("GET /v1/events HTTP/1.1\r\n{leaked}"), "");
    line_with(&mut stream, "HTTP/1.1 200");
    let page = format!("GET /dead HTTP/1.1\r\n{leaked}\r\naccept: text/event-stream");
    let mut page = request(&server, &page, "");
    line_with(&mut page, "event: part");
    let claim = format!("POST /v1/claim HTTP/1.1\r\n{leaked}\r\ncontent-type: application/json");
    let mut claim = request(&server, &claim, r#"{"kinds":["mail"],"wait":"50s"}"#);
    // By then, the server has read the claim.
    assert_eq!(ask(&dir, &server, TOKEN, &["stats"]), Some(0));
    dir.write("tokens", format!("full {TOKEN}\n"));
    let began = Instant::now();
    server.signal(Signal::HUP);
    line_with(&mut stream, "event: problem");
    line_with(&mut stream, "revoked");
    line_with(&mut page, "event: login");
    line_with(&mut claim, "HTTP/1.1 401");
    assert!(began.elapsed() < Duration::from_secs(20), "not when the wait is over");
    assert_eq!(ask(&dir, &server, TOKEN, &["put", "mail", "a"]), Some(0));
    assert_eq!(ask(&dir, &server, TOKEN, &["claim", "mail", "--wait", "0s"]), Some(0));
}

#[test]
fn sessions_of_servers_with_the_same_key_outlive_a_restart() {
    let dir = Dir::new();
    dir.write("tokens", format!("full {TOKEN} ann\n"));
    dir.write("key", "4d5f0f6b0f2c4d0d8c3f5e2b7a9d1c6e4d5f0f6b0f2c4d0d8c3f5e2b7a9d1c6e\n");
    let start = |args: &[&str]| Server::start(&dir, &[&["--tokens", "tokens"], args].concat());
    let log_in = |server: &Server| {
        let form = "POST /login HTTP/1.1\r\ncontent-type: application/x-www-form-urlencoded";
        let mut client = request(server, form, &format!("token={TOKEN}"));
        let line = line_with(&mut client, "set-cookie: ");
        assert!(!line.contains(TOKEN), "{line}");
        let cookie = line.trim_start_matches("set-cookie: ").split(';').next();
        cookie.expect("a cookie").to_owned()
    };
    let status = |server: &Server, cookie: &str| {
        let mut client = request(server, &format!("GET /dead HTTP/1.1\r\ncookie: {cookie}"), "");
        line_with(&mut client, "HTTP/1.1")[9..12].to_owned()
    };
    let key = ["--session-key", "key"];
    let server = start(&key);
    let cookie = log_in(&server);
    assert_eq!(status(&server, &cookie), "200");
    drop(server);
    let server = start(&key);
    assert_eq!(status(&server, &cookie), "200");
    drop(server);
    let server = start(&[]);
    assert_eq!(status(&server, &cookie), "303", "a random key is another one");
    drop(server);
    // A key that can be guessed is none.
    dir.write("key", "secret\n");
    let serve = ["serve", "--listen", "127.0.0.1:0", "--tokens", "tokens", "--session-key", "key"];
    let done = dir.run(&serve).code(1);
    done.complains("the session key has 6 bytes; 32 to 1024 are required");
    dir.run(&["serve", "--listen", "127.0.0.1:0", "--session-key", "key"])
        .code(2)
        .complains("--session-key requires tokens");
}

#[test]
fn without_a_token_it_rejects_foreign_host_names() {
    let dir = Dir::new();
    // Protects against DNS rebinding: evil.example could resolve to 127.0.0.1, and its web pages
    // could then read everything.
    let status = |server: &Server, host: &str| {
        let address = server.url.strip_prefix("http://").expect("it speaks HTTP");
        let mut client = TcpStream::connect(address).expect("it listens");
        let request =
            format!("GET /v1/kinds HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).expect("it is sent");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("it is answered");
        answer.split(' ').nth(1).expect("a status").to_owned()
    };
    let server = Server::start(&dir, &[]);
    assert_eq!(status(&server, "localhost:7654"), "200");
    assert_eq!(status(&server, "127.0.0.1:7654"), "200");
    assert_eq!(status(&server, "evil.example:7654"), "403");
    server.signal(Signal::TERM);
    server.end();
    let server = Server::start(&dir, &["--allow-anyone"]);
    assert_eq!(status(&server, "jobs.example:7654"), "200");
}

#[test]
fn it_does_not_listen_on_all_interfaces_without_a_token() {
    let dir = Dir::new();
    let world = ["serve", "--listen", "0.0.0.0:0"];
    dir.run(&world).code(2).complains("without a token").complains("--allow-anyone");
    dir.write("tokens", "full short\n");
    let short = dir.run(&[&world[..], &["--tokens", "tokens"]].concat()).code(1);
    short.complains("line 1").complains("16 to 512");
    let anyone = [&world[..], &["--allow-anyone", "--json"]].concat();
    let server = Server::of(dir.command(&anyone));
    server.signal(Signal::TERM);
    assert_eq!(server.end(), Some(0));
}

#[test]
fn errors_at_start_are_reported_before_anything_is_created() {
    let dir = Dir::new();
    let server = Server::start(&dir, &[]);
    let address = server.url.strip_prefix("http://").expect("a URL");
    let taken = dir.run(&["serve", "--listen", address, "--data", "other"]).code(4);
    taken.complains("could not listen on").complains("--listen 127.0.0.1:0");
    assert!(!dir.path("other").exists());
    let twice = dir.run(&["serve", "--listen", "127.0.0.1:0"]).code(4);
    twice.complains("requeue-data is in use by process").complains("kill ");
    let tls = ["serve", "--tls-cert", "absent", "--tls-key", "absent"];
    dir.run(&tls).code(1).complains("could not read absent");
    for store in ["redis://127.0.0.1:1", "postgres://me:hunter2@127.0.0.1:1/shop"] {
        let done = dir.run(&["serve", "--listen", "127.0.0.1:0", "--store", store]).code(4);
        let done = done.complains("127.0.0.1:1").complains("running there?");
        assert!(!done.err.contains("hunter2"), "{done:?}");
    }
    dir.run(&["serve", "--store", "mysql://h"]).code(2).complains("invalid URL in --store");
}

#[test]
fn a_server_makes_backups_below_its_backup_directory() {
    let dir = Dir::new();
    let server = Server::start(&dir, &["--backups", "copies"]);
    dir.run(&["put", "mail", "a", "--server", &server.url]).ok();
    let made = dir.run(&["backup", "--json", "--server", &server.url]).ok().json();
    let copy = made["directory"].as_str().expect("a directory");
    assert!(copy.starts_with("copies/requeue-20"), "{copy}");
    dir.run(&["verify", copy]).ok().says("sound: 1 job");
    let to = ["backup", "--to", "x", "--server", &server.url];
    dir.run(&to).code(2).complains("--data DIR --to DIR");
    let server = Server::start(&dir, &["--data", "other"]);
    let refused = dir.run(&["backup", "--server", &server.url]).code(1);
    refused.complains("start it with --backups");
}

#[test]
fn files_with_secrets_that_others_can_read_are_logged() {
    let dir = Dir::new();
    certificate(&dir, "basicConstraints=critical,CA:FALSE");
    dir.write("tokens", format!("full {TOKEN}\n"));
    // The server ends because the port is in use.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let listen = taken.local_addr().expect("it is bound").to_string();
    let tls = ["--tls-cert", "cert", "--tls-key", "key"];
    let args = [&["serve", "--listen", &listen, "--tokens", "tokens"][..], &tls].concat();
    for (mode, warnings) in [(0o600, 0), (0o644, 2)] {
        for file in ["tokens", "key"] {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(dir.path(file), permissions).expect(file);
        }
        let done = dir.run(&args).code(4);
        assert_eq!(done.err.matches("other users have access").count(), warnings, "{done:?}");
        assert_eq!(done.err.matches("(mode 0644)").count(), warnings, "{done:?}");
    }
}

/// Makes a self-signed certificate for 127.0.0.1, in the files `cert` and `key`.
fn certificate(dir: &Dir, constraints: &str) {
    let mut openssl = std::process::Command::new("openssl");
    let openssl = openssl
        .args(["req", "-x509", "-days", "2", "-config", "/dev/null", "-nodes"])
        .args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-keyout", "key", "-out", "cert", "-subj", "/CN=here"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", constraints])
        .current_dir(dir.path(""));
    let output = openssl.output().expect("openssl runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn it_uses_tls_with_a_certificate() {
    let dir = Dir::new();
    certificate(&dir, "basicConstraints=critical,CA:FALSE");
    let server = Server::start(&dir, &["--tls-cert", "cert", "--tls-key", "key"]);
    assert!(server.url.starts_with("https://"), "{}", server.url);
    let done = dir.run(&["stats", "--server", &server.url]).code(4);
    done.complains("certificate").complains("hint: trust").complains("--ca-file");
    dir.run(&["stats", "--server", &server.url, "--ca-file", "cert"]).ok();
    let with = |file: &str| {
        let mut command = dir.command(&["stats", "--server", &server.url]);
        command.env("REQUEUE_CA_FILE", file).output().expect("it starts").status.code()
    };
    assert_eq!([with("cert"), with(""), with("absent")], [Some(0), Some(4), Some(2)]);
    let other = server.url.replace("127.0.0.1", "localhost");
    let done = dir.run(&["stats", "--server", &other, "--ca-file", "cert"]).code(4);
    done.complains("not valid for name").complains("hint: use a host name");
    let stranger = Dir::new();
    certificate(&stranger, "basicConstraints=critical,CA:FALSE");
    let file = stranger.path("cert").display().to_string();
    let done = dir.run(&["stats", "--server", &server.url, "--ca-file", &file]).code(4);
    done.complains("hint:").complains("contains neither the certificate of the server");
}

/// `openssl req -x509` makes such a certificate by default.
#[test]
fn a_server_with_the_certificate_of_a_ca_is_rejected_with_a_hint() {
    let dir = Dir::new();
    certificate(&dir, "basicConstraints=critical,CA:TRUE");
    let server = Server::start(&dir, &["--tls-cert", "cert", "--tls-key", "key"]);
    let done = dir.run(&["stats", "--server", &server.url, "--ca-file", "cert"]).code(4);
    done.complains("it is the certificate of a CA").complains("hint: ").complains("CA:FALSE");
}

/// Whether a process handles SIGTERM, SIGINT and SIGHUP, which it does before it listens.
fn listens(pid: &str) -> bool {
    let caught = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = caught.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let bit = |signal: u32| mask & (1 << (signal - 1)) != 0;
    bit(15) && bit(2) && bit(1)
}

/// The server, in a shell that limits its open files.
fn with_files(dir: &Dir, files: u32) -> std::process::Command {
    let mut command = dir.clean(std::process::Command::new("sh"));
    command.args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\"")]);
    command.arg(env!("CARGO_BIN_EXE_requeue"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--json", "--data", "d"]);
    command
}

#[test]
fn idle_connections_leave_the_store_its_files() {
    let dir = Dir::new();
    let server = Server::of(with_files(&dir, 64));
    let address = server.url.strip_prefix("http://").expect("a URL").to_owned();
    let connect = || TcpStream::connect(&address).expect("it listens");
    let _idle: Vec<TcpStream> = (0..45).map(|_| connect()).collect();
    // So large that the store needs new files: segments of the log, and tables.
    let body = format!(r#"{{"body_text":"{}"}}"#, "x".repeat(100_000));
    let put = |n: usize| {
        let mut stream = connect();
        let request = format!(
            "PUT /v1/kinds/mail/jobs/{n} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("it responds");
        response
    };
    let failed: Vec<String> =
        (0..400).map(put).filter(|response| !response.starts_with("HTTP/1.1 200")).collect();
    assert_eq!(failed.len(), 0, "of 400; the first: {}", failed[0]);
}

#[test]
fn too_few_open_files_are_an_error() {
    let dir = Dir::new();
    let output = with_files(&dir, 40).output().expect("it starts");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("the limit of open files is 40; the server needs at least 64"), "{err}");
    assert!(err.contains("LimitNOFILE"), "{err}");
}
