//! Keeps copies of datasets up to date: `[[replicate]]`.
//!
//! Idea: the agent runs `cenote replicate`, as an administrator does from a timer, and reads its JSON. So a
//! run can be repeated by hand, a stream takes no more from the daemon than any client's, and a run that the
//! daemon's end interrupts goes on after the next start. Each rule has its own task, so a slow network delays
//! no other.
//!
//! The lag of a copy is the age of the newest snapshot that both sides have.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use cenote_control::replicate::report::Report;
use cenote_host::pools::Pools;
use cenote_runtime::Runtime;
use serde_json::Value;

use crate::findings::{Finding, Findings};
use crate::rules::Replicated;

/// Between two looks whether a run is due.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Most of a run's messages that an alert has.
const MESSAGES_CHARS: usize = 4000;

/// How a run is started.
#[derive(Debug)]
pub struct Program {
    /// This program.
    pub path: PathBuf,
    /// The daemon's socket.
    pub socket: PathBuf,
}

/// Runs a rule whenever it is due, until dropped.
pub async fn keep(
    runtime: Runtime,
    rule: Replicated,
    program: Arc<Program>,
    pools: Arc<Pools>,
    say: impl Fn(&str) + Send,
) {
    let now_s = || runtime.unix_time_ns() / 1_000_000_000;
    let key = (&*rule.source, &*rule.target);
    let mut begun_s = 0;
    loop {
        if !rule.is_due(begun_s, now_s()) {
            runtime.sleep(LOOK_INTERVAL).await;
            continue;
        }
        begun_s = now_s();
        let ran = run(&rule, &program).await;
        if let Err(why) = &ran.done {
            say(&format!("replicate {} {}: {why}", rule.source, rule.target));
        }
        let ran_s = now_s();
        pools.copies.note(key, |copy| {
            (copy.ran_s, copy.failed) = (ran_s, ran.done.err());
            copy.sent_bytes += ran.sent_bytes;
            copy.state_of_s = ran.state_of_s.or(copy.state_of_s);
        });
    }
}

/// An ended run.
struct Ran {
    done: Result<(), String>,
    sent_bytes: u64,
    state_of_s: Option<u64>,
}

async fn run(rule: &Replicated, program: &Program) -> Ran {
    let mut command = tokio::process::Command::new(&program.path);
    command.env("CENOTE_SOCKET", &program.socket).args(words(rule));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let output = match command.output().await {
        Ok(output) => output,
        Err(error) => {
            let done = Err(format!("{}: {error}", program.path.display()));
            return Ran { done, sent_bytes: 0, state_of_s: None };
        }
    };
    // A run that could not begin prints no result.
    let reports: Vec<Report> = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let done = match output.status.success() {
        true => Ok(()),
        false => Err(messages(&output.stderr, &output.status.to_string())),
    };
    // Of a tree of which a part failed, only the whole has a state.
    let state_of_s =
        done.is_ok().then(|| reports.iter().map(|report| report.snapshot_created_s).min()).flatten();
    Ran { done, sent_bytes: reports.iter().map(|report| report.bytes).sum(), state_of_s }
}

fn words(rule: &Replicated) -> Vec<String> {
    let mut words: Vec<String> = ["replicate", "--json"].map(str::to_owned).into();
    let switches = [
        (rule.recursive, "--recursive"),
        (rule.raw, "--raw"),
        (rule.props, "--props"),
        (rule.bookmark, "--bookmark"),
        (rule.hold, "--hold"),
        (rule.verify, "--verify"),
    ];
    words.extend(switches.iter().filter(|(is_on, _)| *is_on).map(|(_, word)| (*word).to_owned()));
    words.extend(rule.rate.iter().flat_map(|rate| ["--rate".to_owned(), rate.clone()]));
    words.extend(rule.ssh.iter().flat_map(|ssh| ["--ssh".to_owned(), ssh.clone()]));
    words.extend(["--".to_owned(), rule.source.clone(), rule.target.clone()]);
    words
}

/// The messages of a run, each a line of JSON; without any, its status.
fn messages(stderr: &[u8], status: &str) -> String {
    let text = String::from_utf8_lossy(stderr);
    let message = |line: &str| match serde_json::from_str::<Value>(line) {
        Ok(Value::Object(fields)) => fields.get("error").or(fields.get("note"))?.as_str().map(str::to_owned),
        _ => Some(line.to_owned()),
    };
    let lines: Vec<String> = text.lines().filter_map(message).collect();
    let all = lines.join("\n");
    match all.char_indices().nth(MESSAGES_CHARS) {
        _ if all.is_empty() => status.to_owned(),
        Some((end, _)) => format!("{} ...", &all[..end]),
        None => all,
    }
}

/// Copies whose last run failed, or that are too old.
pub fn findings(pools: &Pools, rules: &[Replicated], now_s: u64) -> Findings {
    let mut found = Findings::new();
    for rule in rules {
        let Replicated { source, target, .. } = rule;
        let Some(copy) = pools.copies.of(source, target) else { continue };
        let mut add = |key: &str, subject: String, text: String| {
            let finding = Finding { pool: None, subject, text, is_urgent: false };
            found.insert(format!("replicate {source} {target}: {key}"), finding);
        };
        if let Some(why) = &copy.failed {
            add("failed", format!("{source} is not copied to {target}"), why.clone());
        }
        let lag_s = copy.lag_s(now_s);
        if let (Some(late), Some(lag_s)) = (rule.late, lag_s)
            && lag_s > late.as_secs()
        {
            let text =
                format!("Its last snapshot was taken {lag_s} s ago; {} s are allowed.\n", late.as_secs());
            add("late", format!("the copy of {source} at {target} is too old"), text);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Rules;

    #[test]
    fn a_rule_becomes_a_command() {
        let text = "[[replicate]]\nsource = \"tank/a b\"\ntarget = \"me@vault:store\"\nevery = \"1 h\"\n\
                    raw = true\nbookmark = true\nrate = \"20M\"\nssh = \"ssh -p 2222\"";
        let rule = Rules::parse(text).unwrap().replicate.remove(0);
        let line = words(&rule).join("|");
        assert_eq!(
            line,
            "replicate|--json|--raw|--bookmark|--rate|20M|--ssh|ssh -p 2222|--|tank/a b|me@vault:store"
        );
    }

    #[test]
    fn messages_are_read_and_bounded() {
        let lines = b"{\"error\":\"vault: no route\",\"status\":1}\nplain\n";
        assert_eq!(messages(lines, "exit status: 1"), "vault: no route\nplain");
        assert_eq!(messages(b"", "exit status: 1"), "exit status: 1");
        let long = "\u{e9}".repeat(2 * MESSAGES_CHARS);
        assert_eq!(messages(long.as_bytes(), "").chars().count(), MESSAGES_CHARS + 4);
    }
}
