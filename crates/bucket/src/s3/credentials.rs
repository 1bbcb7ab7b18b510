//! Credentials and settings, from the places that Amazon's tools use.
//!
//! ```text
//!   AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY [, AWS_SESSION_TOKEN]    the environment, or
//!   ~/.aws/credentials, or AWS_SHARED_CREDENTIALS_FILE                the profile AWS_PROFILE, or `default`
//!   AWS_REGION, AWS_DEFAULT_REGION                                    unless the place names a region
//!   AWS_CA_BUNDLE                                                     authorities instead of the public ones
//! ```
//!
//! Secrets are in no address, label, history or message. They are cleared from memory when dropped.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use zeroize::Zeroizing;

use super::S3Error;

const FILE_BYTES_MAX: u64 = 1 << 20;
const DEFAULT_REGION: &str = "us-east-1";

pub(super) struct Credentials {
    pub(super) id: String,
    pub(super) secret: Zeroizing<String>,
    pub(super) token: Option<Zeroizing<String>>,
}

fn set(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The region of the environment.
pub(super) fn region() -> String {
    set("AWS_REGION").or_else(|| set("AWS_DEFAULT_REGION")).unwrap_or_else(|| DEFAULT_REGION.into())
}

/// The authorities that a server's certificate may come from.
pub(super) fn authorities() -> Result<Arc<RootCertStore>, S3Error> {
    let mut roots = RootCertStore::empty();
    match set("AWS_CA_BUNDLE") {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(file) => {
            let bad = |why: String| S3Error::Tls(format!("AWS_CA_BUNDLE, {file}: {why}"));
            let read = CertificateDer::pem_file_iter(&file).and_then(Iterator::collect);
            let all: Vec<CertificateDer<'static>> = read.map_err(|error| bad(error.to_string()))?;
            for authority in all {
                roots.add(authority).map_err(|error| bad(error.to_string()))?;
            }
        }
    }
    Ok(Arc::new(roots))
}

impl Credentials {
    pub(super) fn new(id: &str, secret: &str) -> Credentials {
        Credentials { id: id.into(), secret: Zeroizing::new(secret.into()), token: None }
    }

    pub(super) fn load() -> Result<Credentials, S3Error> {
        if let (Some(id), Some(secret)) = (set("AWS_ACCESS_KEY_ID"), set("AWS_SECRET_ACCESS_KEY")) {
            let token = set("AWS_SESSION_TOKEN").map(Zeroizing::new);
            return Ok(Credentials { id, secret: Zeroizing::new(secret), token });
        }
        let usual = || Some(PathBuf::from(set("HOME")?).join(".aws/credentials"));
        let file = set("AWS_SHARED_CREDENTIALS_FILE").map(PathBuf::from).or_else(usual);
        let profile = set("AWS_PROFILE").unwrap_or_else(|| "default".into());
        let missing = "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write \
                       ~/.aws/credentials (the daemon needs them in its own environment)";
        let file = file.ok_or_else(|| S3Error::Credentials(missing.into()))?;
        let text = match private(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(S3Error::Credentials(missing.into()));
            }
            Err(error) => return Err(S3Error::Credentials(format!("{}: {error}", file.display()))),
        };
        let found = of_profile(&text, &profile);
        found.ok_or_else(|| {
            S3Error::Credentials(format!("{}: has no keys for the profile '{profile}'", file.display()))
        })
    }
}

/// A file that no other user can read.
fn private(file: &Path) -> io::Result<Zeroizing<String>> {
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(file)?;
    let found = file.metadata()?;
    let is_trusted = found.uid() == 0 || found.uid() == rustix::process::geteuid().as_raw();
    if !found.is_file() || !is_trusted || found.mode() & 0o077 != 0 {
        return Err(io::Error::other("is no private file of this user or root: `chmod 600` it"));
    }
    let mut text = Zeroizing::new(String::new());
    file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// The keys of a profile: lines `NAME = VALUE` after `[PROFILE]`.
fn of_profile(text: &str, profile: &str) -> Option<Credentials> {
    let (mut id, mut secret, mut token) = (None, None, None);
    let mut is_wanted = false;
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            is_wanted = name.trim() == profile;
        } else if let (true, Some((name, value))) = (is_wanted, line.split_once('=')) {
            let value = value.trim().to_owned();
            match name.trim() {
                "aws_access_key_id" => id = Some(value),
                "aws_secret_access_key" => secret = Some(Zeroizing::new(value)),
                "aws_session_token" => token = Some(Zeroizing::new(value)),
                _ => {}
            }
        }
    }
    Some(Credentials { id: id?, secret: secret?, token })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_has_its_own_keys() {
        let text = "# keys\n[default]\naws_access_key_id = A\naws_secret_access_key=s=1\n\n[ other ]\n\
                    aws_access_key_id=B\naws_secret_access_key = t\naws_session_token = u\n[half]\n\
                    aws_access_key_id=C\n";
        let keys = |profile| {
            let found = of_profile(text, profile)?;
            Some((found.id, found.secret.to_string(), found.token.map(|token| token.to_string())))
        };
        assert_eq!(keys("default"), Some(("A".into(), "s=1".into(), None)));
        assert_eq!(keys("other"), Some(("B".into(), "t".into(), Some("u".into()))));
        assert!(keys("half").is_none() && keys("none").is_none());
    }
}
