//! TLS connections, reloading, and errors in certificate files.

use super::harness::{FOREVER, LATER, Server, read_response, start_with, within};
use crate::listen::{Delivery, Options, Tls, TlsError};
use axum::extract::Path as Parameter;
use axum::routing::get;
use axum::{Extension, Router};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// A temporary folder with certificates, deleted after the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("requeue-tls-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder for temporary files");
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Creates the self-signed `name.crt` and `name.key`.
    fn certificate(&self, name: &str) {
        let output = Command::new("openssl")
            .args(["req", "-x509", "-days", "2", "-nodes", "-newkey", "ec"])
            .args(["-pkeyopt", "ec_paramgen_curve:prime256v1", "-config", "/dev/null"])
            .args(["-subj", &format!("/CN={name}"), "-addext", "subjectAltName=IP:127.0.0.1"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .args(["-keyout", &format!("{name}.key"), "-out", &format!("{name}.crt")])
            .current_dir(&self.0)
            .output()
            .expect("no openssl: run scripts/test, which installs it");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn tls(&self, name: &str) -> Result<Tls, TlsError> {
        Tls::load(self.path(&format!("{name}.crt")), self.path(&format!("{name}.key")))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

async fn serve(tls: Tls, options: Options) -> Server {
    start_with(Router::new().route("/", get(|| async { "hello" })), options, Some(tls)).await
}

/// Connects, trusting only this certificate.
async fn connect(server: &Server, trusted: &Path) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(trusted).expect("it is PEM")).expect("it is one");
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has suites for them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let name = ServerName::try_from("127.0.0.1").expect("it is an address");
    let tcp = TcpStream::connect(server.address).await?;
    within(TlsConnector::from(Arc::new(config)).connect(name, tcp)).await
}

async fn hello(stream: &mut TlsStream<TcpStream>) -> String {
    stream.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await.expect("it is read");
    read_response(stream).await.body
}

#[tokio::test]
async fn requests_are_served_over_tls() {
    let folder = Folder::new("served");
    folder.certificate("a");
    let server = serve(folder.tls("a").unwrap(), Options::default()).await;
    let mut client = connect(&server, &folder.path("a.crt")).await.unwrap();
    assert_eq!(client.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    assert_eq!(hello(&mut client).await, "hello");
    assert_eq!(hello(&mut client).await, "hello");
    server.shutdown.request();
    // Closed as TLS closes: an end that was not announced would be an error.
    assert_eq!(within(client.read_to_end(&mut Vec::new())).await.unwrap(), 0);
    server.stop().await;
}

#[tokio::test]
async fn an_answer_over_tls_is_delivered_or_undone_too() {
    let folder = Folder::new("delivery");
    folder.certificate("a");
    let (seen, mut received) = mpsc::unbounded_channel();
    let claim = |Parameter(size): Parameter<usize>, Extension(delivery): Extension<Delivery>| async move {
        let undone = seen.clone();
        delivery.on_lost(move || undone.send("undone").unwrap_or(()));
        seen.send("taken").unwrap_or(());
        "x".repeat(size)
    };
    let router = Router::new().route("/{size}", get(claim));
    let tls = folder.tls("a").unwrap();
    let server = start_with(router, Options::default(), Some(tls)).await;
    let mut client = connect(&server, &folder.path("a.crt")).await.unwrap();
    for size in [1, 100_000, 10_000_000] {
        let request = format!("GET /{size} HTTP/1.1\r\nhost: test\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(read_response(&mut client).await.body.len(), size);
        assert_eq!(within(received.recv()).await, Some("taken"));
    }
    client.write_all(b"GET /64000000 HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
    within(client.read_exact(&mut [0; 1000])).await.unwrap();
    drop(client);
    assert_eq!(within(received.recv()).await, Some("taken"));
    assert_eq!(within(received.recv()).await, Some("undone"));
    server.stop().await;
    assert!(received.try_recv().is_err());
}

#[tokio::test]
async fn a_handshake_that_fails_or_hangs_harms_nobody_else() {
    let folder = Folder::new("handshake");
    folder.certificate("a");
    let options = Options { handshake_timeout: LATER, ..Options::default() };
    let server = serve(folder.tls("a").unwrap(), options).await;
    let mut silent = server.client().await;
    let mut plain = server.client().await;
    plain.send("GET / HTTP/1.1\r\nhost: test\r\n\r\n").await;
    let mut client = connect(&server, &folder.path("a.crt")).await.unwrap();
    assert_eq!(hello(&mut client).await, "hello");
    let mut bytes = Vec::new();
    let _ = within(plain.0.read_to_end(&mut bytes)).await;
    assert!(!bytes.starts_with(b"HTTP"), "response without TLS");
    assert_eq!(silent.rest().await, "");
    drop(client);
    server.stop().await;
}

#[tokio::test]
async fn a_handshake_does_not_hold_up_stopping() {
    let folder = Folder::new("stopping");
    folder.certificate("a");
    let options =
        Options { handshake_timeout: 2 * FOREVER, drain: 2 * FOREVER, ..Options::default() };
    let server = serve(folder.tls("a").unwrap(), options).await;
    let _silent = server.client().await;
    // This one came later, and has been accepted.
    let mut client = connect(&server, &folder.path("a.crt")).await.unwrap();
    assert_eq!(hello(&mut client).await, "hello");
    server.stop().await;
}

#[tokio::test]
async fn new_certificates_are_shown_after_a_reload_that_succeeds_and_only_then() {
    let folder = Folder::new("reload");
    folder.certificate("a");
    folder.certificate("b");
    let old = folder.path("old.crt");
    fs::copy(folder.path("a.crt"), &old).unwrap();
    let tls = folder.tls("a").unwrap();
    let server = serve(tls.clone(), Options::default()).await;
    let mut before = connect(&server, &old).await.unwrap();

    // Half of a renewal: the key is still the old one.
    fs::copy(folder.path("b.crt"), folder.path("a.crt")).unwrap();
    assert!(matches!(tls.reload(), Err(TlsError::Mismatch { .. })));
    assert_eq!(hello(&mut connect(&server, &old).await.unwrap()).await, "hello");

    fs::copy(folder.path("b.key"), folder.path("a.key")).unwrap();
    tls.reload().unwrap();
    assert!(connect(&server, &old).await.is_err());
    let mut after = connect(&server, &folder.path("b.crt")).await.unwrap();
    assert_eq!(hello(&mut after).await, "hello");
    assert_eq!(hello(&mut before).await, "hello");
    server.stop().await;
}

#[test]
fn errors_name_the_file_and_what_is_wrong_with_it() {
    let folder = Folder::new("errors");
    folder.certificate("a");
    folder.certificate("b");
    let (certificate, key) = (folder.path("a.crt"), folder.path("a.key"));
    let error = |chain: &Path, key: &Path| Tls::load(chain, key).unwrap_err().to_string();

    let missing = folder.path("missing.crt");
    assert_eq!(error(&missing, &key), format!("could not read {}", missing.display()));
    let said = error(&key, &key);
    assert!(said.contains("a.key contains no certificate"), "{said}");
    let said = error(&certificate, &certificate);
    assert!(said.contains("a.crt contains no private key"), "{said}");
    let said = error(&certificate, &folder.path("b.key"));
    assert!(said.contains("b.key does not belong to the first certificate in"), "{said}");
    let half = folder.path("half.key");
    let text = fs::read_to_string(&key).unwrap();
    fs::write(&half, &text[..text.len() / 2]).unwrap();
    let said = error(&certificate, &half);
    assert!(said.contains("half.key"), "{said}");
    let empty = folder.path("empty.crt");
    fs::write(&empty, "").unwrap();
    assert!(error(&empty, &key).contains("empty.crt contains no certificate"));
}
