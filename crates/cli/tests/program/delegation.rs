//! `zfs allow`, `unallow`: the entries they write, show and leave. The daemon's tests cover their effect.

use crate::common::disks::Disks;

const SHOWN: &str = "\
---- Permissions on tank/home ----------------------------------------
Permission sets:
\t@base mount,snapshot
\t@ops @base,hold
Create time permissions:
\tdestroy
Local permissions:
\tuser root rollback
Local+Descendent permissions:
\tuser nobody @ops,create,mount
\tgroup (unknown: 77777) send
\teveryone userprop
---- Permissions on tank ---------------------------------------------
Descendent permissions:
\tuser nobody compression
";

#[test]
fn what_is_delegated_is_kept_as_openzfs_keeps_it() {
    let disks = Disks::new(&[128]);
    disks.cenote("zpool create tank a", &[]);
    disks.cenote("zfs create tank/home", &[]);
    for line in [
        "zfs allow -d nobody compression tank",
        "zfs allow -s @base mount,snapshot tank/home",
        "zfs allow -s @ops hold,@base tank/home",
        "zfs allow -u nobody,65534 @ops,mount,create tank/home",
        "zfs allow -g 77777 send tank/home",
        "zfs allow -c destroy tank/home",
        "zfs allow everyone userprop tank/home",
        "zfs allow -l root rollback tank/home",
    ] {
        assert_eq!(disks.cenote(line, &[]), "", "{line}");
    }
    assert_eq!(disks.cenote("zfs allow tank/home", &[]), SHOWN);
    let json: serde_json::Value =
        serde_json::from_str(&disks.cenote("zfs allow --json tank/home", &[])).unwrap();
    assert_eq!(json["datasets"][1]["permissions"][0]["name"], "nobody");
    let history = disks.cenote("zpool history -i tank", &[]);
    assert!(
        history.contains("permission update tank/home") && history.contains("Ul$65534 @ops"),
        "{history}"
    );
    disks.zdb_is_content();

    // The creator of a dataset, root included, gets the create-time permissions in it.
    disks.cenote("zfs create tank/home/new", &[]);
    let shown = disks.cenote("zfs allow tank/home/new", &[]);
    assert!(shown.starts_with(&format!("{:-<70}\n", "---- Permissions on tank/home/new ")), "{shown}");
    assert!(shown.contains("Local permissions:\n\tuser root destroy\n"), "{shown}");
    assert_eq!(zdb_tables(&disks), ["Ud$65534", "Ul$65534", "c-$", "ed$", "el$", "gd$77777", "gl$77777"]);

    disks.cenote("zfs unallow -r everyone tank", &[]);
    disks.cenote("zfs unallow -u nobody create tank/home", &[]);
    disks.cenote("zfs unallow -s @base tank/home", &[]);
    disks.cenote("zfs unallow -c tank/home", &[]);
    disks.cenote("zfs unallow -l root tank/home", &[]);
    disks.cenote("zfs unallow -g 77777 send tank/home", &[]);
    let shown = disks.cenote("zfs allow tank/home", &[]);
    let left = SHOWN.lines().filter(|line| {
        let gone = ["@base mount", "Create", "\tdestroy", "Local perm", "root", "77777", "everyone"];
        gone.iter().all(|gone| !line.contains(gone))
    });
    let left: Vec<String> = left.map(|line| line.replace("@ops,create", "@ops")).collect();
    assert_eq!(shown.lines().collect::<Vec<_>>(), left);
    disks.zdb_is_content();
}

/// Some keys of tank/home's table, as `zdb` sees it.
fn zdb_tables(disks: &Disks) -> Vec<String> {
    let zdb = |arguments: &[&str]| {
        let output = cenote_testkit::zdb(disks.path(), arguments);
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
    };
    let all = zdb(&["-dddd", "tank"]);
    let mut keys: Vec<String> = all
        .lines()
        .filter_map(|line| line.trim().split_once(" = ").map(|(key, _)| key.to_owned()))
        .filter(|key| key.contains('$') && !key.contains(['s', 'S', ' ']) && !key.starts_with('u'))
        .filter(|key| key.len() > 2 && key.as_bytes()[2] == b'$')
        .collect();
    keys.sort();
    keys.dedup();
    keys
}

#[test]
fn what_can_not_be_is_refused() {
    let disks = Disks::new(&[128]);
    disks.cenote("zpool create tank a", &[]);
    let before = disks.images();
    disks.fails("zfs allow -e nonsense tank", "cannot set permissions on 'tank': invalid permission");
    disks.fails("zfs allow -s base mount tank", "missing '@' prefix");
    disks.fails("zfs allow -s @a/b mount tank", "invalid permission");
    disks.fails("zfs allow nosuchuser mount tank", "invalid user/group nosuchuser");
    disks.fails("zfs allow nobody tank", "wrong number of parameters");
    disks.fails("zfs allow -e mount tank/nosuch", "dataset does not exist");
    disks.fails("zfs unallow tank", "wrong number of parameters");
    assert!(disks.images() == before);
}
