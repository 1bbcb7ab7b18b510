//! TLS for clients: certificates from a folder, with the file names of QEMU and nbdkit.
//!
//! ```text
//!   ca-cert.pem       the authority that the server's certificate must come from
//!   client-cert.pem   optional: this client's certificate and intermediate certificates
//!   client-key.pem    its key, not readable by other users
//! ```

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote_disk::Stream;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use crate::error::ServerError;
use crate::secret::secret;

/// The folder, unless the place names another.
const FOLDER: &str = "/etc/cenote/tls";
const CA: &str = "ca-cert.pem";
const CERT: &str = "client-cert.pem";
const KEY: &str = "client-key.pem";

pub(crate) struct Tls {
    connector: TlsConnector,
    server: ServerName<'static>,
    names_client: bool,
}

impl Tls {
    /// Reads a folder. `host`: the name that the server's certificate must have.
    ///
    /// # Errors
    /// A file is missing, damaged, or not private; key and certificate do not match.
    pub(crate) fn load(folder: Option<&Path>, host: &str) -> Result<Tls, ServerError> {
        let folder = folder.unwrap_or(Path::new(FOLDER));
        let server = match host.parse::<IpAddr>() {
            Ok(address) => ServerName::from(address),
            Err(_) => ServerName::try_from(host.to_owned())
                .map_err(|error| ServerError::Certificates { file: CA.into(), why: error.to_string() })?,
        };
        let mut roots = RootCertStore::empty();
        for root in certificates(&folder.join(CA))? {
            roots.add(root).map_err(|error| bad(&folder.join(CA), error))?;
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| bad(&folder.join(CA), error))?
            .with_root_certificates(roots);
        let names_client = folder.join(CERT).exists();
        let config = match names_client {
            false => builder.with_no_client_auth(),
            true => {
                let at = folder.join(KEY);
                let key = secret(&at).map_err(|error| bad(&at, error))?;
                let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| bad(&at, error))?;
                let chain = certificates(&folder.join(CERT))?;
                builder.with_client_auth_cert(chain, key).map_err(|error| bad(&at, error))?
            }
        };
        Ok(Tls { connector: TlsConnector::from(Arc::new(config)), server, names_client })
    }

    /// Whether servers learn from a certificate which client this is.
    pub(crate) fn names_client(&self) -> bool {
        self.names_client
    }

    /// Wraps a connection, once the server has shown its certificate.
    pub(crate) async fn start(&self, stream: Box<dyn Stream>) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(self.connector.connect(self.server.clone(), stream).await?))
    }
}

fn bad(file: &Path, why: impl ToString) -> ServerError {
    ServerError::Certificates { file: PathBuf::from(file), why: why.to_string() }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, ServerError> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let all: Vec<_> = read.map_err(|error| bad(file, error))?;
    if all.is_empty() { Err(bad(file, "has no certificate")) } else { Ok(all) }
}
