//! Accounts for iSCSI logins: a file of names and secrets, not readable by other users.
//!
//! ```text
//!   [[initiator]]           hosts that may log in
//!   user = "host1"
//!   secret = "..."          12 characters at least
//!   names = ["iqn..."]      permitted iSCSI names; default: any
//!   [target]                the server's identity, for hosts that ask (mutual CHAP)
//!   user = "storage"
//!   secret = "..."          another one
//! ```

use std::path::Path;

use cenote_host::own;
use cenote_iscsi::{Account, Accounts};
use serde::Deserialize;

/// The shortest secret that RFC 7143 permits if nothing else protects the login.
const SECRET_BYTES_MIN: usize = 12;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    initiator: Vec<Entry>,
    target: Option<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    user: String,
    secret: String,
    #[serde(default)]
    names: Vec<String>,
}

/// Reads a file.
///
/// # Errors
/// Unreadable, readable by others, or invalid; the text says which.
pub fn read(path: &Path) -> Result<Accounts, String> {
    parse(&own::secret_text(path).map_err(|error| error.to_string())?)
}

/// Parses the text of such a file.
///
/// # Errors
/// Invalid text; the message contains no secret.
pub fn parse(text: &str) -> Result<Accounts, String> {
    // The library's message would show the line, which may have a secret.
    let file: File = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    let account = |entry: Entry| match entry.secret.len() {
        SECRET_BYTES_MIN.. => Ok(Account { user: entry.user, secret: entry.secret, names: entry.names }),
        _ => Err(format!("the secret of '{}' has fewer than {SECRET_BYTES_MIN} characters", entry.user)),
    };
    let initiators: Vec<Account> = file.initiator.into_iter().map(account).collect::<Result<_, _>>()?;
    let target = file.target.map(account).transpose()?;
    if initiators.is_empty() {
        return Err("no initiator may log in: it has no [[initiator]]".into());
    }
    if target.iter().any(|target| initiators.iter().any(|it| it.secret == target.secret)) {
        return Err("the target's secret is that of an initiator, too".into());
    }
    Ok(Accounts { initiators, target })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_long_enough_and_differ() {
        const HOST: &str = "[[initiator]]\nuser = \"a\"\nsecret = \"twelve chars\"\n";
        assert_eq!(parse(HOST).map(|accounts| accounts.initiators.len()).unwrap(), 1);
        let wrong = |text: &str| parse(text).map(drop).unwrap_err();
        assert!(wrong("").contains("no initiator"));
        assert!(wrong("[[initiator]]\nuser = \"a\"\nsecret = \"short\"").contains("fewer than 12"));
        assert!(wrong(&format!("{HOST}[target]\nuser = \"b\"\nsecret = \"twelve chars\"")).contains("too"));
        assert!(!wrong(&format!("{HOST}secrte = \"hidden value\"")).contains("hidden"));
    }
}
