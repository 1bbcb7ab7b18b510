//! `zfs program`: runs a channel program, a Lua script that makes many changes in one txg.
//!
//! Source: OpenZFS `zfs_main.c` (`zfs_do_channel_program`), `zfs_ioctl.c` (`zfs_ioc_channel_program`),
//! including the wording.

use cenote_program::{Ended, Failure, MAX_INSTRUCTIONS, MAX_MEMORY_BYTES, Run};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{ControlError, Outcome};
use crate::session::{NewDatasets, Session};
use crate::verb::{Answered, Looks, Needs, Verb};

pub use cenote_program::{DEFAULT_INSTRUCTIONS, DEFAULT_MEMORY_BYTES, Value, script_of};

/// Run a channel program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Program {
    /// Its pool: the only one it may name.
    pub pool: String,
    /// Lua script.
    pub script: String,
    /// Given to the script as `argv`.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Most Lua instructions to run, up to 100 million.
    #[serde(default = "default_instructions")]
    pub instructions: u64,
    /// Most memory to use, up to 100 MiB.
    #[serde(default = "default_memory_bytes")]
    pub memory_bytes: u64,
    /// Refuse changes.
    #[serde(default)]
    pub read_only: bool,
}

/// The program's return value, if any.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Returned {
    /// The value.
    pub value: Option<Value>,
}

fn default_instructions() -> u64 {
    DEFAULT_INSTRUCTIONS
}

fn default_memory_bytes() -> u64 {
    DEFAULT_MEMORY_BYTES
}

impl Verb for Program {
    const NAME: &'static str = "zfs program";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    type Answer = Returned;

    /// # Errors
    /// The program failed.
    async fn carry_out(self, session: &Session) -> Result<Answered<Returned>, ControlError> {
        let most = session.pools().map(|pools| pools.tuning.program_limits());
        self.check_limits(most.unwrap_or((MAX_INSTRUCTIONS, MAX_MEMORY_BYTES)))?;
        let (mut ran, pool) = (None, self.pool.clone());
        let is_read_only = self.read_only;
        // Its datasets stay unmounted, as in OpenZFS.
        let done = session.change_pool_with(&pool, NewDatasets::Stay, async |engine| {
            let program = self.of_pool(engine.pool().name());
            // An interrupted program must end before the txg that it keeps open can.
            let run = async { Ok(cenote_program::run(engine, program).await?) };
            let run = session.caller().until_cancelled(run).await?;
            let is_done = matches!(run.ended, Ended::Returned(_)) && !is_read_only;
            ran = Some(run);
            // The history does not record a program that changes nothing or fails.
            Ok(if is_done { Outcome::Done } else { Outcome::Failed })
        });
        let outcome = done.await?;
        let Some(Run { ended, debug }) = ran else {
            return Err(ControlError::Refused("the channel program did not run".into()));
        };
        debug.into_iter().for_each(|text| session.caller().note(text));
        match ended {
            Ended::Failed(failure) => Err(failed(failure)),
            Ended::Returned(value) if is_read_only => Ok(Returned { value }.into()),
            Ended::Returned(value) => Ok(Answered { answer: Returned { value }, outcome }),
        }
    }
}

impl Program {
    fn check_limits(&self, (most_instructions, most_bytes): (u64, u64)) -> Result<(), ControlError> {
        let is_possible = |asked: u64, most: u64| (1..=most).contains(&asked);
        let text = if i64::try_from(self.memory_bytes).is_err() {
            "Return value too large."
        } else if !is_possible(self.instructions, most_instructions)
            || !is_possible(self.memory_bytes, most_bytes)
        {
            "Invalid instruction or memory limit."
        } else {
            return Ok(());
        };
        Err(failed(Failure { text: text.into(), instructions: None }))
    }

    /// The program on a pool, which may have been named by its guid.
    fn of_pool(self, pool: &str) -> cenote_program::Program {
        let Program { script, arguments, instructions, memory_bytes, read_only, .. } = self;
        let (pool, is_read_only) = (pool.to_owned(), read_only);
        cenote_program::Program { pool, script, arguments, instructions, memory_bytes, is_read_only }
    }
}

fn failed(failure: Failure) -> ControlError {
    let count = failure.instructions.map_or(String::new(), |count| format!("\n{count} Lua instructions"));
    ControlError::Refused(format!("Channel program execution failed:\n{}{count}", failure.text))
}
