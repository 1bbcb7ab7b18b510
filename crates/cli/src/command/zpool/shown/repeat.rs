//! Intervals and counts: `zpool list tank 5 3` shows the pool three times, five seconds apart.
//!
//! Source: OpenZFS `zpool_main.c` (`get_interval_count`), `timestamp.c`.

use std::time::Duration;

use cenote_control::text::date;
use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print};

/// Longer numbers are pool guids; as intervals they would be centuries.
const MAX_INTERVAL_CHARS: usize = 9;

/// The format of the time.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Stamp {
    /// Seconds since 1970.
    U,
    /// Like date(1).
    D,
}

/// Options of verbs that print repeatedly.
#[derive(Debug, Args)]
pub struct Repeat {
    /// Print the time first: `u` in seconds since 1970, `d` like date(1)
    #[arg(short = 'T', value_name = "u|d")]
    stamp: Option<Stamp>,
}

/// One round of the output.
pub struct Round {
    /// Whether this is the first round.
    pub is_first: bool,
    /// The time added by `-T`.
    time: Option<String>,
}

impl Round {
    /// Adds the time to a document if `-T` was given.
    pub fn stamp(&self, mut document: Value) -> Value {
        if let Some(time) = &self.time {
            document["time"] = time.as_str().into();
        }
        document
    }
}

impl Repeat {
    /// Shows the pools named in `words`, which may end in an interval in seconds and a count; without a
    /// count, endlessly.
    pub async fn run(
        &self,
        session: &Session,
        words: &[String],
        show: impl AsyncFn(&[String], Round) -> Result<Outcome, CliError>,
    ) -> Result<Outcome, CliError> {
        let (pools, schedule) = split(words)?;
        let (mut outcome, mut rounds) = (Outcome::Done, 0);
        loop {
            let time = self.time(session);
            if let (Some(time), false) = (&time, session.json()) {
                print(format!("{time}\n"))?;
            }
            outcome = outcome.and(show(pools, Round { is_first: rounds == 0, time }).await?);
            rounds += 1;
            match schedule {
                Some((interval, count)) if count.is_none_or(|count| rounds < count) => {
                    wait(session, interval).await?;
                }
                _ => return Ok(outcome),
            }
        }
    }

    fn time(&self, session: &Session) -> Option<String> {
        let seconds = session.runtime().unix_time_ns() / 1_000_000_000;
        self.stamp.map(|stamp| match stamp {
            Stamp::U => seconds.to_string(),
            Stamp::D => date(seconds.cast_signed()),
        })
    }
}

/// Waits for the next round. A daemon's client handles Ctrl-C from its first request on, so this does, too.
async fn wait(session: &Session, interval: Duration) -> Result<(), CliError> {
    let sleep = session.runtime().sleep(interval);
    if !session.control().is_with_daemon() {
        sleep.await;
        return Ok(());
    }
    tokio::select! {
        () = sleep => Ok(()),
        () = session.control().caller().interrupted() => Err(CliError::Stopped("interrupted".into())),
    }
}

/// The pools, then the interval and the number of rounds.
pub type Split<'w> = (&'w [String], Option<(Duration, Option<u64>)>);

/// Takes interval and count from the end of the words.
pub fn split(words: &[String]) -> Result<Split<'_>, CliError> {
    match words {
        [pools @ .., interval, count] if is_number(interval) && is_number(count) => {
            let rounds = seconds(count)?.as_secs().max(1);
            Ok((pools, Some((seconds(interval)?, Some(rounds)))))
        }
        [pools @ .., interval] if is_number(interval) => Ok((pools, Some((seconds(interval)?, None)))),
        pools => Ok((pools, None)),
    }
}

fn is_number(word: &str) -> bool {
    (1..=MAX_INTERVAL_CHARS).contains(&word.len()) && word.bytes().all(|c| c.is_ascii_digit() || c == b'.')
}

/// An interval as it is typed.
pub fn seconds(word: &str) -> Result<Duration, CliError> {
    let typed = word.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    match typed {
        Some(interval) if !interval.is_zero() => Ok(interval),
        Some(_) => Err(CliError::Usage("interval cannot be zero".into())),
        None => Err(CliError::Usage(format!("'{word}' is neither a pool nor an interval in seconds"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_at_the_end_are_interval_and_count() {
        let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
        let of = |text: &str| {
            let words = words(text);
            let (pools, schedule) = split(&words).unwrap();
            (pools.join(" "), schedule.map(|(interval, count)| (interval.as_millis(), count)))
        };
        assert_eq!(of("tank"), ("tank".into(), None));
        assert_eq!(of("1 tank"), ("1 tank".into(), None));
        assert_eq!(of("tank 0.5"), ("tank".into(), Some((500, None))));
        assert_eq!(of("a b 1 3"), ("a b".into(), Some((1000, Some(3)))));
        assert_eq!(of("1 3"), (String::new(), Some((1000, Some(3)))));
        assert_eq!(of("16443528493245893"), ("16443528493245893".into(), None));
        for wrong in ["0", "tank 0.0", "tank 1 0", "tank 1.2.3"] {
            assert!(split(&words(wrong)).is_err(), "{wrong}");
        }
    }
}
