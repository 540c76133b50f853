//! The data directory of the demo: a new one, so that a demo never changes real jobs.

use super::random;
use crate::error::{CliError, Exit, Result};
use crate::output::print_labelled;
use crate::private_files;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often the removal of the directory is tried. A thread of the store may still close its files.
const REMOVALS: u32 = 20;

/// The data directory. A temporary one is removed on drop; that of `--data` is kept.
#[derive(Debug)]
pub(super) struct DemoDirectory {
    path: PathBuf,
    is_temporary: bool,
}

impl DemoDirectory {
    /// Returns the directory of `--data`, which must be empty or absent, or a new temporary one.
    pub(super) fn new(given: Option<&Path>) -> Result<Self> {
        let Some(path) = given else { return DemoDirectory::temporary() };
        match std::fs::read_dir(path).map(|mut entries| entries.next().is_some()) {
            Ok(true) => {
                let name = path.display();
                let message = format!("{name} is not empty: a demo only uses a new directory");
                let hint = format!("to serve the jobs in it: requeue serve --data {name}");
                Err(CliError::new(Exit::Failed, message).hint(hint))
            }
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(CliError::io("read", &path.display().to_string(), &error))
            }
            Ok(false) | Err(_) => Ok(DemoDirectory { path: path.to_owned(), is_temporary: false }),
        }
    }

    fn temporary() -> Result<Self> {
        let name = format!("requeue-demo-{}-{}", std::process::id(), random::new_seed());
        let path = std::env::temp_dir().join(name);
        private_files::create_dir(&path)
            .map_err(|error| CliError::io("create", &path.display().to_string(), &error))?;
        Ok(DemoDirectory { path, is_temporary: true })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory for people.
    pub(super) fn describe(&self) -> String {
        let path = self.path.display();
        if self.is_temporary { "in a temporary directory".to_owned() } else { format!("in {path}") }
    }

    /// What becomes of the directory, for people.
    pub(super) fn farewell(&self) -> String {
        if self.is_temporary {
            return "stopped; the jobs of the demo are removed".to_owned();
        }
        let path = self.path.display();
        format!("stopped; to serve the jobs of the demo again: requeue serve --data {path}")
    }
}

impl Drop for DemoDirectory {
    fn drop(&mut self) {
        if !self.is_temporary {
            return;
        }
        for round in 1.. {
            match std::fs::remove_dir_all(&self.path) {
                Ok(()) => return,
                Err(error) if error.kind() == ErrorKind::NotFound => return,
                Err(_) if round < REMOVALS => std::thread::sleep(Duration::from_millis(50)),
                Err(error) => {
                    let path = self.path.display();
                    return print_labelled("warning", &format!("could not remove {path}: {error}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_directory_is_removed_with_its_files() {
        let directory = DemoDirectory::new(None).unwrap();
        let path = directory.path().to_owned();
        std::fs::write(path.join("file"), "text").unwrap();
        drop(directory);
        assert!(!path.exists());
    }

    #[test]
    fn a_given_directory_must_be_empty_and_is_kept() {
        let around = DemoDirectory::new(None).unwrap();
        let given = around.path().join("given");
        drop(DemoDirectory::new(Some(&given)).unwrap());
        std::fs::create_dir(&given).unwrap();
        drop(DemoDirectory::new(Some(&given)).unwrap());
        assert!(given.exists());
        std::fs::write(given.join("log"), "jobs").unwrap();
        assert_eq!(DemoDirectory::new(Some(&given)).unwrap_err().exit, Exit::Failed);
        assert!(given.join("log").exists());
    }
}
