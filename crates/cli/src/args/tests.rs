use super::*;
use crate::command::zfs::Zfs;
use crate::command::zpool::Zpool;

#[test]
fn the_command_line_is_consistent() {
    <Cli as clap::CommandFactory>::command().debug_assert();
}

/// The structures of `dump` share their examples.
#[test]
fn every_command_says_what_it_is_for_and_has_an_example() {
    fn look(command: &clap::Command) {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        assert!(!about.is_empty() && !about.contains('`'), "{}: {about}", command.get_name());
        let has_example =
            || command.get_after_help().is_some_and(|text| text.to_string().contains("Example"));
        if command.get_name() == "help" || command.is_hide_set() {
            return;
        }
        assert!(has_example(), "{}", command.get_name());
        assert!(command.get_arguments().any(|option| option.get_id() == "threads"), "{}", command.get_name());
        if command.get_name() != "dump" {
            command.get_subcommands().for_each(look);
        }
    }
    let mut all = <Cli as clap::CommandFactory>::command();
    all.build();
    look(&all);
}

#[test]
fn help_of_a_verb_shows_its_own_options_and_where_the_others_are() {
    let help = |line: &str| {
        let shown = Cli::read(line.split(' ').map(OsString::from).collect());
        shown.unwrap_err().to_string()
    };
    let own = help("cenote zfs list --help");
    assert!(own.contains("--help") && own.contains("`cenote help options`"), "{own}");
    assert!(!own.contains("--cache-policy"), "{own}");
    assert!(help("cenote help options").contains("--cache-policy"));
    assert!(help("cenote --help").contains("--cache-policy"));
}

#[test]
fn the_history_notes_no_keys() {
    let argv: Vec<OsString> = "/usr/bin/cenote --key t/a=pass:x zfs create --key=t=hex:00 t/b"
        .split(' ')
        .map(OsString::from)
        .collect();
    assert_eq!(as_noted(&argv), "cenote --key t/a=... zfs create --key=t=... t/b");
}

fn parse(line: &str) -> Cli {
    let parsed = Cli::read(line.split(' ').map(OsString::from).collect());
    parsed.unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn disks(line: &str) -> Vec<String> {
    parse(line).common.disks.iter().map(|disk| disk.display().to_string()).collect()
}

#[test]
fn a_verb_of_a_tool_leads_to_the_tool() {
    let says = |line: &str| {
        let refused = Cli::read(line.split(' ').map(OsString::from).collect()).err();
        refused.map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(says("cenote status tank").contains("'zpool status'"));
    assert!(says("cenote list").contains("'zpool list', 'zfs list'"));
    assert!(says("cenote verfy tank").contains("'verify'"));
}

#[test]
fn a_link_named_zpool_is_zpool() {
    let list = parse("/usr/local/bin/zpool list");
    assert!(matches!(list.command, Command::Zpool(Deferred(Zpool::List(_)))));
}

/// Every verb that has no verbs below it.
fn verbs() -> Vec<clap::Command> {
    fn add(command: &clap::Command, verbs: &mut Vec<clap::Command>) {
        if command.get_name() == "help" {
            return;
        }
        match command.has_subcommands() {
            true => command.get_subcommands().for_each(|below| add(below, verbs)),
            false => verbs.push(command.clone()),
        }
    }
    let (mut all, mut verbs) = (Cli::command(), Vec::new());
    all.build();
    add(&all, &mut verbs);
    verbs
}

/// A verb may define a common option itself, but must not use its name for something else.
#[test]
fn every_verb_takes_every_common_option() {
    let common = <Common as clap::Args>::augment_args(clap::Command::default());
    for (verb, option) in verbs().iter().flat_map(|verb| common.get_arguments().map(move |it| (verb, it))) {
        let own = verb.get_arguments().find(|own| own.get_id() == option.get_id());
        let own = own.unwrap_or_else(|| panic!("{}: no {option}", verb.get_name()));
        let shape = |it: &clap::Arg| (it.get_long().map(str::to_owned), it.get_value_parser().type_id());
        assert_eq!(shape(own), shape(option), "{}: {option}", verb.get_name());
    }
}

#[test]
fn a_verb_of_openzfs_or_unix_keeps_its_own_letters() {
    let takes = |letter: char| -> Vec<String> {
        let is_own = |option: &clap::Arg| {
            option.get_short() == Some(letter)
                && !["disks", "help", "rewind"].contains(&option.get_id().as_str())
        };
        let all = verbs();
        let own = all.iter().filter(|verb| verb.get_arguments().any(is_own));
        own.map(|verb| verb.get_name().to_owned()).collect()
    };
    assert_eq!(
        takes('d'),
        [
            "create",
            "checkpoint",
            "trim",
            "ddtprune",
            "status",
            "destroy",
            "allow",
            "unallow",
            "list",
            "get",
            "send",
            "receive",
            "project",
            "ls",
            "cp",
            "rm",
            "du",
            "dump"
        ]
    );
    assert_eq!(takes('h'), ["diff", "send", "receive", "ls", "du", "ls"]);
    assert_eq!(takes('F'), ["diff", "receive", "replicate"]);
}

#[test]
fn disks_are_named_before_the_verb_and_after_it() {
    assert_eq!(disks("cenote -d a zpool --disks b import -d c"), ["a", "b", "c"]);
    assert_eq!(disks("cenote -d a zfs list -d 1 --disks b"), ["a", "b"]);
    assert_eq!(disks("zfs -d a destroy -rdv t@a"), ["a"]);
    assert_eq!(disks("cenote ls -d -h t:/"), [""; 0]);
    assert_eq!(parse("cenote --key a=pass:b zfs --key c=pass:d list").common.keys, ["a=pass:b", "c=pass:d"]);
}

#[test]
fn json_is_asked_for_anywhere() {
    for line in
        ["cenote --json zfs list", "zfs list --json", "zfs list -j", "zpool -j upgrade", "cenote ls -j t:/"]
    {
        assert!(parse(line).common.json, "{line}");
    }
}

#[test]
fn capital_f_rewinds_unless_it_is_a_value_or_of_diff() {
    for line in ["cenote -F ls tank:/", "cenote ls -F tank:/", "zpool import -DF", "zfs diff --rewind a@b"] {
        assert!(parse(line).common.rewind, "{line}");
    }
    let diff = parse("zfs diff -F a@b");
    assert!(!diff.common.rewind);
    assert!(matches!(diff.command, Command::Zfs(Deferred(Zfs::Diff(Deferred(diff)))) if diff.classify));
    let find = parse("cenote find --size -F tank:/");
    assert!(!find.common.rewind);
    assert!(matches!(find.command, Command::Find(Deferred(find)) if find.size.as_deref() == Some("-F")));
    let ls = parse("cenote ls -- -F");
    assert!(!ls.common.rewind);
    assert!(matches!(ls.command, Command::Ls(Deferred(ls)) if ls.targets[0].dataset == "-F"));
}

#[test]
fn capital_t_of_import_is_the_group_to_look_at() {
    for line in ["zpool import -T 5", "zpool import --txg 5 tank", "zpool --txg 5 import tank"] {
        assert_eq!(parse(line).common.txg, Some(5), "{line}");
    }
    assert!(Cli::try_parse_from(["cenote", "zpool", "import", "-T", "5", "-F"]).is_err());
}
