//! The daemon's configuration file: settings that the command line leaves open.

use std::path::Path;

use cenote_policy::PolicyName;
use cenote_serve::config::Config;

use super::Serve;
use crate::args::common::Common;
use crate::outcome::CliError;

/// Limit of the file's size.
const MAX_BYTES: u64 = 1 << 20;

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

/// Fills unset options from the file.
pub fn complete(file: Config, serve: &mut Serve, common: &mut Common) {
    serve.socket = serve.socket.take().or(file.socket);
    serve.state = serve.state.take().or(file.state);
    serve.no_mount |= file.no_mount.unwrap_or(false);
    serve.load_keys |= file.load_keys.unwrap_or(false);
    serve.readers = serve.readers.or(file.readers);
    serve.no_fuse_io_uring |= file.no_fuse_io_uring.unwrap_or(false);
    serve.no_loop |= file.no_loop.unwrap_or(false);
    serve.writeback |= file.writeback.unwrap_or(false);
    serve.memory = serve.memory.take().or(file.memory);
    serve.log_format = serve.log_format.or(file.log_format.map(Into::into));
    serve.tls = serve.tls.take().or(file.tls);
    serve.iscsi_name = serve.iscsi_name.take().or(file.iscsi_name);
    if serve.iscsi_lun.is_empty() {
        serve.iscsi_lun = file.iscsi_lun.unwrap_or_default();
    }
    serve.iscsi_accounts = serve.iscsi_accounts.take().or(file.iscsi_accounts);
    if serve.iscsi.is_empty() {
        serve.iscsi = file.iscsi.unwrap_or_default();
    }
    serve.connections = serve.connections.or(file.connections);
    serve.insecure |= file.insecure.unwrap_or(false);
    if serve.nbd.is_empty() {
        serve.nbd = file.nbd.unwrap_or_default();
    }
    if serve.export.is_empty() {
        serve.export = file.export.unwrap_or_default();
    }
    serve.vhost_user = serve.vhost_user.take().or(file.vhost_user);
    serve.ublk = serve.ublk.take().or(file.ublk);
    if serve.http.is_empty() {
        serve.http = file.http.unwrap_or_default();
    }
    serve.http_tokens = serve.http_tokens.take().or(file.http_tokens);
    serve.agent = serve.agent.take().or(file.agent);
    serve.ha = serve.ha.take().or(file.ha);
    serve.kstat = serve.kstat.take().or(file.kstat);
    common.cache = common.cache.take().or(file.cache);
    if let (None, Some(name)) = (common.cache_policy, &file.cache_policy) {
        // It was checked when the file was read.
        common.cache_policy = PolicyName::living(name).ok();
    }
    common.threads = common.threads.or(file.threads);
    if serve.pools.is_empty() {
        serve.pools = file.pools.unwrap_or_default();
    }
    if common.disks.is_empty() {
        common.disks = file.disks.unwrap_or_default();
    }
    common.keys.extend(file.keys.unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use cenote_serve::config::LogFormat;

    use super::*;
    use crate::args::Cli;

    /// The packaged file, with each option uncommented.
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
            export: Some(_),
            vhost_user: Some(_),
            ublk: Some(_),
            http: Some(_),
            http_tokens: Some(_),
            kstat: Some(_),
            agent: Some(_),
            ha: Some(_),
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
        // Options of a single command, or impossible in a daemon.
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
