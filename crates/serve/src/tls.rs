//! TLS for servers: certificates from a folder, with the file names of QEMU and nbdkit.
//!
//! ```text
//!   server-cert.pem  the server's certificate and intermediate certificates
//!   server-key.pem   its key, not readable by other users
//!   ca-cert.pem      optional: clients must have a certificate of this authority
//! ```

use std::io;
use std::path::Path;
use std::sync::Arc;

use cenote_disk::Stream;
use cenote_host::own;
use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio_rustls::TlsAcceptor;

/// Loaded certificates. Clones share them.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    asks_clients: bool,
}

/// An error in a folder of certificates.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {why}")]
pub struct BadCertificates {
    /// File.
    pub file: String,
    /// Error in it.
    pub why: String,
}

impl Tls {
    /// Reads a folder.
    ///
    /// # Errors
    /// A file is missing or damaged; key and certificate do not match.
    pub fn load(dir: &Path) -> Result<Tls, BadCertificates> {
        let bad =
            |name: &str, why: String| BadCertificates { file: dir.join(name).display().to_string(), why };
        let certificates = |name: &str| -> Result<Vec<CertificateDer<'static>>, BadCertificates> {
            let read = CertificateDer::pem_file_iter(dir.join(name)).and_then(Iterator::collect);
            let all: Vec<_> = read.map_err(|error| bad(name, error.to_string()))?;
            if all.is_empty() { Err(bad(name, "has no certificate".into())) } else { Ok(all) }
        };
        const CERT: &str = "server-cert.pem";
        const KEY: &str = "server-key.pem";
        const CA: &str = "ca-cert.pem";
        let chain = certificates(CERT)?;
        let key = own::secret(&dir.join(KEY)).map_err(|error| bad(KEY, error.to_string()))?;
        let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| bad(KEY, error.to_string()))?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| bad(CERT, error.to_string()))?;
        let asks_clients = dir.join(CA).exists();
        let builder = if asks_clients {
            let mut roots = RootCertStore::empty();
            for root in certificates(CA)? {
                roots.add(root).map_err(|error| bad(CA, error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| bad(CA, error.to_string()))?)
        } else {
            builder.with_no_client_auth()
        };
        let config = builder.with_single_cert(chain, key).map_err(|error| bad(KEY, error.to_string()))?;
        Ok(Tls { acceptor: TlsAcceptor::from(Arc::new(config)), asks_clients })
    }

    /// Whether clients must show certificates: otherwise TLS does not authenticate them.
    pub fn asks_clients(&self) -> bool {
        self.asks_clients
    }

    /// Wraps a connection in TLS, once both sides trust each other.
    ///
    /// # Errors
    /// Failed authentication or connection.
    pub async fn start(&self, stream: Box<dyn Stream>) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(self.acceptor.accept(stream).await?))
    }
}
