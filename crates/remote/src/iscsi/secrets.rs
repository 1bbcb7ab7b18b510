//! The file with this machine's secrets for iSCSI targets, and its own name.
//!
//! ```text
//!   initiator = "iqn..."      this machine's name; by default that of open-iscsi, or one of its host name
//!   [[target]]                the first that fits counts
//!   name = "iqn..."           the target; by default any
//!   user = "host1"            CHAP: this machine's name and secret
//!   secret = "..."
//!   target-user = "storage"   optional: the target must prove that it knows this one (mutual CHAP)
//!   target-secret = "..."
//! ```
//!
//! The file must be readable by root, or this program's user, only. Messages contain no secret.

use std::fs;
use std::io;
use std::path::Path;

use serde::Deserialize;

use crate::error::ServerError;
use crate::secret::secret;

/// The file, unless the place names another.
const FILE: &str = "/etc/cenote/iscsi-targets.toml";
/// The name of the host's own initiator.
const OPEN_ISCSI: &str = "/etc/iscsi/initiatorname.iscsi";
/// Names made of the host's.
const PREFIX: &str = "iqn.2026-11.org.cenote.host";

/// Secrets of one target.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Chap {
    /// The target; `None`: any.
    #[serde(default)]
    pub name: Option<String>,
    /// This machine's name.
    pub user: String,
    /// This machine's secret.
    pub secret: String,
    /// The target's name.
    #[serde(default)]
    pub target_user: Option<String>,
    /// The secret that the target must know.
    #[serde(default)]
    pub target_secret: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    initiator: Option<String>,
    #[serde(default)]
    target: Vec<Chap>,
}

/// This machine's name, and its secrets for a target.
pub(super) fn read(named: Option<&Path>, target: &str) -> Result<(String, Option<Chap>), ServerError> {
    let path = named.unwrap_or(Path::new(FILE));
    let bad = |why: String| ServerError::Secrets { file: path.into(), why };
    let file = match secret(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => File::default(),
        read => parse(&read.map_err(|error| bad(error.to_string()))?).map_err(bad)?,
    };
    let chap = file.target.into_iter().find(|chap| chap.name.as_deref().is_none_or(|name| name == target));
    let initiator = file.initiator.or_else(open_iscsi_name).unwrap_or_else(|| {
        let host = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
        let may_be = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
        format!("{PREFIX}:{}", host.chars().filter(|c| may_be(*c)).take(64).collect::<String>())
    });
    Ok((initiator, chap))
}

fn parse(text: &[u8]) -> Result<File, String> {
    let text = std::str::from_utf8(text).map_err(|_| "is no UTF-8".to_owned())?;
    // The library's message would show the line, which may have a secret.
    let file: File = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    let is_half = |chap: &Chap| chap.target_user.is_some() != chap.target_secret.is_some();
    if file.target.iter().any(is_half) {
        return Err("target-user and target-secret need each other".into());
    }
    if file.target.iter().any(|chap| chap.target_secret.as_ref() == Some(&chap.secret)) {
        return Err("the target's secret is this machine's, too".into());
    }
    Ok(file)
}

fn open_iscsi_name() -> Option<String> {
    let text = fs::read_to_string(OPEN_ISCSI).ok()?;
    let name = text.lines().find_map(|line| line.trim().strip_prefix("InitiatorName="))?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_first_secrets_that_fit_count_and_messages_have_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("iscsi");
        let write = |text: &str, mode: u32| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        };
        let one = "[[target]]\nname = \"iqn.a\"\nuser = \"u\"\nsecret = \"hidden\"\n";
        let all = format!("initiator = \"iqn.me\"\n{one}[[target]]\nuser = \"v\"\nsecret = \"h\"\n");
        write(&all, 0o600);
        let user = |target: &str| read(Some(&file), target).unwrap().1.unwrap().user;
        assert_eq!(
            (read(Some(&file), "iqn.a").unwrap().0, user("iqn.a"), user("iqn.b")),
            ("iqn.me".into(), "u".into(), "v".into())
        );
        let wrong = || read(Some(&file), "iqn.a").map(drop).unwrap_err().to_string();
        write(&all, 0o644);
        assert!(wrong().contains("chmod 600"), "{}", wrong());
        for text in [
            format!("{one}target-user = \"x\""),
            format!("{one}target-user = \"x\"\ntarget-secret = \"hidden\""),
            format!("{one}secrte = \"hidden\""),
            "secret".into(),
        ] {
            write(&text, 0o600);
            assert!(!wrong().contains("hidden"), "{}", wrong());
        }
        fs::remove_file(&file).unwrap();
        assert!(wrong().contains("iscsi"), "a named file must exist");
    }
}
