//! Turns findings into alerts: sent once a finding has lasted, repeated after a while, and sent again at its
//! end.
//!
//! Idea: a flickering state gives a single alert. A finding must last [`AlertRules::after`] before its alert
//! is sent, and be gone as long before its end is reported; urgent findings wait for neither.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use serde::Serialize;

use crate::findings::{Finding, Findings};
use crate::rules::AlertRules;

/// Message about a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Alert {
    /// One line.
    pub subject: String,
    /// Details and advice.
    pub text: String,
    /// Pool concerned, if any.
    pub pool: Option<String>,
    /// The problem has ended.
    pub is_over: bool,
    /// Start, in seconds since 1970.
    pub since_s: u64,
}

/// Sends an alert; an error gives the reason.
pub type Tell = Box<dyn Fn(&Alert) -> Result<(), String> + Send + Sync>;

/// Known findings by key, with their start and last alert.
#[derive(Debug, Default)]
pub struct Alerts(BTreeMap<String, Known>);

#[derive(Debug)]
struct Known {
    finding: Finding,
    since_s: u64,
    gone_since_s: Option<u64>,
    told_s: Option<u64>,
}

impl Alerts {
    /// Takes the present findings; returns the alerts to send.
    pub fn look(&mut self, found: Findings, rules: &AlertRules, now_s: u64) -> Vec<Alert> {
        let (after, again) = (rules.after.as_secs(), rules.again.as_secs());
        let mut told = Vec::new();
        for (key, known) in &mut self.0 {
            if !found.contains_key(key) {
                known.gone_since_s.get_or_insert(now_s);
            }
        }
        for (key, finding) in found {
            let fresh = Known { finding: finding.clone(), since_s: now_s, gone_since_s: None, told_s: None };
            let known = self.0.entry(key).or_insert(fresh);
            (known.finding, known.gone_since_s) = (finding, None);
            let after = if known.finding.is_urgent { 0 } else { after };
            let lasts = now_s.saturating_sub(known.since_s) >= after;
            if lasts && known.told_s.is_none_or(|told_s| now_s.saturating_sub(told_s) >= again) {
                known.told_s = Some(now_s);
                told.push(known.alert(false));
            }
        }
        self.0.retain(|_, known| {
            let after = if known.finding.is_urgent { 0 } else { after };
            let is_over = known.gone_since_s.is_some_and(|gone_s| now_s.saturating_sub(gone_s) >= after);
            if is_over && known.told_s.is_some() {
                told.push(known.alert(true));
            }
            // A finding without an alert is forgotten once gone.
            !is_over && (known.told_s.is_some() || known.gone_since_s.is_none())
        });
        told
    }
}

impl Known {
    fn alert(&self, is_over: bool) -> Alert {
        let Finding { pool, subject, text, .. } = self.finding.clone();
        let subject = if is_over { format!("over: {subject}") } else { subject };
        Alert { subject, text, pool, is_over, since_s: self.since_s }
    }
}

/// Runs a program for each alert: its arguments get the subject, its standard input the text.
pub fn by_command(command: &[String]) -> Option<Tell> {
    let (program, arguments) = command.split_first()?;
    let (program, arguments) = (program.clone(), arguments.to_vec());
    Some(Box::new(move |alert| {
        let failed = |error: std::io::Error| format!("{program}: {error}");
        let arguments = arguments.iter().map(|argument| argument.replace("{subject}", &alert.subject));
        let mut child = Command::new(&program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let text = format!("{}\n\n{}", alert.subject, alert.text);
        // The program may not read its input.
        child.stdin.take().map(|mut stdin| stdin.write_all(text.as_bytes()).ok());
        match child.wait().map_err(failed)? {
            status if status.success() => Ok(()),
            status => Err(format!("{program}: {status}")),
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(keys: &[&str]) -> Findings {
        let finding = |key: &&str| {
            let is_urgent = *key == "urgent";
            Finding { pool: None, subject: (*key).into(), text: String::new(), is_urgent }
        };
        keys.iter().map(|key| ((*key).to_owned(), finding(key))).collect()
    }

    #[test]
    fn what_lasts_is_told_once_again_later_and_when_it_is_over() {
        let rules = AlertRules::default();
        let mut alerts = Alerts::default();
        let mut look = |keys: &[&str], now_s: u64| {
            let told = alerts.look(found(keys), &rules, now_s);
            told.into_iter().map(|alert| alert.subject).collect::<Vec<_>>()
        };
        assert!(look(&["a"], 0).is_empty() && look(&["a", "b"], 59).is_empty());
        // `b` was gone before it had lasted.
        assert_eq!(look(&["a"], 60), ["a"]);
        assert!(look(&["a"], 120).is_empty());
        // A short absence does not end an alert.
        assert!(look(&[], 130).is_empty() && look(&["a"], 150).is_empty() && look(&["a"], 3600).is_empty());
        assert_eq!(look(&["a"], 60 + 86_400), ["a"]);
        assert!(look(&[], 90_000).is_empty());
        assert_eq!(look(&[], 90_060), ["over: a"]);
        assert!(look(&[], 90_120).is_empty());
        assert_eq!(look(&["urgent"], 90_121), ["urgent"]);
        assert_eq!(look(&[], 90_122), ["over: urgent"]);
    }

    #[test]
    fn a_program_gets_the_subject_and_the_text() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("told");
        let script = format!("echo \"$0\" > {0}; cat >> {0}", file.display());
        let tell = by_command(&["sh".into(), "-c".into(), script, "{subject}".into()]).unwrap();
        let alert = Alert {
            subject: "pool is DEGRADED".into(),
            text: "Why.".into(),
            pool: None,
            is_over: false,
            since_s: 0,
        };
        tell(&alert).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "pool is DEGRADED\npool is DEGRADED\n\nWhy.");
        assert!(by_command(&["false".into()]).unwrap()(&alert).is_err());
        assert!(by_command(&[]).is_none());
    }
}
