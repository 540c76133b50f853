//! Certificates are reloaded while the server runs.

use super::node::Node;
use crate::support::{Dir, until};
use requeue_http::HttpStore;
use requeue_http::client::{Options, Secret};
use requeue_testkit::block_on;
use rustix::process::Signal;
use std::fs;
use std::process::Command;

const TOKEN: &str = "correct-horse-battery-staple";

/// Creates a self-signed certificate and its key.
fn certificate(dir: &Dir, name: &str) {
    let (key, file) = (format!("{name}.key"), format!("{name}.crt"));
    let output = Command::new("openssl")
        // Without the default configuration, which would create a CA certificate.
        .args(["req", "-x509", "-days", "2", "-config", "/dev/null", "-nodes"])
        .args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-keyout", &key, "-out", &file, "-subj", &format!("/CN={name}")])
        .args(["-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .current_dir(dir.path(""))
        .output()
        .expect("no openssl: run scripts/test, which installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Whether a new client that trusts this certificate can connect.
fn accepts(dir: &Dir, node: &Node, trusted: &str) -> bool {
    let mut options = Options::default();
    options.token = Some(Secret::from(TOKEN));
    options.ca_file = Some(dir.path(trusted));
    let store = HttpStore::connect_with(node.url(), options).expect("a valid address");
    block_on(store.stats()).is_ok()
}

#[test]
fn certificates_are_reloaded_on_sighup() {
    let dir = Dir::new();
    certificate(&dir, "old");
    certificate(&dir, "new");
    for kind in ["crt", "key"] {
        fs::copy(dir.path(&format!("old.{kind}")), dir.path(&format!("it.{kind}"))).unwrap();
    }
    dir.write("tokens", format!("full {TOKEN}\n"));
    let tls = ["--tls-cert", "it.crt", "--tls-key", "it.key", "--tokens", "tokens"];
    let node = Node::start(&dir, &[&["--listen", "127.0.0.1:0"], &tls[..]].concat());
    assert!(accepts(&dir, &node, "old.crt"));
    assert!(!accepts(&dir, &node, "new.crt"));
    // A certificate that does not fit the key is not used.
    fs::copy(dir.path("new.crt"), dir.path("it.crt")).unwrap();
    node.signal(Signal::HUP);
    assert!(accepts(&dir, &node, "old.crt"));
    fs::copy(dir.path("new.key"), dir.path("it.key")).unwrap();
    node.signal(Signal::HUP);
    until("the new certificate", || accepts(&dir, &node, "new.crt").then_some(()));
    assert!(!accepts(&dir, &node, "old.crt"));
    node.stop();
}
