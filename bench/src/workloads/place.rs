//! Directories to measure in, and queues that are full already.

use crate::system::System;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};

/// A directory, on the disk that this program is on: that of temporary files may be in memory.
pub(super) struct Place {
    dir: PathBuf,
    /// Otherwise whoever made it removes it.
    ours: bool,
}

impl Place {
    pub(super) fn new(scratch: Option<PathBuf>) -> Self {
        let ours = scratch.is_none();
        let dir = scratch.unwrap_or_else(|| {
            let program = std::env::current_exe().expect("this program is a file");
            program.with_file_name(format!("bench-scratch-{}", process::id()))
        });
        fs::create_dir_all(&dir).expect("there is space for a directory");
        Place { dir, ours }
    }

    /// An empty directory, for this process alone.
    pub(super) fn fresh(&self, name: &str) -> Fresh {
        let dir = self.dir.join(format!("{name}-{}", process::id()));
        fs::create_dir(&dir).expect("no other process has this name");
        Fresh(dir)
    }

    /// A queue with so many jobs that are due tomorrow. It is made the first time, by another
    /// process: memory and background work that this takes are not the measurement's.
    pub(super) fn with_pending(&self, system: System, pending: usize) -> PathBuf {
        let (dir, made) = self.pending(system, pending);
        if !made.exists() {
            let mut command = Command::new(std::env::current_exe().expect("this is a file"));
            command.args(["prepare", system.name(), &pending.to_string()]).arg(&self.dir);
            let status = command.stdout(Stdio::null()).status().expect("this program starts");
            assert!(status.success(), "{command:?} ended with {status}");
        }
        dir
    }

    /// Lets `make` make it.
    pub(super) fn prepare(&self, system: System, pending: usize, make: impl FnOnce(&Path)) {
        let (dir, made) = self.pending(system, pending);
        fs::create_dir(&dir).expect("nobody began to make it");
        make(&dir);
        // What is yet to be written would slow down every sync of those who are measured.
        rustix::fs::sync();
        fs::write(&made, "").expect("there is space for a name");
    }

    /// Where it is, and the file that is there once it is complete.
    fn pending(&self, system: System, pending: usize) -> (PathBuf, PathBuf) {
        let name = format!("{}-pending-{pending}", system.name());
        (self.dir.join(&name), self.dir.join(format!("{name}.made")))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.ours {
            // Nothing depends on it.
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// Removed when dropped, whatever is in it.
pub(super) struct Fresh(PathBuf);

impl std::ops::Deref for Fresh {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // Nothing depends on it.
        let _ = fs::remove_dir_all(&self.0);
    }
}
