//! The daemon's configuration file: TOML, with an entry for each option of `cenote serve`, under its long
//! name.

use std::path::PathBuf;

use cenote_policy::PolicyName;
use serde::Deserialize;

/// Maximum threads: more than any machine has cores.
pub const MAX_THREADS: u16 = 1024;

/// Format of the daemon's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// Lines.
    Text,
    /// One JSON object per line.
    Json,
}

/// The entries of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[allow(missing_docs)] // the options say what they are
pub struct Config {
    pub socket: Option<PathBuf>,
    pub state: Option<PathBuf>,
    pub disks: Option<Vec<PathBuf>>,
    pub pools: Option<Vec<String>>,
    pub no_mount: Option<bool>,
    pub load_keys: Option<bool>,
    #[serde(rename = "key")]
    pub keys: Option<Vec<String>>,
    pub readers: Option<u16>,
    pub no_fuse_io_uring: Option<bool>,
    pub no_loop: Option<bool>,
    pub writeback: Option<bool>,
    pub memory: Option<String>,
    pub nbd: Option<Vec<String>>,
    pub export: Option<Vec<String>>,
    pub vhost_user: Option<PathBuf>,
    pub ublk: Option<PathBuf>,
    pub http: Option<Vec<String>>,
    pub http_tokens: Option<PathBuf>,
    pub kstat: Option<PathBuf>,
    pub agent: Option<PathBuf>,
    pub ha: Option<PathBuf>,
    pub tls: Option<PathBuf>,
    pub iscsi: Option<Vec<String>>,
    pub iscsi_name: Option<String>,
    pub iscsi_lun: Option<Vec<String>>,
    pub iscsi_accounts: Option<PathBuf>,
    pub connections: Option<u32>,
    pub insecure: Option<bool>,
    pub log_format: Option<LogFormat>,
    pub cache: Option<String>,
    pub cache_policy: Option<String>,
    pub threads: Option<u16>,
}

impl Config {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// Invalid TOML, an unknown entry, or a number out of range; the text says which.
    pub fn parse(text: &str) -> Result<Config, String> {
        let config: Config = toml::from_str(text).map_err(|error| error.to_string())?;
        match config.readers {
            Some(readers) if !(1..=64).contains(&readers) => return Err("readers: from 1 to 64".into()),
            _ => {}
        }
        if config.threads.is_some_and(|threads| threads > MAX_THREADS) {
            return Err(format!("threads: at most {MAX_THREADS}"));
        }
        if config.connections.is_some_and(|most| !(1..=1_000_000).contains(&most)) {
            return Err("connections: from 1 to 1000000".into());
        }
        if let Some(Err(error)) = config.cache_policy.as_deref().map(PolicyName::living) {
            return Err(format!("cache-policy: {error}"));
        }
        Ok(config)
    }
}
