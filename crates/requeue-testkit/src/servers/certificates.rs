//! Private certificates.

use std::path::Path;
use std::process::Command;

/// Creates a certificate authority, and certificates for a server on 127.0.0.1 and for its clients.
pub(super) fn make(dir: &Path) {
    let openssl = |arguments: &[&str]| {
        let kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        let output = Command::new("openssl")
            .args(["req", "-x509", "-days", "2"])
            .args(kind)
            .args(arguments)
            .current_dir(dir)
            .output();
        let output = output.expect("no openssl: run scripts/test, which installs it");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    openssl(&["-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.crt"]);
    for name in ["server", "client"] {
        let (key, certificate) = (format!("{name}.key"), format!("{name}.crt"));
        openssl(&[
            // Without the defaults, which would make it a certificate authority.
            "-config",
            "/dev/null",
            "-CA",
            "ca.crt",
            "-CAkey",
            "ca.key",
            "-subj",
            &format!("/CN={name}"),
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-keyout",
            &key,
            "-out",
            &certificate,
        ]);
    }
}
