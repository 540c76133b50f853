//! HTTPS: which certificates are accepted.

use super::receiver::{Receiver, ok};
use super::{DONE, config, deliver, delivery, options, unreachable};
use requeue_jobs::ManualClock;
use requeue_push::PushClient;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A folder that is removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("requeue-push-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Creates an authority, and the certificate of a server on 127.0.0.1.
fn certificates(folder: &Path) {
    let openssl = |arguments: &[&str]| {
        let output = Command::new("openssl")
            .args(["req", "-x509", "-days", "2", "-nodes", "-newkey", "ec"])
            .args(["-pkeyopt", "ec_paramgen_curve:prime256v1"])
            .args(arguments)
            .current_dir(folder)
            .output()
            .expect("no openssl: run scripts/test, which installs it");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    openssl(&["-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.crt"]);
    let config =
        ["-config", "/dev/null", "-CA", "ca.crt", "-CAkey", "ca.key", "-subj", "/CN=server"];
    let names = ["-addext", "subjectAltName=IP:127.0.0.1"];
    let rest = ["-addext", "basicConstraints=critical,CA:FALSE"];
    let files = ["-keyout", "server.key", "-out", "server.crt"];
    openssl(&[&config[..], &names, &rest, &files].concat());
}

fn acceptor(folder: &Path) -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_file(folder.join("server.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

#[tokio::test]
async fn https_needs_a_certificate_of_a_trusted_authority() {
    let folder = Folder::new();
    certificates(&folder.0);
    let tls = Some(acceptor(&folder.0));
    let receiver = Receiver::start_with("127.0.0.1:0", tls, |_, _| ok()).await;
    let config = config(&format!("https://{}/", receiver.address), json!({}));
    let connect = |ca_file: Option<&str>| {
        let mut options = options(&ManualClock::new());
        options.ca_file = ca_file.map(|name| folder.0.join(name));
        PushClient::new(options)
    };
    let trusting = connect(Some("ca.crt")).unwrap();
    for _ in 0..2 {
        assert_eq!(deliver(config.clone(), &trusting, &delivery()).await, DONE);
    }
    assert_eq!((receiver.count(), receiver.connections()), (2, 1));

    let failed = unreachable(deliver(config, &connect(None).unwrap(), &delivery()).await);
    assert!(failed.starts_with("TLS with 127.0.0.1 failed: "), "{failed}");
    assert!(failed.contains("UnknownIssuer"), "{failed}");
    let error = connect(Some("server.key")).unwrap_err().to_string();
    assert!(error.ends_with("server.key: the file contains none"), "{error}");
    let error = connect(Some("absent.crt")).unwrap_err().to_string();
    assert!(error.contains("absent.crt: "), "{error}");
    assert_eq!(receiver.count(), 2);
}
