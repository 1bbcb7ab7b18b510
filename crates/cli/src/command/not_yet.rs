//! Verbs and options of zpool(8) and zfs(8) in OpenZFS 2.3 that Cenote lacks, each with an alternative.
//!
//! Idea: clap passes on every verb it does not know. A verb in the table is answered with its alternative,
//! any other with the most similar verb. So a `zpool` user is never sent to a verb with another meaning.

use std::ffi::OsString;

use clap::{Command, Subcommand};

use crate::outcome::CliError;
use crate::session::meant;

/// Verbs with the same meaning, and the alternative.
type Missing = (&'static [&'static str], &'static str);

const ZFS: &[Missing] = &[
    (&["jail", "unjail"], "It is for FreeBSD's jails: import the pool with OpenZFS there"),
    (&["share", "unshare"], "`cenote cp` copies files out. To share them, import the pool with OpenZFS"),
    (&["zone", "unzone"], "`cenote serve` mounts where it runs: start it in the container's mount namespace"),
];

/// The reason why the verb can't be run. `T` lists the verbs that can.
pub fn verb<T: Subcommand>(tool: &'static str, typed: &[OsString]) -> CliError {
    let verb = typed.first().map(|verb| verb.to_string_lossy()).unwrap_or_default();
    let table = if tool == "zfs" { ZFS } else { &[] };
    if let Some((_, instead)) = table.iter().find(|(names, _)| names.contains(&&*verb)) {
        return option(&format!("{tool} {verb}"), instead);
    }
    let known = T::augment_subcommands(Command::new(tool));
    let names = known.get_subcommands().flat_map(Command::get_name_and_visible_aliases);
    let nearest = meant(&verb, names).map_or_else(String::new, |near| format!("did you mean '{near}'? "));
    CliError::Usage(format!("there is no verb '{verb}'; {nearest}`cenote {tool} --help` lists all"))
}

/// The same for an option of a verb, such as `zpool events -f`.
pub fn option(what: &str, instead: &str) -> CliError {
    CliError::Refused(format!("`{what}` is not in Cenote yet. {instead}."))
}
