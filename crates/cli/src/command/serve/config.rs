//! The daemon's configuration file: TOML, an entry for each option of `cenote serve`, under its long name.

use std::path::{Path, PathBuf};

use cenote_policy::PolicyName;
use serde::Deserialize;

use super::{LogFormat, Serve};
use crate::args::common::{Common, MAX_THREADS};
use crate::outcome::CliError;

/// The largest file that is read.
const MAX_BYTES: u64 = 1 << 20;

/// What the file may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
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
    pub vhost_user: Option<PathBuf>,
    pub ublk: Option<PathBuf>,
    pub http: Option<Vec<String>>,
    pub http_tokens: Option<PathBuf>,
    pub kstat: Option<PathBuf>,
    pub agent: Option<PathBuf>,
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
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Config, CliError> {
        let shown = path.display();
        let failed = CliError::io(shown.to_string());
        let text = match std::fs::metadata(path) {
            Ok(found) if found.len() > MAX_BYTES => {
                return Err(CliError::Usage(format!("--config {shown}: too large for a configuration file")));
            }
            _ => std::fs::read_to_string(path).map_err(failed)?,
        };
        let config = Config::parse(&text);
        config.map_err(|why| CliError::Usage(format!("--config {shown}: {}", why.trim_end())))
    }

    fn parse(text: &str) -> Result<Config, String> {
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

    /// Adds this to what was typed.
    pub fn complete(self, serve: &mut Serve, common: &mut Common) {
        serve.socket = serve.socket.take().or(self.socket);
        serve.state = serve.state.take().or(self.state);
        serve.no_mount |= self.no_mount.unwrap_or(false);
        serve.load_keys |= self.load_keys.unwrap_or(false);
        serve.readers = serve.readers.or(self.readers);
        serve.no_fuse_io_uring |= self.no_fuse_io_uring.unwrap_or(false);
        serve.no_loop |= self.no_loop.unwrap_or(false);
        serve.writeback |= self.writeback.unwrap_or(false);
        serve.memory = serve.memory.take().or(self.memory);
        serve.log_format = serve.log_format.or(self.log_format);
        serve.tls = serve.tls.take().or(self.tls);
        serve.iscsi_name = serve.iscsi_name.take().or(self.iscsi_name);
        if serve.iscsi_lun.is_empty() {
            serve.iscsi_lun = self.iscsi_lun.unwrap_or_default();
        }
        serve.iscsi_accounts = serve.iscsi_accounts.take().or(self.iscsi_accounts);
        if serve.iscsi.is_empty() {
            serve.iscsi = self.iscsi.unwrap_or_default();
        }
        serve.connections = serve.connections.or(self.connections);
        serve.insecure |= self.insecure.unwrap_or(false);
        if serve.nbd.is_empty() {
            serve.nbd = self.nbd.unwrap_or_default();
        }
        serve.vhost_user = serve.vhost_user.take().or(self.vhost_user);
        serve.ublk = serve.ublk.take().or(self.ublk);
        if serve.http.is_empty() {
            serve.http = self.http.unwrap_or_default();
        }
        serve.http_tokens = serve.http_tokens.take().or(self.http_tokens);
        serve.agent = serve.agent.take().or(self.agent);
        serve.kstat = serve.kstat.take().or(self.kstat);
        common.cache = common.cache.take().or(self.cache);
        if let (None, Some(name)) = (common.cache_policy, &self.cache_policy) {
            // It was checked when the file was read.
            common.cache_policy = PolicyName::living(name).ok();
        }
        common.threads = common.threads.or(self.threads);
        if serve.pools.is_empty() {
            serve.pools = self.pools.unwrap_or_default();
        }
        if common.disks.is_empty() {
            common.disks = self.disks.unwrap_or_default();
        }
        common.keys.extend(self.keys.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    /// The file that comes with the package, with each option in force.
    fn shipped() -> String {
        let text = include_str!("../../../../../dist/serve.toml");
        text.lines().map(|line| line.strip_prefix("#: ").unwrap_or(line)).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn every_option_has_a_place_in_the_file() {
        let Config {
            socket: Some(_),
            state: Some(_),
            disks: Some(_),
            pools: Some(_),
            no_mount: Some(_),
            load_keys: Some(_),
            keys: Some(_),
            readers: Some(_),
            no_fuse_io_uring: Some(_),
            no_loop: Some(_),
            writeback: Some(_),
            memory: Some(_),
            nbd: Some(_),
            vhost_user: Some(_),
            ublk: Some(_),
            http: Some(_),
            http_tokens: Some(_),
            kstat: Some(_),
            agent: Some(_),
            tls: Some(_),
            iscsi: Some(_),
            iscsi_name: Some(_),
            iscsi_lun: Some(_),
            iscsi_accounts: Some(_),
            connections: Some(_),
            insecure: Some(_),
            log_format: Some(_),
            cache: Some(_),
            cache_policy: Some(_),
            threads: Some(_),
        } = Config::parse(&shipped()).unwrap()
        else {
            panic!("the shipped file lacks an option")
        };
        // About one command, or what a daemon cannot have.
        const APART: [&str; 9] =
            ["config", "foreground", "replay", "txg", "rewind", "checkpoint", "json", "help", "version"];
        let cli = Cli::command();
        let serve = cli.find_subcommand("serve").unwrap();
        for option in serve.get_arguments().filter_map(|arg| arg.get_long()) {
            let entry = format!("\n{option} = ");
            assert!(APART.contains(&option) || shipped().contains(&entry), "{option}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let wrong = Config::parse("readers = 4\nsockt = \"/x\"").unwrap_err();
        assert!(wrong.contains("line 2") && wrong.contains("sockt"), "{wrong}");
        assert!(Config::parse("readers = 0").is_err() && Config::parse("log-format = \"xml\"").is_err());
        assert_eq!(Config::parse("log-format = \"json\"").unwrap().log_format, Some(LogFormat::Json));
    }
}
