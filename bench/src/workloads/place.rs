//! Directories for measurements, and queues that are filled before.

use crate::system::System;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};

/// A directory on the disk of this program: the one for temporary files may be in memory.
pub(super) struct Place {
    dir: PathBuf,
    /// Whether it is removed when dropped. Otherwise its creator removes it.
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

    /// Creates an empty directory for this process.
    pub(super) fn fresh(&self, name: &str) -> Fresh {
        let dir = self.dir.join(format!("{name}-{}", process::id()));
        fs::create_dir(&dir).expect("no other process has this name");
        Fresh(dir)
    }

    /// Leaves a number for later measurements.
    pub(super) fn note(&self, name: &str, number: f64) {
        fs::write(self.dir.join(name), number.to_string()).expect("there is space for a number");
    }

    /// The number that an earlier measurement left under this name.
    pub(super) fn noted(&self, name: &str) -> Option<f64> {
        fs::read_to_string(self.dir.join(name)).ok()?.parse().ok()
    }

    /// A queue with this many jobs that are due tomorrow. It is created the first time, by another
    /// process, so that the memory and background work for it do not affect the measurement.
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

    /// Creates it with `make`.
    pub(super) fn prepare(&self, system: System, pending: usize, make: impl FnOnce(&Path)) {
        let (dir, made) = self.pending(system, pending);
        fs::create_dir(&dir).expect("the directory does not exist yet");
        make(&dir);
        // Writes that are still pending would slow down every sync that is measured.
        rustix::fs::sync();
        fs::write(&made, "").expect("there is space for a name");
    }

    /// Its path, and the file that exists when it is complete.
    fn pending(&self, system: System, pending: usize) -> (PathBuf, PathBuf) {
        let name = format!("{}-pending-{pending}", system.name());
        (self.dir.join(&name), self.dir.join(format!("{name}.made")))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.ours {
            // Nothing depends on the result.
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// Removed with all its contents when dropped.
pub(super) struct Fresh(PathBuf);

impl std::ops::Deref for Fresh {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // Nothing depends on the result.
        let _ = fs::remove_dir_all(&self.0);
    }
}
