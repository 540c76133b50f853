//! Files with jobs or secrets: only their owner can read those that the program writes, and it warns
//! about those that it reads.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// The permission bits of a mode: read, write and execute for owner, group and others.
const PERMISSIONS: u32 = 0o777;

/// Creates a file that only its owner can read and write. Replaces a file that an earlier run left
/// behind, and does not follow a symbolic link.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    let new = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match new() {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            std::fs::remove_file(path)?;
            new()
        }
        created => created,
    }
}

/// Creates a directory, and those above it, unless they exist. Only their owner can use them.
pub(crate) fn create_dir_all(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Creates a directory that does not exist yet. Only its owner can use it.
pub(crate) fn create_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Returns a warning if others than the owner of a file with a secret can read or change it. Returns
/// `None` for what is not a regular file, such as a pipe of the shell.
pub(crate) fn warning(path: &Path) -> Option<String> {
    let found = std::fs::metadata(path).ok().filter(|found| found.is_file())?;
    let mode = found.permissions().mode() & PERMISSIONS;
    let path = path.display();
    (mode & 0o077 != 0).then(|| {
        format!(
            "{path} contains a secret, and other users have access to it (mode {mode:04o}); \
             run: chmod 600 {path}"
        )
    })
}

/// Returns a warning if every user of the machine can change the files of a data directory. This is no
/// error, because volumes of containers often have mode 0777, and no other users. A group that can write
/// is not reported, because it is usually the private group of the user, or that of a pod.
pub(crate) fn directory_warning(path: &Path) -> Option<String> {
    let found = std::fs::metadata(path).ok().filter(|found| found.is_dir())?;
    let mode = found.permissions().mode() & PERMISSIONS;
    let path = path.display();
    (mode & 0o002 != 0).then(|| {
        format!(
            "every user can replace the files in {path} (mode {mode:04o}); run: chmod o-w {path}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;

    #[test]
    fn a_file_is_private_whatever_was_there_before() {
        let dir = std::env::temp_dir().join(format!("requeue-private-{}", std::process::id()));
        create_dir_all(&dir.join("a")).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&dir), mode(&dir.join("a"))), (0o700, 0o700));
        let (file, victim) = (dir.join("file"), dir.join("victim"));
        std::fs::write(&victim, "kept").unwrap();
        std::fs::set_permissions(&victim, Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink(&victim, &file).unwrap();
        create(&file).unwrap();
        assert_eq!(
            (mode(&file), std::fs::read_to_string(&victim).unwrap().as_str()),
            (0o600, "kept")
        );
        assert_eq!(warning(&file), None);
        assert!(warning(&victim).unwrap().contains("(mode 0644)"));
        assert_eq!(warning(Path::new("/dev/null")), None);
        for (mode, warned) in [(0o700, false), (0o2775, false), (0o777, true), (0o1777, true)] {
            std::fs::set_permissions(&dir, Permissions::from_mode(mode)).unwrap();
            assert_eq!(directory_warning(&dir).is_some(), warned, "{mode:o}");
        }
        assert_eq!(directory_warning(&file), None);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
