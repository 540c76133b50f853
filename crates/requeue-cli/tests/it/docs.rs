//! The pages, done: what they tell to type is typed, and must print what they say.
//!
//! In a page each fenced block of `console` is a list of commands, which begin with `$ `, each followed by
//! what it prints. All of a page are run in their order, against one new server. What cannot be the
//! same twice is passed over: times, fences, versions; a receipt on the page stands for the one that was
//! really answered.

use crate::support::Dir;
use requeue_http::Sort;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Deserializer, Value};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const HTTP_API: &str = include_str!("../../../../docs/http-api.md");
const OPERATIONS: &str = include_str!("../../../../docs/operations.md");
const README: &str = include_str!("../../../../README.md");

/// Where the pages have their server.
const PAGE_ADDRESS: &str = "localhost:7654";

/// Numbers and texts of these names are what they are.
const PASSED_OVER: [&str; 3] = ["fence", "uptime_seconds", "version"];

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn every_example_of_the_http_api_prints_what_the_page_says() {
    let server = Server::start();
    let mut reader = Reader::default();
    let examples = examples(HTTP_API, "console");
    assert!(examples.len() > 40, "only {} examples were found", examples.len());
    for example in &examples {
        reader.check(example, &server);
    }
}

#[test]
fn the_first_commands_of_the_readme_print_what_it_says() {
    let server = Server::start();
    let mut reader = Reader::default();
    let mut examples = examples(README, "console");
    examples.retain(|example| example.command.starts_with("curl "));
    assert!(examples.len() >= 3, "only {} examples were found", examples.len());
    for example in &examples {
        reader.check(example, &server);
    }
}

#[test]
fn the_worker_in_bash_works() {
    works("bash", "worker.sh", "bash");
}

#[test]
fn the_worker_in_python_works() {
    works("python", "worker.py", "python3");
}

/// It acks a job that it can do, and retries one that it cannot.
fn works(language: &str, file: &str, interpreter: &str) {
    let server = Server::start();
    server.dir.write(file, block(HTTP_API, language));
    let mut events = server.events();
    for (id, body) in [("good", r#"{"to": "ann@example.org"}"#), ("bad", "{}")] {
        let put = format!(r#"{{"body": {body}}}"#);
        server.bash(&format!(
            "curl -sS -X PUT {PAGE_ADDRESS}/v1/kinds/mail/jobs/{id} --json '{put}'"
        ));
    }
    let mut worker = Command::new(interpreter);
    worker.arg(file).current_dir(server.dir.path(""));
    worker.env("REQUEUE_SERVER", format!("http://{}", server.address)).env_remove("REQUEUE_TOKEN");
    let _worker = Group::spawn(worker.stdout(Stdio::null()));
    events.until("acked", "good");
    events.until("retried", "bad");
}

#[test]
fn the_page_has_an_example_of_every_path_and_every_problem() {
    let server = Server::start();
    let document = server.bash(&format!("curl -sS {PAGE_ADDRESS}/v1/openapi.json"));
    let document: Value = serde_json::from_str(&document).expect("it is JSON");
    let paths = document["paths"].as_object().expect("it has paths");
    assert!(paths.len() > 30, "{document}");
    let typed: Vec<_> =
        ["console", "text"].iter().flat_map(|fence| examples(HTTP_API, fence)).collect();
    for (path, methods) in paths {
        assert!(HTTP_API.contains(&format!("{path}`")), "{path} is not in the table of the page");
        for method in methods.as_object().expect("it has methods").keys() {
            let is_typed = typed.iter().any(|example| example.asks(method, path));
            assert!(is_typed, "there is no example of {method} {path}");
        }
    }
    for sort in Sort::all() {
        let row = format!("| `{}` | {} |", sort.name(), sort.status());
        assert!(HTTP_API.contains(&row), "{row} is not on the page");
    }
}

#[test]
fn the_page_of_operations_has_every_metric_and_every_option() {
    let server = Server::start();
    server.bash(&format!("curl -sS -X PUT {PAGE_ADDRESS}/v1/kinds/mail/jobs/a --json '{{}}'"));
    let metrics = server.bash(&format!("curl -sS {PAGE_ADDRESS}/metrics"));
    let names = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names: Vec<&str> = names.filter_map(|line| line.split(' ').next()).collect();
    assert!(names.len() > 20, "{metrics}");
    for name in names {
        assert!(OPERATIONS.contains(&format!("`{name}`")), "{name} is not on the page");
    }
    let help = server.dir.run(&["serve", "--help"]).ok().out;
    let options = help.lines().filter_map(|line| line.trim().strip_prefix("--"));
    let options: Vec<&str> = options.filter_map(|line| line.split([' ', '=']).next()).collect();
    assert!(options.len() > 10, "{help}");
    for option in options {
        assert!(OPERATIONS.contains(&format!("`--{option}")), "--{option} is not on the page");
    }
}

/// A command on a page, and what it prints.
struct Example {
    line: usize,
    command: String,
    printed: String,
}

impl Example {
    /// Whether it is a request for this path, by its template.
    fn asks(&self, method: &str, template: &str) -> bool {
        let Some((before, after)) = self.command.split_once(PAGE_ADDRESS) else { return false };
        let path = after.split([' ', '\'', '?']).next().unwrap_or_default();
        let fits = |(part, of): (&str, &str)| of.starts_with('{') || part == of;
        let does = match before.split_once("-X ") {
            Some((_, rest)) => rest.split(' ').next().unwrap_or_default().to_lowercase(),
            None if after.contains("--json") => "post".to_owned(),
            None => "get".to_owned(),
        };
        does == method
            && path.split('/').count() == template.split('/').count()
            && path.split('/').zip(template.split('/')).all(fits)
    }
}

/// All in blocks that begin so.
fn examples(page: &str, fence: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut lines = page.lines().zip(1..);
    while let Some((line, _)) = lines.next() {
        if line.strip_prefix("```") != Some(fence) {
            continue;
        }
        while let Some((line, number)) = lines.next().filter(|(line, _)| *line != "```") {
            let Some(command) = line.strip_prefix("$ ") else {
                if let Some(example) = examples.last_mut() {
                    example.printed += line;
                    example.printed.push('\n');
                }
                continue;
            };
            let mut command = command.to_owned();
            // It goes on behind a backslash, and inside of quotes.
            while command.ends_with('\\') || command.matches('\'').count() % 2 == 1 {
                command.push('\n');
                command += lines.next().expect("the command ends").0;
            }
            examples.push(Example { line: number, command, printed: String::new() });
        }
    }
    examples
}

/// The only block of a language.
fn block<'a>(page: &'a str, language: &str) -> &'a str {
    let (_, from) = page.split_once(&format!("```{language}\n")).expect("there is such a block");
    from.split_once("```").expect("it ends").0
}

/// Compares what is printed, and knows what stands for what.
#[derive(Default)]
struct Reader {
    /// What is said on the page, and what is really so.
    receipts: HashMap<String, String>,
}

impl Reader {
    fn check(&mut self, example: &Example, server: &Server) {
        let Example { line, command, printed } = example;
        let real = server.bash(&self.translated(command));
        let same = match (values(printed), values(&real)) {
            (Some(said), Some(found)) => {
                said.len() == found.len()
                    && said.iter().zip(&found).all(|(said, found)| self.fits("", said, found))
            }
            _ => printed.trim() == real.trim(),
        };
        assert!(same, "line {line}: {command}\nthe page says:\n{printed}\nit prints:\n{real}");
    }

    fn translated(&self, text: &str) -> String {
        let replace = |text: String, (said, real): (&String, &String)| text.replace(said, real);
        self.receipts.iter().fold(text.to_owned(), replace)
    }

    /// Whether the real value is what the page says, in a field of this name.
    fn fits(&mut self, name: &str, said: &Value, real: &Value) -> bool {
        match (said, real) {
            (Value::Object(said), Value::Object(real)) => {
                said.len() == real.len()
                    && said.iter().all(|(name, said)| {
                        real.get(name).is_some_and(|real| self.fits(name, said, real))
                    })
            }
            (Value::Array(said), Value::Array(real)) => {
                said.len() == real.len()
                    && said.iter().zip(real).all(|(said, real)| self.fits(name, said, real))
            }
            (Value::String(said), Value::String(real)) if name == "receipt" => {
                self.receipts.insert(said.clone(), real.clone());
                true
            }
            (Value::String(said), Value::String(real)) => {
                PASSED_OVER.contains(&name)
                    || is_time(said) && is_time(real)
                    || self.translated(said) == *real
            }
            (Value::Number(_), Value::Number(_)) if PASSED_OVER.contains(&name) => true,
            (said, real) => said == real,
        }
    }
}

/// All that is there, if it is JSON and nothing else.
fn values(text: &str) -> Option<Vec<Value>> {
    Deserializer::from_str(text).into_iter().collect::<Result<_, _>>().ok()
}

/// Such as 2026-12-01T08:00:00.000Z.
fn is_time(text: &str) -> bool {
    let pattern = "0000-00-00T00:00:00.000Z";
    let fits = |(c, p): (char, char)| if p == '0' { c.is_ascii_digit() } else { c == p };
    text.len() == pattern.len() && text.chars().zip(pattern.chars()).all(fits)
}

/// A new server, and a directory for what is typed.
struct Server {
    address: String,
    _process: Group,
    dir: Dir,
}

impl Server {
    fn start() -> Self {
        let dir = Dir::new();
        let mut command = dir.command(&["serve", "--json", "--listen", "127.0.0.1:0"]);
        let mut process = Group::spawn(command.stdout(Stdio::piped()));
        let out = process.0.stdout.take().expect("it is piped");
        let mut lines = BufReader::new(out).lines().map_while(Result::ok);
        let line = lines.next().expect("it says where it listens");
        let line: Value = serde_json::from_str(&line).expect("it is JSON");
        let url = line["listening"].as_str().expect("it says where it listens");
        let address = url.strip_prefix("http://").expect("it speaks HTTP").to_owned();
        // What else it says must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Server { address, _process: process, dir }
    }

    /// Types a command, and answers what it prints.
    fn bash(&self, command: &str) -> String {
        let command = command.replace(PAGE_ADDRESS, &self.address);
        let mut bash = Command::new("bash");
        let output = bash.arg("-c").arg(&command).current_dir(self.dir.path("")).output();
        let output = output.expect("there is bash");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}\n{err}\n(curl 7.82 or later is needed)");
        String::from_utf8(output.stdout).expect("it prints UTF-8")
    }

    /// What happens from now on.
    fn events(&self) -> Events {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let request = format!("GET /v1/events HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).expect("it is sent");
        let mut events = Events(BufReader::new(stream).lines());
        let status = events.line();
        assert!(status.contains("200"), "{status}");
        // The end of the head: it listens.
        while !events.line().is_empty() {}
        events
    }
}

/// A stream of events. Each comes in a line of its own, whatever is between them.
struct Events(Lines<BufReader<TcpStream>>);

impl Events {
    fn line(&mut self) -> String {
        self.0.next().expect("there is more").expect("it comes in time")
    }

    /// Waits for an event of this job.
    fn until(&mut self, name: &str, id: &str) {
        loop {
            let line = self.line();
            let data = line.strip_prefix("data: ").and_then(|data| serde_json::from_str(data).ok());
            let data: Value = data.unwrap_or_default();
            if data["event"] == name && data["id"] == id {
                return;
            }
        }
    }
}

/// A process and all that it has started, killed in the end.
struct Group(Child);

impl Group {
    fn spawn(command: &mut Command) -> Self {
        Group(command.process_group(0).stdin(Stdio::null()).spawn().expect("it starts"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw).expect("a pid");
        // It may have ended.
        let _ = kill_process_group(pid, Signal::KILL);
        let _ = self.0.wait();
    }
}
