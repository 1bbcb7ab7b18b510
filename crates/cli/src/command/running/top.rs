//! `cenote top`: pools, vdevs, classes of operations, latencies and caches of the daemon, live.
//!
//! In a terminal each look replaces the one before, on an alternate screen; elsewhere they follow as text.
//! The first look covers the time since the pools were opened, each later one its interval.

use cenote_control::running::top::Top as Request;
use cenote_shown::running::top::{self, Look};
use clap::Args;

use crate::command::zpool::shown::repeat::seconds;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print, print_bytes, print_json};
use crate::streams::streams;

/// `cenote top`
#[derive(Debug, Args)]
#[command(
    after_help = "Needs a daemon (`cenote serve`) that holds pools. `wait` is the average time of operations \
        on the device; 99 of 100 took less than `p99`. `pend` and `activ` count operations waiting in queues \
        and in progress. Ctrl-C ends it.\n\n\
        Example: cenote top 2"
)]
pub struct Top {
    /// Print one sample, of the time since the pools were opened
    #[arg(long)]
    pub once: bool,
    /// Seconds between samples
    #[arg(default_value = "1")]
    pub interval: String,
}

/// Alternate screen without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// A terminal's alternate screen, left on drop.
struct Screen;

impl Screen {
    fn enter() -> Result<Screen, CliError> {
        print_bytes(ENTER).map(|()| Screen)
    }

    /// Shows as much of a text as fits.
    fn show(&self, text: &str) -> Result<(), CliError> {
        let (columns, rows) = streams().stdout_screen().unwrap_or((80, 24));
        print_bytes(top::fitted(text, columns.into(), rows.into()))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The terminal may be gone.
        print_bytes(LEAVE).ok();
    }
}

async fn look(session: &Session) -> Result<Look, CliError> {
    let seen = session.control().run(Request {}).await?.answer;
    Ok(Look::new(seen, (session.runtime().unix_time_ns() / 1_000_000_000).cast_signed()))
}

impl Top {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let interval = seconds(&self.interval)?;
        let is_live = !self.once && !session.json() && streams().stdout_screen().is_some();
        let mut interrupted = std::pin::pin!(session.control().caller().interrupted());
        let screen = is_live.then(Screen::enter).transpose()?;
        let mut before: Option<Look> = None;
        loop {
            let now = tokio::select! {
                biased; // an interrupt is how it usually ends
                () = &mut interrupted => return Ok(Outcome::Done),
                now = look(session) => now?,
            };
            let shown = before.as_ref().map_or_else(|| now.clone(), |before| now.since(before));
            match &screen {
                _ if session.json() => print_json(&top::json(&shown))?,
                Some(screen) => screen.show(&top::text(&shown))?,
                None => print(top::text(&shown))?,
            }
            if self.once {
                return Ok(Outcome::Done);
            }
            tokio::select! {
                () = &mut interrupted => return Ok(Outcome::Done),
                () = session.runtime().sleep(interval) => {}
            }
            before = Some(now);
        }
    }
}
