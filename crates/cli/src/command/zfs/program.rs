//! Command line of `zfs program`.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use cenote_control::zfs::program::{
    DEFAULT_INSTRUCTIONS, DEFAULT_MEMORY_BYTES, Program as Request, script_of,
};
use cenote_shown::zfs::program;
use clap::Args;

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `zfs program`
#[derive(Debug, Args)]
#[command(
    // OpenZFS's text.
    override_usage = "cenote zfs program [-jn] [-t <instruction limit>] [-m <memory limit (b)>]\n           \
    <pool> <program file> [lua args...]",
    after_help = "The script is Lua 5.2 with whole numbers, without pcall, print and load. Its calls of \
    zfs.sync change datasets, all in one transaction group; zfs.check tells whether a change would succeed; \
    zfs.list, zfs.get_prop and zfs.exists look. Changes made before a failure stay.\n\n\
    Example: cenote zfs program tank rotate.lua tank/home 7"
)]
pub struct Program {
    /// Refuse changes
    #[arg(short = 'n')]
    pub read_only: bool,
    /// Most Lua instructions to run, up to 100000000 [default: 10000000]
    #[arg(short = 't', value_name = "INSTRUCTIONS", value_parser = number)]
    pub instructions: Option<u64>,
    /// Most memory to use, in bytes, up to 104857600 [default: 10485760]
    #[arg(short = 'm', value_name = "BYTES", value_parser = number)]
    pub memory: Option<u64>,
    /// The pool
    pub pool: String,
    /// The script's file; `-` for standard input
    pub script: PathBuf,
    /// Arguments for the script, as `argv` of its argument; after `--` if one begins with `-`
    pub arguments: Vec<String>,
}

/// Reads a number as `strtoull` does.
fn number(typed: &str) -> Result<u64, String> {
    let parsed = match (typed.strip_prefix("0x"), typed.strip_prefix('0')) {
        (Some(digits), _) => u64::from_str_radix(digits, 16),
        (None, Some(digits)) if !digits.is_empty() => u64::from_str_radix(digits, 8),
        _ => typed.parse(),
    };
    parsed.map_err(|_| "expected integer".into())
}

impl Program {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let script = self.read()?;
        let Program { read_only, instructions, memory, pool, arguments, script: _ } = self;
        let request = Request {
            pool,
            script,
            arguments,
            instructions: instructions.unwrap_or(DEFAULT_INSTRUCTIONS),
            memory_bytes: memory.unwrap_or(DEFAULT_MEMORY_BYTES),
            read_only,
        };
        let answered = session.control().run(request).await?;
        session.show(|| program::text(&answered.answer), || program::json(&answered.answer))?;
        Ok(answered.outcome)
    }

    /// The script, read with the user's own rights. Scripts in other encodings than UTF-8 become UTF-8.
    fn read(&self) -> Result<String, CliError> {
        let mut bytes = Vec::new();
        if self.script.as_os_str() == "-" {
            let read = std::io::stdin().read_to_end(&mut bytes);
            read.map_err(CliError::io("standard input"))?;
        } else {
            let path = self.script.display();
            let opened = File::open(&self.script);
            let mut file =
                opened.map_err(|error| CliError::Refused(format!("cannot open '{path}': {error}")))?;
            file.read_to_end(&mut bytes).map_err(CliError::io(path.to_string()))?;
        }
        script_of(&bytes).ok_or_else(|| {
            let path = self.script.display();
            CliError::Refused(format!("cannot read '{path}': outside quotes, a script is UTF-8 text"))
        })
    }
}
