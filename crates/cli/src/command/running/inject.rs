//! `cenote inject`: faults of devices in open pools, for drills and experiments.

use std::ffi::OsString;
use std::ops::Range;

use cenote_control::files::Target;
use cenote_control::running::inject::{Effect, Faults, Inject as Request, Operation as Op, Order};
use cenote_shown::running::inject;
use clap::{Args, ValueEnum};

use crate::outcome::{CliError, Outcome};
use crate::session::Session;

/// `cenote inject`
#[derive(Debug, Args)]
#[command(after_help = "Needs a daemon (`cenote serve`) that holds the pool. Without a fault, lists the \
        faults. They last until they are cleared or the pool is exported. Reads from the cache are not \
        affected.\n\n\
        Examples:\n  \
        cenote inject tank b --error read --sectors 0.5  # a worn disk: 0.5 % of it can't be read\n  \
        cenote inject tank b --delay 200 --seconds 60    # slow for a minute\n  \
        cenote inject tank/home:/notes.txt b --corrupt   # wrong bits in that file's part of b\n  \
        cenote inject --clear tank")]
pub struct Inject {
    /// Fail these operations with EIO
    #[arg(long, value_name = "OPERATION", value_delimiter = ',')]
    pub error: Vec<Operation>,
    /// Never complete these operations
    #[arg(long, value_name = "OPERATION", value_delimiter = ',')]
    pub hang: Vec<Operation>,
    /// Delay operations by this many milliseconds
    #[arg(long, value_name = "MS")]
    pub delay: Option<u64>,
    /// Return reads with a wrong bit
    #[arg(long)]
    pub corrupt: bool,
    /// Write only the first sectors of a write, and report success
    #[arg(long)]
    pub torn_writes: bool,
    /// Drop writes, and report success
    #[arg(long)]
    pub lost_writes: bool,
    /// Strike operations with this probability, in percent
    #[arg(long, value_name = "PERCENT", conflicts_with = "sectors")]
    pub chance: Option<f64>,
    /// Strike this share of all sectors, in percent, always the same ones
    #[arg(long, value_name = "PERCENT")]
    pub sectors: Option<f64>,
    /// Strike only these bytes of the device, labels included
    #[arg(long, value_name = "FROM-TO")]
    pub range: Option<String>,
    /// Strike only this block of the file, or these [default: all]
    #[arg(long, value_name = "FROM-TO")]
    pub blocks: Option<String>,
    /// Strike blocks of this level of the file's tree; 0 is its content
    #[arg(long, value_name = "LEVEL", default_value_t = 0)]
    pub level: u8,
    /// Strike at most this often
    #[arg(long, value_name = "COUNT")]
    pub times: Option<u64>,
    /// End after this many seconds
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<u64>,
    /// Clear all faults, or those of the pool or the device
    #[arg(long)]
    pub clear: bool,
    /// A pool, or a file in one: POOL/DATASET:/PATH
    #[arg(value_name = "POOL|FILE")]
    pub target: Option<OsString>,
    /// A device: path, the last component of it, or guid
    pub device: Option<String>,
}

/// An operation of a device.
#[derive(Debug, Clone, Copy, ValueEnum)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Operation {
    Read,
    Write,
    Flush,
    Discard,
}

impl From<Operation> for Op {
    fn from(operation: Operation) -> Op {
        match operation {
            Operation::Read => Op::Read,
            Operation::Write => Op::Write,
            Operation::Flush => Op::Flush,
            Operation::Discard => Op::Discard,
        }
    }
}

impl Inject {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let request = Request {
            target: self.target.as_deref().map(Target::parse).transpose().map_err(CliError::Usage)?,
            order: self.order()?,
            device: self.device,
        };
        let adds = matches!(request.order, Order::Add(_));
        let listed = session.control().run(request).await?.answer;
        if adds {
            return Ok(Outcome::Done);
        }
        session.show(|| inject::text(&listed), || inject::json(&listed))?;
        Ok(Outcome::Done)
    }

    fn order(&self) -> Result<Order, CliError> {
        let mut effects: Vec<Effect> = self.error.iter().map(|of| Effect::Error((*of).into())).collect();
        effects.extend(self.hang.iter().map(|of| Effect::Hang((*of).into())));
        effects.extend(self.delay.map(|milliseconds| Effect::Delay { milliseconds }));
        effects.extend(self.corrupt.then_some(Effect::Corrupt));
        effects.extend(self.torn_writes.then_some(Effect::TornWrites));
        effects.extend(self.lost_writes.then_some(Effect::LostWrites));
        let part = |percent: f64| match (0.0..=100.0).contains(&percent) {
            true => Ok(percent / 100.0),
            false => Err(CliError::Usage(format!("{percent} is no percentage: give 0 to 100"))),
        };
        let (chance, sectors) = (self.chance.map(part).transpose()?, self.sectors.map(part).transpose()?);
        match (effects.is_empty(), self.clear) {
            (true, false) => return Ok(Order::List),
            (true, true) => return Ok(Order::Clear),
            (false, false) => {}
            (false, true) => {
                let why = "name the pool and device, or the file, that shall fail";
                return Err(CliError::Usage(why.into()));
            }
        }
        Ok(Order::Add(Faults {
            effects,
            chance,
            sectors,
            bytes: self.range.as_deref().map(range).transpose()?,
            blocks: self.blocks.as_deref().map(range).transpose()?,
            level: self.level,
            times: self.times,
            seconds: self.seconds,
        }))
    }
}

/// `FROM-TO`, end exclusive, or one number.
fn range(typed: &str) -> Result<Range<u64>, CliError> {
    let wrong = || CliError::Usage(format!("'{typed}' is no range: give FROM-TO, or one number"));
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong());
    match typed.split_once('-') {
        Some((from, to)) => Ok(number(from)?..number(to)?),
        None => number(typed).map(|at| at..at.saturating_add(1)),
    }
    .and_then(|range| if range.is_empty() { Err(wrong()) } else { Ok(range) })
}
