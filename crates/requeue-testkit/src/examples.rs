//! Examples that tests run as programs.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// Returns the path of an example, built with the profile of the running test.
///
/// Running one test does not build examples, so this does. `scripts/test` has built them already,
/// with the features that it selects, and sets `TEST_EXAMPLES_ARE_BUILT`: building them here would
/// compile their dependencies once more, with other features.
///
/// # Panics
///
/// If the example cannot be built.
pub fn example(package: &str, name: &str) -> PathBuf {
    let test = env::current_exe().expect("the path of the test");
    // The test is in `PROFILE/deps`, examples are in `PROFILE/examples`.
    let profile = test.parent().and_then(|deps| deps.parent()).expect("the folder of the profile");
    if env::var_os("TEST_EXAMPLES_ARE_BUILT").is_none() {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.args(["build", "-q", "-p", package, "--example", name]);
        cargo.args(profile.ends_with("release").then_some("--release"));
        assert!(cargo.status().expect("cargo runs").success(), "the example {name} is not built");
    }
    profile.join("examples").join(name)
}
