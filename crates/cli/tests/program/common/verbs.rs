//! All commands of the program, taken from its help, so that tests over all commands include new ones.

use std::process::Command;

/// The words of each command without subcommands: `["zfs", "list"]`.
pub fn all() -> Vec<Vec<String>> {
    let mut found = Vec::new();
    add_below(Vec::new(), &mut found);
    found
}

fn add_below(words: Vec<String>, found: &mut Vec<Vec<String>>) {
    let verbs = verbs_of(&words);
    if verbs.is_empty() {
        found.push(words);
        return;
    }
    for verb in verbs {
        add_below([words.clone(), vec![verb]].concat(), found);
    }
}

/// The verbs under `Commands:` in the help; empty if the command has none.
fn verbs_of(words: &[String]) -> Vec<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_cenote")).args(words).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // Continuation lines of a description are indented further.
    let names = listed.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    let names = names.filter_map(|line| line.split(' ').next()).filter(|name| *name != "help");
    names.map(str::to_owned).collect()
}
