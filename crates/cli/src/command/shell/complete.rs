//! `cenote complete -- WORD...`: completions of the last word, one per line; a description follows a tab.
//!
//! Idea: clap's description of all commands tells which verb is being typed and which words may follow: a
//! verb, an option, one of its listed values. Names on the disks and property names are looked up (`names`).
//! Shells call this at every key press, so it prompts for no keys, and errors yield no candidates.

mod names;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use cenote_control::text::escape_terminal;
use clap::{Arg, Args, Command};

use crate::args::common::HEADING;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print};

/// `cenote complete`
#[derive(Debug, Args)]
#[command(after_help = "Example: cenote complete -- zfs list tank/")]
pub struct Complete {
    /// The words of the command line so far; the last may be empty
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

/// A completion and its description.
pub struct Candidate {
    /// The whole word.
    word: String,
    about: String,
}

impl Candidate {
    /// A completion that needs no description.
    pub fn plain(word: impl Into<String>) -> Candidate {
        Candidate { word: word.into(), about: String::new() }
    }
}

/// The words before the last one.
pub struct Typed<'a> {
    /// The verbs: `zfs`, `list`.
    verbs: Vec<&'a str>,
    command: &'a Command,
    /// Words of the verb that are neither options nor their values.
    operands: Vec<&'a str>,
    /// The option whose value is being typed.
    option: Option<&'a Arg>,
    disks: Vec<PathBuf>,
    /// Whether options have ended (`--`).
    only_operands: bool,
}

impl Complete {
    /// Runs the command. `all`: every command with its options.
    pub async fn run(self, mut all: Command, session: &Session) -> Result<Outcome, CliError> {
        let words: Vec<&str> = self.words.iter().filter_map(|word| word.to_str()).collect();
        let [program, before @ .., last] = &*words else { return Ok(Outcome::Done) };
        all.build();
        let typed = Typed::read(&all, program, before);
        let mut candidates = typed.candidates(session, last).await;
        candidates.retain(|it| it.word.starts_with(last) && !it.word.chars().any(char::is_control));
        candidates.sort_by(|a, b| a.word.cmp(&b.word));
        candidates.dedup_by(|a, b| a.word == b.word);
        let line = |it: &Candidate| match it.about.lines().next() {
            Some(about) => format!("{}\t{}\n", it.word, escape_terminal(about.as_bytes())),
            None => format!("{}\n", it.word),
        };
        print(candidates.iter().map(line).collect::<String>())?;
        Ok(Outcome::Done)
    }
}

impl<'a> Typed<'a> {
    fn read(all: &'a Command, program: &'a str, words: &[&'a str]) -> Typed<'a> {
        let (disks, operands, verbs) = (Vec::new(), Vec::new(), Vec::new());
        let mut typed = Typed { verbs, command: all, operands, option: None, disks, only_operands: false };
        // Run through a link, the program behaves as the tool of that name.
        let called = Path::new(program).file_name().and_then(|name| name.to_str());
        called.iter().filter(|name| **name != "cenote").for_each(|name| typed.verb_or_operand(name));
        typed.operands.clear();
        words.iter().for_each(|word| typed.take(word));
        typed
    }

    fn take(&mut self, word: &'a str) {
        if let Some(option) = self.option.take() {
            return self.value(option, word);
        }
        if self.only_operands || !word.starts_with('-') || word == "-" {
            return self.verb_or_operand(word);
        }
        if word == "--" {
            self.only_operands = true;
        } else if let Some(long) = word.strip_prefix("--") {
            let (name, value) =
                long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            let option = self.command.get_arguments().find(|arg| arg.get_long() == Some(name));
            self.option_with(option, value);
        } else {
            let letters = &word[1..];
            let option = letters.char_indices().find_map(|(at, letter)| {
                let option = self.command.get_arguments().find(|arg| arg.get_short() == Some(letter))?;
                let rest = &letters[at + letter.len_utf8()..];
                option.get_action().takes_values().then_some((option, rest))
            });
            if let Some((option, rest)) = option {
                self.option_with(Some(option), Some(rest).filter(|rest| !rest.is_empty()));
            }
        }
    }

    fn option_with(&mut self, option: Option<&'a Arg>, value: Option<&'a str>) {
        match (option.filter(|option| option.get_action().takes_values()), value) {
            (Some(option), Some(value)) => self.value(option, value),
            (option, None) => self.option = option,
            (None, _) => {}
        }
    }

    fn value(&mut self, option: &Arg, value: &str) {
        if option.get_id() == "disks" {
            self.disks.push(value.into());
        }
    }

    fn verb_or_operand(&mut self, word: &'a str) {
        match self.command.find_subcommand(word) {
            Some(verb) if self.operands.is_empty() => {
                self.command = verb;
                self.verbs.push(verb.get_name());
            }
            _ => self.operands.push(word),
        }
    }

    async fn candidates(&self, session: &Session, last: &str) -> Vec<Candidate> {
        if let Some(option) = self.option {
            let listed = option.get_possible_values();
            return match listed.is_empty() {
                true => names::of_option(&self.verbs, option, last),
                false => names::in_list(last, listed.iter().map(|value| value.get_name())),
            };
        }
        if last.starts_with('-') && !self.only_operands {
            return self.options();
        }
        if self.command.has_subcommands() && self.operands.is_empty() {
            return self.subcommands();
        }
        let searching;
        let session = match self.disks.is_empty() {
            true => session,
            false => {
                searching = session.searching(self.disks.iter().map(Into::into).collect());
                &searching
            }
        };
        names::of_operand(session, &self.verbs, &self.operands, last).await
    }

    fn options(&self) -> Vec<Candidate> {
        // Help hides the common options, which a person may type nevertheless.
        let is_offered = |arg: &&Arg| !arg.is_hide_set() || arg.get_help_heading() == Some(HEADING);
        let shown = self.command.get_arguments().filter(is_offered).filter(|arg| !arg.is_positional());
        let words = |arg: &Arg| {
            let about = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let short = arg.get_short().map(|letter| format!("-{letter}"));
            let long = arg.get_long().map(|name| format!("--{name}"));
            [short, long].into_iter().flatten().map(move |word| Candidate { word, about: about.clone() })
        };
        shown.flat_map(words).collect()
    }

    fn subcommands(&self) -> Vec<Candidate> {
        let shown = self.command.get_subcommands().filter(|verb| !verb.is_hide_set());
        let candidate = |verb: &Command| Candidate {
            word: verb.get_name().into(),
            about: verb.get_about().map(ToString::to_string).unwrap_or_default(),
        };
        shown.map(candidate).collect()
    }
}
