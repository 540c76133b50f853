//! Checks `cargo` commands without running them: the package, the target and the features that a
//! command names must exist, and the target's required features must be enabled.

use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// What `cargo metadata` reports about this workspace.
pub(super) struct Workspace {
    root: &'static Path,
    packages: Vec<Value>,
}

impl Workspace {
    pub(super) fn read(root: &'static Path) -> Self {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        let cargo = cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]);
        let output = cargo.current_dir(root).output().expect("cargo runs");
        let mut metadata: Value = serde_json::from_slice(&output.stdout).expect("metadata is JSON");
        let Value::Array(packages) = metadata["packages"].take() else { panic!("no packages") };
        Workspace { root, packages }
    }

    /// Checks a command. Returns the arguments after `--`, if it runs the `requeue` program.
    pub(super) fn check(&self, command: &str) -> Result<Option<String>, String> {
        let (command, program) = match command.split_once(" -- ") {
            Some((command, args)) => (command, args.to_owned()),
            None => (command, String::new()),
        };
        let options = Options::read(command.split(" #").next().unwrap_or_default());
        for path in &options.paths {
            // On the pages for users, a checkout is the directory `requeue` next to their program.
            let path = path.strip_prefix("../requeue/").unwrap_or(path);
            if !self.root.join(path).exists() {
                return Err(format!("there is no {path}"));
            }
        }
        if options.elsewhere {
            return Ok(None);
        }
        let named = |name: &String| self.packages.iter().find(|package| package["name"] == **name);
        let package = match &options.package {
            Some(name) => Some(named(name).ok_or(format!("there is no package {name}"))?),
            None if !options.features.is_empty() => {
                return Err("--features needs a package: add -p PACKAGE".to_owned());
            }
            None => None,
        };
        for feature in options.features.iter().filter(|feature| !feature.contains('/')) {
            if package.is_some_and(|package| package["features"].get(feature).is_none()) {
                return Err(format!("the package has no feature {feature}"));
            }
        }
        let (kind, name) = match &options.target {
            Some((kind, name)) => (kind.as_str(), Some(name)),
            None if options.subcommand == "run" => ("bin", None),
            None => return Ok(None),
        };
        let packages = self.packages.iter().filter(|other| package.is_none_or(|it| it == *other));
        let targets = packages.flat_map(|package| package["targets"].as_array().expect("targets"));
        let fits = |target: &&Value| {
            target["kind"][0] == *kind && name.is_none_or(|name| target["name"] == **name)
        };
        let targets: Vec<&Value> = targets.filter(fits).collect();
        let [target] = &targets[..] else {
            return Err(format!("it fits {} targets of kind {kind}, and not one", targets.len()));
        };
        let required = target["required-features"].as_array().into_iter().flatten();
        for feature in required.filter_map(Value::as_str) {
            if !options.all_features && !options.features.iter().any(|given| given == feature) {
                return Err(format!("it needs --features {feature}"));
            }
        }
        Ok((target["name"] == "requeue" && kind == "bin").then_some(program))
    }
}

/// The options that are checked.
#[derive(Default)]
struct Options {
    subcommand: String,
    package: Option<String>,
    /// Kind and name.
    target: Option<(String, String)>,
    features: Vec<String>,
    all_features: bool,
    paths: Vec<String>,
    /// It is about a package outside of the workspace.
    elsewhere: bool,
}

impl Options {
    fn read(command: &str) -> Self {
        let mut options = Options::default();
        let mut words = command.split_whitespace().skip(1).flat_map(|word| word.split('='));
        options.subcommand = words.next().unwrap_or_default().to_owned();
        while let Some(word) = words.next() {
            let mut value =
                || words.next().unwrap_or_default().trim_matches(['"', '\'']).to_owned();
            match word {
                "-p" | "--package" => options.package = Some(value()),
                "--example" | "--bin" | "--bench" | "--test" => {
                    options.target = Some((word.trim_start_matches('-').to_owned(), value()));
                }
                "-F" | "--features" => {
                    options.features.extend(value().split(',').map(str::to_owned));
                }
                "--all-features" => options.all_features = true,
                "--path" | "--manifest-path" => {
                    options.paths.push(value());
                    options.elsewhere = true;
                }
                _ => {}
            }
        }
        options
    }
}

#[test]
fn a_cargo_command_that_does_not_work_is_found() {
    let workspace = Workspace::read(super::root());
    let works = "cargo run --release -p requeue --features tokio --example worker -- 1";
    assert_eq!(workspace.check(works), Ok(None));
    assert_eq!(workspace.check("cargo run -p requeue-cli -- serve"), Ok(Some("serve".to_owned())));
    for (command, problem) in [
        ("cargo run --features tokio --example worker", "add -p PACKAGE"),
        ("cargo run -p requeue --example worker", "needs --features tokio"),
        ("cargo run -p requeue --example wroker", "fits 0 targets"),
        ("cargo run -p requeue-nothing", "no package"),
        ("cargo test -p requeue --features=nothing", "no feature"),
        ("cargo run --release", "and not one"),
        ("cargo install --path crates/nothing", "there is no crates/nothing"),
        ("cargo add --path ../requeue/crates/nothing", "there is no crates/nothing"),
    ] {
        let error = workspace.check(command).expect_err(command);
        assert!(error.contains(problem), "{command}: {error}");
    }
}
