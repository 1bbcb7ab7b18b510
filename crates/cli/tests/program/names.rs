//! File names with arbitrary bytes: the names that `ls` and `find` print as text, as JSON and with `-0`
//! identify the same file in every command, and contain nothing that a terminal would hide.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::Command;

use crate::common::disks::Disks;

/// Names that could confuse shells, terminals, escapes and our target syntax.
const NAMES: [&[u8]; 47] = [
    b"plain",
    b"two words",
    b" lead",
    b"trail ",
    b"tab\there",
    b"line\nend",
    b"\n",
    b"carriage\rreturn",
    b"back\\slash",
    b"a\\x41",
    b"\\",
    b"\\\\",
    b"a\\n",
    b"it's",
    b"'",
    b"''",
    b"\"",
    b"$'x'",
    b"$'open",
    b"$''",
    b"a\xff",
    b"\xff\xfe",
    b"\xc3",
    b"\xed\xa0\x80",
    b"caf\xc3\xa9",
    b"cafe\xcc\x81",
    b"\xe2\x80\xaefdp.exe",
    b"\xe2\x81\xa6x\xe2\x81\xa9",
    b"\xd8\x9c",
    b"\xe2\x80\x8b",
    b"a\xe2\x80\x8db",
    b"\xef\xbb\xbfbom",
    b"\xf3\xa0\x81\x81",
    b"\xc2\x9b31m",
    b"\xc2\x85",
    b"\x1b[31mred",
    b"\x7f",
    b"\x01",
    b"-rf",
    b"--help",
    b"*",
    b"[a]",
    b"$HOME",
    b"`id`",
    b"a:b",
    b"a@b",
    &[0xff; 255],
];

/// Characters forbidden in any output: control characters except newline and tab, and characters that reorder
/// or hide text.
fn is_hidden(c: char) -> bool {
    c.is_control() && !['\n', '\t'].contains(&c)
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{e0000}'..='\u{e007f}')
}

/// A pool with the files in `tank:/in`. Each contains the number of its name, in three digits.
struct Pool(Disks);

impl Pool {
    fn new() -> Pool {
        let disks = Disks::new(&[64, 0]);
        let tree = disks.path().join("tree");
        fs::create_dir(&tree).unwrap();
        for (number, name) in NAMES.iter().enumerate() {
            fs::write(tree.join(OsStr::from_bytes(name)), format!("{number:03}")).unwrap();
        }
        disks.cenote("zpool create -f tank", &[&disks.path().join("a")]);
        disks.cenote("cp -r", &[&tree, Path::new("tank:/in")]);
        Pool(disks)
    }

    fn run(&self, words: &str, targets: &[OsString]) -> Vec<u8> {
        let paths: Vec<&Path> = targets.iter().map(Path::new).collect();
        let output = self.0.run(words, &paths);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "cenote {words} {targets:?}: {errors}");
        output.stdout
    }

    /// Output without hidden characters.
    fn text(&self, words: &str) -> String {
        let text = String::from_utf8(self.run(words, &[])).unwrap();
        assert!(!text.contains(is_hidden), "cenote {words}: {text:?}");
        text
    }

    /// These targets are all the files, without duplicates.
    fn are_all(&self, targets: &[OsString]) {
        assert_eq!(targets.len(), NAMES.len(), "{targets:?}");
        let content = self.run("cat --", targets);
        let numbers: BTreeSet<&[u8]> = content.chunks(3).collect();
        assert_eq!((content.len(), numbers.len()), (3 * NAMES.len(), NAMES.len()), "{targets:?}");
    }

    /// The names in a folder of the pool, as bytes.
    fn names_in(&self, folder: &str) -> BTreeSet<Vec<u8>> {
        let listed = self.run(&format!("ls -0 {folder}"), &[]);
        let name = |target: &[u8]| target[folder.len() + 1..].to_vec();
        listed.split(|&byte| byte == 0).filter(|target| !target.is_empty()).map(name).collect()
    }

    fn all_names() -> BTreeSet<Vec<u8>> {
        NAMES.iter().map(|name| name.to_vec()).collect()
    }
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

fn words<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<OsString> {
    texts.into_iter().map(OsString::from).collect()
}

/// How bash expands a quoted word; an unquoted word is returned unchanged.
fn as_bash_reads(word: &str) -> OsString {
    if !word.contains("$'") {
        return word.into();
    }
    let output = Command::new("bash").args(["-c", &format!("printf %s {word}")]).output().unwrap();
    OsString::from_vec(output.stdout)
}

#[test]
fn every_printed_name_is_taken_by_every_command() {
    let pool = Pool::new();
    let (listed, found) = (pool.text("ls tank:/in"), pool.text("find tank:/in --type f"));
    let joined: Vec<String> = listed.lines().map(|name| format!("tank:/in/{name}")).collect();
    pool.are_all(&words(joined.iter().map(String::as_str)));
    pool.are_all(&words(found.lines()));
    for command in ["ls -0 tank:/in", "find -0 tank:/in --type f"] {
        let raw = pool.run(command, &[]);
        let targets = raw.split(|&byte| byte == 0).filter(|target| !target.is_empty());
        pool.are_all(&targets.map(|target| OsString::from_vec(target.to_vec())).collect::<Vec<_>>());
    }

    // Pasted into a shell.
    if Command::new("bash").arg("--version").output().is_ok() {
        pool.are_all(&found.lines().map(as_bash_reads).collect::<Vec<_>>());
    }

    // As JSON, even if the name is not text.
    let json: serde_json::Value = serde_json::from_str(&pool.text("ls tank:/in --json")).unwrap();
    let files = json.as_array().unwrap();
    pool.are_all(&words(files.iter().map(|file| file["path"].as_str().unwrap())));
    let with_bytes = files.iter().filter(|file| file["path_bytes"].is_string()).count();
    assert_eq!(with_bytes, NAMES.iter().filter(|name| std::str::from_utf8(name).is_err()).count());

    // The output of `stat` and `ls` for a target begins with the target.
    let stat = String::from_utf8(pool.run("stat --", &words(found.lines()))).unwrap();
    assert!(!stat.contains(is_hidden), "{stat:?}");
    let paths = stat.lines().filter_map(|line| line.trim_start().strip_prefix("path: "));
    assert_eq!(paths.collect::<Vec<_>>(), lines(&found));
    let long = pool.text("ls -l tank:/in");
    assert!(long.lines().zip(listed.lines()).all(|(long, name)| long.ends_with(name)));
    pool.text("du tank:/in");

    // Copied out of the pool, within it and into it, then removed.
    fs::create_dir(pool.0.path().join("out")).unwrap();
    pool.run("cp --", &[words(found.lines()), vec![pool.0.path().join("out").into()]].concat());
    for (number, name) in NAMES.iter().enumerate() {
        let copy = fs::read(pool.0.path().join("out").join(OsStr::from_bytes(name))).unwrap();
        assert_eq!(copy, format!("{number:03}").into_bytes());
    }
    pool.run("mkdir tank:/copies", &[]);
    pool.run("cp --", &[words(joined.iter().map(String::as_str)), words(["tank:/copies"])].concat());
    assert_eq!(pool.names_in("tank:/copies"), Pool::all_names());
    let folders: Vec<String> =
        found.lines().map(|target| target.replacen("tank:/in/", "tank:/folders/", 1)).collect();
    pool.run("mkdir tank:/folders", &[]);
    pool.run("mkdir --", &words(folders.iter().map(String::as_str)));
    assert_eq!(pool.names_in("tank:/folders"), Pool::all_names());
    let new = pool.0.path().join("new");
    fs::write(&new, "new").unwrap();
    for (target, name) in found.lines().zip(NAMES).take(3) {
        pool.run("cp -f", &[vec![new.clone().into()], words([target])].concat());
        assert_eq!(pool.run("cat --", &words([target])), b"new", "{name:?}");
    }
    pool.run("rm --", &words(found.lines()));
    assert_eq!(pool.names_in("tank:/in"), BTreeSet::new());
    let joined: Vec<String> = listed.lines().map(|name| format!("tank:/copies/{name}")).collect();
    pool.run("rm --", &words(joined.iter().map(String::as_str)));
    assert_eq!(pool.names_in("tank:/copies"), BTreeSet::new());
}

#[test]
fn a_whole_quoted_target_is_never_taken_for_another() {
    let disks = Disks::new(&[64]);
    let tree = disks.path().join("tree");
    fs::create_dir(&tree).unwrap();
    // The second has the name that the first is printed as.
    fs::write(tree.join(OsStr::from_bytes(b"a\xff")), "raw").unwrap();
    fs::write(tree.join(r"$'a\xff'"), "literal").unwrap();
    disks.cenote("zpool create -f tank", &[&disks.path().join("a")]);
    disks.cenote("cp -r", &[&tree.join("."), Path::new("tank:/")]);
    assert_eq!(disks.cenote("cat", &[Path::new(r"$'tank:/a\xff'")]), "raw");
    assert_eq!(disks.cenote("cat", &[Path::new(OsStr::from_bytes(b"tank:/a\xff"))]), "raw");
    assert_eq!(disks.cenote("cat", &[Path::new(r"tank:/$'a\xff'")]), "literal");
    let found = disks.cenote("find", &[Path::new("tank:/")]);
    assert!(found.contains("$'tank:/a\\xff'\n") && found.contains("$'tank:/$\\'a\\\\xff\\''\n"), "{found}");
}
