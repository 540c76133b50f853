//! RocketMQ: timer messages, published and consumed by a program in Java.

use super::load::{Delivered, Load, PAYLOAD, WINDOW};
use crate::workloads::http::free_address;
use crate::workloads::program::Program;
use serde::Deserialize;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A shell between this process and a Java process. It prints the id of the latter, and kills it when its
/// own input ends, because this process has ended.
const KEEPER: &str = r#"
trap '' HUP INT TERM
"$@" >log 2>&1 &
pid=$!
echo $pid
cat >/dev/null
kill -9 $pid
wait $pid 2>/dev/null
"#;

/// What both servers log when they are ready.
const READY: &str = "boot success";
const PAUSE: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest time that a load takes.
const LOAD_PATIENCE: Duration = Duration::from_secs(120);

/// A name server and a broker that syncs each message before it confirms it.
#[derive(Debug)]
pub(crate) struct RocketServer {
    name_server: Java,
    broker: Java,
    port: u16,
    dir: PathBuf,
}

impl RocketServer {
    /// `folder` contains the jars.
    pub(super) fn start(folder: &Path) -> Self {
        let dir = std::env::temp_dir().join(format!("rocketmq-{}", std::process::id()));
        let (port, broker, ha) = (free_port(), free_port(), free_port());
        // The broker is suspended while other systems are measured: no connection may expire.
        let settings = format!(
            "listenPort={port}\nbindAddress=127.0.0.1\nserverChannelMaxIdleTimeSeconds=86400\n\
             scanNotActiveBrokerInterval=86400000\n"
        );
        let class = "org.apache.rocketmq.namesrv.NamesrvStartup";
        let name_server = Java::start(folder, &dir.join("name-server"), class, &settings);
        let home = dir.join("broker");
        let store = home.join("store");
        // 100 ms is the finest precision of its timers; the default is a second.
        let settings = format!(
            "brokerClusterName=bench\nbrokerName=bench\nbrokerId=0\nbrokerIP1=127.0.0.1\n\
             bindAddress=127.0.0.1\nlistenPort={broker}\nhaListenPort={ha}\n\
             namesrvAddr=127.0.0.1:{port}\nstorePathRootDir={store}\n\
             storePathCommitLog={store}/commitlog\nmappedFileSizeCommitLog=67108864\n\
             flushDiskType=SYNC_FLUSH\ntimerPrecisionMs=100\n\
             serverChannelMaxIdleTimeSeconds=86400\n",
            store = store.display()
        );
        let class = "org.apache.rocketmq.broker.BrokerStartup";
        let broker = Java::start(folder, &home, class, &settings);
        RocketServer { name_server, broker, port, dir }
    }

    /// The port of the name server.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The process id of the broker.
    pub(super) fn pid(&self) -> u32 {
        self.broker.pid
    }
}

impl Drop for RocketServer {
    fn drop(&mut self) {
        self.broker.end();
        self.name_server.end();
        // Nothing depends on the result.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A port that is not in use. The broker also listens on the one two below.
fn free_port() -> u16 {
    free_address().port()
}

/// A Java process, and the shell that ends it.
#[derive(Debug)]
struct Java {
    shell: Child,
    pid: u32,
}

impl Java {
    /// Starts a server in a new directory, and waits until it is ready.
    fn start(folder: &Path, dir: &Path, class: &str, settings: &str) -> Self {
        fs::create_dir_all(dir).expect("there is space for a directory");
        fs::write(dir.join("settings"), settings).expect("there is space for a file");
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "sh", "java", "-Xmx1g"]).args(java_options(dir));
        // The broker calls internal functions of the JDK.
        command.arg("--add-exports=java.base/sun.nio.ch=ALL-UNNAMED");
        command.arg("--add-opens=java.base/java.nio=ALL-UNNAMED");
        command.arg("-cp").arg(folder.join("jars/*")).args([class, "-c", "settings"]);
        command.current_dir(dir).env("ROCKETMQ_HOME", dir);
        let shell = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut shell = shell.expect("there is a shell");
        let mut line = String::new();
        let output = shell.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("the shell prints the process id");
        let mut java = Java { shell, pid: line.trim().parse().expect("it is a number") };
        let started = Instant::now();
        let logged = || fs::read_to_string(dir.join("log")).unwrap_or_default();
        while !logged().contains(READY) {
            let ended = !Path::new(&format!("/proc/{}/exe", java.pid)).exists();
            if ended || started.elapsed() > PATIENCE {
                java.end();
                panic!("{class} does not start: {}", logged());
            }
            thread::sleep(PAUSE);
        }
        java
    }

    /// Kills the process, also if it is suspended, and waits for its end.
    fn end(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// Keeps the files of a Java process in a directory.
fn java_options(dir: &Path) -> [OsString; 3] {
    let property = |name: &str| {
        let mut option = OsString::from(name);
        option.push(dir);
        option
    };
    [property("-Duser.home="), property("-Djava.io.tmpdir="), "-XX:-UsePerfData".into()]
}

/// The version in the name of a jar, such as `5.3.3` for the prefix `rocketmq-broker-`.
pub(super) fn jar_version(folder: &Path, prefix: &str) -> Option<String> {
    let names = fs::read_dir(folder).ok()?.flatten().map(|file| file.file_name());
    let mut names = names.filter_map(|name| name.into_string().ok());
    names.find_map(|name| Some(name.strip_prefix(prefix)?.strip_suffix(".jar")?.to_owned()))
}

/// The publisher and consumer.
pub(super) struct Client(Program);

#[derive(Deserialize)]
struct Answer {
    seconds: f64,
    late_ns: Vec<i64>,
}

impl Client {
    /// `folder` contains the jars and the classes, and `dir` is an empty directory.
    pub(super) fn start(folder: &Path, dir: &Path, port: u16, topic: &str) -> Self {
        let mut class_path = folder.join("classes").into_os_string();
        class_path.push(":");
        class_path.push(folder.join("jars/*"));
        let mut program: Vec<OsString> = vec!["java".into(), "-Xmx512m".into()];
        program.extend(java_options(dir));
        program.extend(["-cp".into(), class_path, "TimerBench".into(), topic.into()]);
        program.extend([WINDOW, PAYLOAD].map(|number| number.to_string().into()));
        Client(Program::start(&program, &format!("127.0.0.1:{port}")))
    }

    /// Runs a load like [`Load::run`].
    pub(super) fn run(&mut self, load: &Load, name: &str) -> Delivered {
        let delays: Vec<_> =
            load.delays.iter().map(|delay| delay.as_millis().to_string()).collect();
        let (interval, delays) = (load.interval.as_micros(), delays.join(","));
        let command = format!("{name} {} {interval} {delays}", load.count);
        let answer = self.0.tell(&command, LOAD_PATIENCE);
        let answer: Answer = serde_json::from_str(&answer)
            .unwrap_or_else(|error| panic!("{answer} instead of a result: {error}"));
        let took = Duration::from_secs_f64(answer.seconds);
        Delivered { took, late_ns: answer.late_ns }
    }
}
