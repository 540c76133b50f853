//! Commands for servers that refuse to run as root. If the tests run as root, `nobody` runs them.

use super::process::{self, folder};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

/// The user `nobody`, and its group.
const NOBODY: u32 = 65534;

/// Returns a command that does not run as root.
pub(super) fn command(
    program: impl Into<OsString>,
    arguments: impl IntoIterator<Item: Into<OsString>>,
) -> Vec<OsString> {
    let (user, group) = (format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"));
    // It cannot read the home of root, where libpq looks for certificates.
    let change = ["setpriv", "--clear-groups", &user, &group, "env", "HOME=/nonexistent"];
    let change = if is_root() { &change[..] } else { &[] };
    let arguments = arguments.into_iter().map(Into::into);
    change.iter().map(OsString::from).chain([program.into()]).chain(arguments).collect()
}

/// Runs a command that does not run as root, with this input.
///
/// # Panics
///
/// If it fails. The message contains what it prints.
pub(super) fn run(
    program: impl Into<OsString>,
    arguments: impl IntoIterator<Item: Into<OsString>>,
    input: &str,
) {
    process::run(&command(program, arguments), input);
}

/// Creates an empty folder in which such a command can write.
pub(super) fn private_folder(of: &str) -> PathBuf {
    let dir = folder(of);
    give(&dir);
    dir
}

/// Makes the user of such commands the owner of a file or folder.
pub(super) fn give(path: &Path) {
    if is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).expect("root can change the owner");
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").expect("there is /proc").uid() == 0
}
