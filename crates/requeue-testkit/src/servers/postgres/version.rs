//! Installed versions of Postgres, and the files of new servers.

use crate::servers::unprivileged::{private_folder, run};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// An installed version of Postgres.
#[derive(Debug, Clone)]
pub struct PostgresVersion {
    /// The folder with `initdb` and `postgres`.
    bin: PathBuf,
}

impl PostgresVersion {
    /// Returns the version whose folder of programs is in the variable `REQUEUE_POSTGRES`, or else
    /// version 15.
    ///
    /// # Panics
    ///
    /// If it is not installed.
    pub fn chosen() -> Self {
        std::env::var_os("REQUEUE_POSTGRES").map_or_else(|| Self::major(15), Self::in_folder)
    }

    /// Returns the versions that `scripts/postgres` installs: the oldest and the newest that tests run
    /// with.
    ///
    /// # Panics
    ///
    /// If one is not installed.
    pub fn all() -> [Self; 2] {
        [15, 18].map(Self::major)
    }

    /// Returns this major version: the one in the variable `REQUEUE_POSTGRES_<major>`, or else the
    /// Debian package.
    ///
    /// # Panics
    ///
    /// If it is not installed.
    pub fn major(major: u32) -> Self {
        let debian = || format!("/usr/lib/postgresql/{major}/bin").into();
        Self::in_folder(
            std::env::var_os(format!("REQUEUE_POSTGRES_{major}")).unwrap_or_else(debian),
        )
    }

    /// Returns the version whose programs are in this folder.
    ///
    /// # Panics
    ///
    /// If there are none.
    pub fn in_folder(bin: impl Into<PathBuf>) -> Self {
        let bin = bin.into();
        let install = r#"`eval "$(scripts/postgres)"` installs it"#;
        assert!(bin.join("postgres").exists(), "no Postgres in {}: {install}", bin.display());
        PostgresVersion { bin }
    }

    /// Returns the path of one of its programs.
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }

    /// Creates the folder `data` of a new server. `initdb` is slow, so each process runs it once for
    /// each version.
    pub(super) fn create_data(&self, dir: &Path) {
        static TEMPLATES: Mutex<BTreeMap<PathBuf, PathBuf>> = Mutex::new(BTreeMap::new());
        let mut templates = TEMPLATES.lock().unwrap_or_else(PoisonError::into_inner);
        let template = templates.entry(self.bin.clone()).or_insert_with(|| create_template(self));
        let from = template.clone();
        drop(templates);
        run("cp", [OsString::from("-a"), "--reflink=auto".into(), from.into(), dir.into()], "");
    }
}

/// Creates the files of a server that was never started, with the database `requeue`.
fn create_template(version: &PostgresVersion) -> PathBuf {
    let template = private_folder("postgres-template").join("data");
    let data = [OsString::from("-D"), template.clone().into()];
    let options = ["-U", "requeue", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"];
    let arguments = data.clone().into_iter().chain(options.map(OsString::from));
    run(version.program("initdb"), arguments, "");
    let options = ["-c", "fsync=off", "postgres"].map(OsString::from);
    let arguments = ["--single".into()].into_iter().chain(data).chain(options);
    run(version.program("postgres"), arguments, "create database requeue;\n");
    template
}
