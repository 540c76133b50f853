//! Servers with certificates of their own, made by `openssl`.

use super::*;
use crate::client::options::Options;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// A temporary directory with certificates and keys.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("requeue-tls-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a new directory");
        Dir(path)
    }

    fn openssl(&self, args: &[&str]) {
        let output = Command::new("openssl").args(args).current_dir(&self.0).output();
        let output = output.expect("no openssl: run scripts/test, which installs it");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Makes a certificate as `openssl req -x509` does by default: self-signed, and that of a CA.
    fn certificate(&self, name: &str, key: &[&str], more: &[&str]) -> PathBuf {
        let (file, key_file) = (format!("{name}.crt"), format!("{name}.key"));
        let fixed = ["req", "-x509", "-nodes", "-subj", "/CN=queue", "-out", &file];
        let new =
            ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-keyout", &key_file];
        let key = if key.is_empty() { &new[..] } else { key };
        let san = ["-addext", "subjectAltName=DNS:queue.example"];
        let ca = ["-addext", "basicConstraints=critical,CA:TRUE", "-config", "/dev/null"];
        self.openssl(&[&fixed[..], key, &san, &ca, more].concat());
        self.0.join(file)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // Best effort.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Performs a handshake with a server that has this certificate and key. Returns the client's error.
fn handshake(ca: &Path, certificate: &Path, key: &Path, name: &str) -> Result<(), String> {
    let options = Options { ca_file: Some(ca.to_owned()), ..Options::default() };
    let client = crate::client::tls::connector(&options).expect("the certificate can be read");
    let chain = vec![CertificateDer::from_pem_file(certificate).expect("a certificate")];
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().expect("they are supported");
    let key = PrivateKeyDer::from_pem_file(key).expect("a key");
    let config = config.with_no_client_auth().with_single_cert(chain, key).expect("a pair");
    let server = TlsAcceptor::from(Arc::new(config));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accept = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            drop(server.accept(stream).await);
        });
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let connected = client.connect(name, stream).await;
        drop(accept.await);
        connected.map(drop).map_err(|error| error.to_string())
    })
}

#[test]
fn a_self_signed_certificate_is_trusted_if_it_is_the_one_in_the_file() {
    let dir = Dir::new("self");
    let certificate = dir.certificate("a", &[], &["-days", "2"]);
    let key = dir.file("a.key");
    assert_eq!(handshake(&certificate, &certificate, &key, "queue.example"), Ok(()));
    let error = handshake(&certificate, &certificate, &key, "other.example").unwrap_err();
    assert!(error.contains("not valid for name"), "{error}");

    // Another certificate with the same names and the same key.
    let other = dir.certificate("b", &["-key", "a.key"], &["-days", "2", "-set_serial", "7"]);
    let error = handshake(&certificate, &other, &key, "queue.example").unwrap_err();
    assert!(error.contains("CaUsedAsEndEntity"), "{error}");

    // Another key, which a server must have to use the certificate at all.
    dir.certificate("c", &[], &["-days", "2"]);
    let stranger = dir.file("c.crt");
    let error = handshake(&certificate, &stranger, &dir.file("c.key"), "queue.example");
    assert!(error.unwrap_err().contains("invalid peer certificate"));
}

#[test]
fn a_self_signed_certificate_is_trusted_only_while_it_is_valid() {
    let dir = Dir::new("time");
    const DAY: u64 = 86_400;
    // From 2050 on, a certificate writes years with four digits.
    for (name, days) in [("short", 2), ("long", 20_000)] {
        let file = dir.certificate(name, &[], &["-days", &days.to_string()]);
        let certificate = CertificateDer::from_pem_file(&file).expect("a certificate");
        let valid = validity(&certificate).expect("it has a period of validity");
        assert_eq!(valid.end() - valid.start(), days * DAY);
        assert!(UnixTime::now().as_secs() - valid.start() < DAY);

        let mut trusted = RootCertStore::empty();
        trusted.add(certificate.clone()).expect("a certificate");
        let provider = Arc::new(ring::default_provider());
        let webpki = WebPkiServerVerifier::builder_with_provider(Arc::new(trusted), provider);
        let verifier = PinnedVerifier {
            webpki: webpki.build().expect("a verifier"),
            pinned: vec![certificate.clone()],
        };
        let name = ServerName::try_from("queue.example").expect("a name");
        for (seconds, expected) in [
            (valid.start() - 1, Some("not valid yet")),
            (*valid.start(), None),
            (*valid.end(), None),
            (valid.end() + 1, Some("expired")),
        ] {
            let at = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
            let verified = verifier.verify_server_cert(&certificate, &[], &name, &[], at);
            match (verified, expected) {
                (Ok(_), None) => {}
                (Err(error), Some(word)) if error.to_string().contains(word) => {}
                (verified, expected) => panic!("{verified:?} instead of {expected:?}"),
            }
            // Without webpki's own check of the time.
            assert_eq!(check_time(&certificate, at).is_ok(), expected.is_none());
        }
    }
}

#[test]
fn no_bytes_make_the_reader_of_a_certificate_panic() {
    let dir = Dir::new("bytes");
    let file = dir.certificate("a", &[], &["-days", "2"]);
    let whole = CertificateDer::from_pem_file(file).expect("a certificate").to_vec();
    let mut random = requeue_testkit::Random::new(7);
    for end in 0..whole.len() {
        // The fields are inside of the length of the whole, which is then wrong.
        assert_eq!(validity(&whole[..end]), None, "{end}");
    }
    for _ in 0..20_000 {
        let mut bytes = whole.clone();
        for _ in 0..=random.below(4) {
            let at = random.below(200.min(bytes.len()));
            bytes[at] = random.number() as u8;
        }
        validity(&bytes);
    }
}
