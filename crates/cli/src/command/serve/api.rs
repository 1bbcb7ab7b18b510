//! The daemon's commands over HTTP: those it runs for clients, described as on the command line.

use cenote_control::table;
use cenote_control::verb::{self as control, Runs};
use cenote_http::{Catalogue, Input, Kind, Looks, Verb};
use clap::{Arg, ArgAction, Command};

use crate::args::Cli;
use crate::args::common::{HEADING, HERE};

/// For a command that either shows or changes: whether it only shows, with these words.
fn only_looks(words: &[String]) -> bool {
    let argv = std::iter::once("cenote").chain(words.iter().map(String::as_str)).map(Into::into).collect();
    // Invalid words are refused when the command runs.
    Cli::read(argv).is_ok_and(|cli| cli.command.only_looks())
}

/// Whether a command may be run by GET, and with a read-only token. `None`: not offered.
fn looks(name: &str) -> Option<Looks> {
    let row = table::row(name).filter(|row| row.runs != Runs::AtTerminal)?;
    Some(match row.looks {
        control::Looks::Always => Looks::Always,
        control::Looks::Sometimes(_) => Looks::Sometimes,
        control::Looks::Never => Looks::Never,
    })
}

/// The commands offered over HTTP, of all commands.
pub fn catalogue(all: Command) -> Catalogue {
    let mut all = all.disable_help_subcommand(true);
    all.build();
    let mut verbs = Vec::new();
    for command in all.get_subcommands() {
        add(&mut verbs, Vec::new(), command);
    }
    Catalogue::new(verbs, only_looks)
}

/// Adds a command, or those below it.
fn add(verbs: &mut Vec<Verb>, above: Vec<String>, command: &Command) {
    let words = [above, vec![command.get_name().to_owned()]].concat();
    let mut below = command.get_subcommands().filter(|verb| !verb.is_hide_set()).peekable();
    if below.peek().is_some() {
        below.for_each(|verb| add(verbs, words.clone(), verb));
        return;
    }
    let name = words.join(" ");
    let Some(looks) = looks(&name) else { return };
    let is_own = |arg: &&Arg| ![Some(HEADING), Some(HERE)].contains(&arg.get_help_heading());
    let own = command.get_arguments().filter(is_own);
    let own = own.filter(|arg| {
        !arg.is_hide_set() && !matches!(arg.get_action(), ArgAction::Help | ArgAction::Version)
    });
    let (operands, options): (Vec<&Arg>, Vec<&Arg>) = own.partition(|arg| arg.is_positional());
    let inputs = options.into_iter().chain(operands).map(input).collect();
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    verbs.push(Verb { looks, words, about, inputs });
}

fn input(arg: &Arg) -> Input {
    let long = arg.get_long().map(|long| format!("--{long}"));
    let typed = long.clone().or(arg.get_short().map(|short| format!("-{short}"))).unwrap_or_default();
    let takes_value = arg.get_action().takes_values();
    let is_list = matches!(arg.get_action(), ArgAction::Append | ArgAction::Count)
        || arg.get_num_args().is_some_and(|count| count.max_values() > 1);
    let kind = match (arg.is_positional(), takes_value) {
        (true, _) => Kind::Operand,
        (false, true) => Kind::Option(typed),
        (false, false) => Kind::Flag(typed),
    };
    let values = if takes_value { arg.get_possible_values() } else { Vec::new() };
    Input {
        name: arg.get_long().map_or_else(|| arg.get_id().as_str().replace('_', "-"), str::to_owned),
        about: arg.get_help().map(ToString::to_string).unwrap_or_default(),
        kind,
        is_list,
        is_required: arg.is_required_set(),
        values: values.iter().map(|value| value.get_name().to_owned()).collect(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]
mod tests {
    use std::collections::BTreeSet;

    use cenote_control::table::VERBS;
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_field_has_a_name_of_its_own() {
        let catalogue = catalogue(Cli::command());
        assert!(catalogue.verbs().len() > 70, "{}", catalogue.verbs().len());
        for verb in catalogue.verbs() {
            let names: BTreeSet<&str> = verb.inputs.iter().map(|input| &*input.name).collect();
            assert_eq!(names.len(), verb.inputs.len(), "{:?}", verb.words);
            assert!(
                verb.inputs.iter().all(|input| input.kind != Kind::Flag(String::new())),
                "{:?}",
                verb.words
            );
            let not_offered = ["disks", "json", "smart", "watch", "webhook"];
            assert!(not_offered.iter().all(|name| !names.contains(name)), "{:?}", verb.words);
        }
    }

    #[test]
    fn those_that_only_look_are_there() {
        let catalogue = catalogue(Cli::command());
        for row in VERBS.iter().filter(|row| row.runs != Runs::AtTerminal) {
            let verb = catalogue.get(row.name.split(' ')).unwrap_or_else(|| panic!("{}", row.name));
            assert_eq!(Some(verb.looks), looks(row.name), "{}", row.name);
        }
        for name in ["serve", "top", "zpool labelclear", "lab run", "rescue"] {
            assert!(catalogue.get(name.split(' ')).is_none(), "{name}");
        }
    }

    /// The page must never send a GET that is answered with 405, not even at its sign-in.
    #[test]
    fn the_page_looks_only_at_commands_that_always_answer_get() {
        let catalogue = catalogue(Cli::command());
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../http/src/page");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let scripts = files.filter(|path| path.extension().is_some_and(|end| end == "js"));
        let text: String = scripts.map(|path| std::fs::read_to_string(path).unwrap()).collect();
        let calls = ["look(\"", "watch(\""].into_iter().flat_map(|call| text.split(call).skip(1));
        let asked: BTreeSet<&str> = calls.filter_map(|rest| rest.split('"').next()).collect();
        assert!(asked.len() > 6 && asked.contains("zpool/version"), "{asked:?}");
        for path in asked {
            let verb = catalogue.get(path.split('/')).unwrap_or_else(|| panic!("{path}"));
            assert_eq!(verb.looks, Looks::Always, "{path}");
        }
    }

    #[test]
    fn the_document_is_that_of_this_version() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        let document =
            serde_json::to_string_pretty(&cenote_http::openapi::document(&catalogue(Cli::command())))
                .unwrap()
                + "\n";
        if std::env::var_os("CENOTE_UPDATE").is_some() {
            std::fs::write(path, &document).unwrap();
        }
        let checked_in = std::fs::read_to_string(path).unwrap_or_default();
        assert!(checked_in == document, "docs/openapi.json is old: run this test with CENOTE_UPDATE=1");
    }
}
