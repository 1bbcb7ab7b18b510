//! Every verb and option of zpool(8) and zfs(8) in OpenZFS 2.3 is recognised: it works, or the program says
//! "not in Cenote yet" and names an alternative. The command lines follow the manual's synopses, one per
//! option.
//!
//! They run without any pool, so a recognised command fails because it finds none; none is a usage error.

use std::os::unix::fs::symlink;
use std::process::{Command, Output};

/// A verb, the operands after its options, and its options; options that take a value have one.
type Verb = (&'static str, &'static str, &'static [&'static str]);

const ZPOOL: &[Verb] = &[
    (
        "add",
        "tank d e",
        &[
            "-f",
            "-g",
            "-L",
            "-n",
            "-P",
            "-o ashift=12",
            "--allow-in-use",
            "--allow-replication-mismatch",
            "--allow-ashift-mismatch",
        ],
    ),
    ("attach", "tank a b", &["-f", "-s", "-w", "-o ashift=12"]),
    ("checkpoint", "tank", &["-d", "-d -w"]),
    ("clear", "tank a", &["--power"]),
    (
        "create",
        "tank ./none",
        &[
            "-d",
            "-d -o feature@lz4_compress=enabled",
            "-f",
            "-n",
            "-m /tank",
            "-o ashift=12",
            "-o feature@edonr=enabled",
            "-o compatibility=legacy",
            "-O compression=lz4",
            "-R /mnt",
            "-t other",
        ],
    ),
    ("ddtprune", "-d 10 tank", &[]),
    ("ddtprune", "-p 10 tank", &[]),
    ("destroy", "tank", &["-f"]),
    ("detach", "tank a", &[]),
    ("events", "tank", &["-v", "-H", "-f", "-c"]),
    ("export", "tank", &["-f"]),
    ("export", "", &["-a"]),
    ("get", "all tank", &["-H", "-p", "-j", "-j --json-int", "-o name,value"]),
    ("get", "all tank root-0", &["-H", "-p", "-j", "-j --json-int", "-o name,value"]),
    ("get", "all tank all-vdevs", &[]),
    ("history", "tank", &["-i", "-l"]),
    ("import", "", &["-D", "-d .", "-a", "-c ./none", "-j"]),
    (
        "import",
        "tank",
        &[
            "-D",
            "-f",
            "-l",
            "-m",
            "-N",
            "-F",
            "-F -n",
            "-T 100",
            "--rewind-to-checkpoint",
            "-d .",
            "-o readonly=on",
            "-o cachefile=none",
            "-R /mnt",
            "-s",
        ],
    ),
    ("import", "tank attic", &["-t", "-f -t"]),
    ("condense", "tank", &["-t log_spacemap", "-c", "-w", "--type log_spacemap", "--cancel", "--wait"]),
    ("condense", "", &["-a", "--all -w", "--types"]),
    ("initialize", "tank a", &["-c", "-s", "-u", "-w", "-z", "-w --zero"]),
    ("initialize", "", &["-a", "--all -w", "-a -z"]),
    (
        "iostat",
        "tank 1 1",
        &["-c SCRIPT", "-l", "-q", "-r", "-w", "-T u", "-g", "-h", "-H", "-L", "-n", "-p", "-P", "-v", "-y"],
    ),
    ("labelclear", "./none", &["-f"]),
    ("list", "tank", &["-H", "-g", "-L", "-p", "-P", "-v", "-j", "-j --json-int", "-o name"]),
    ("list", "tank 1 1", &["-T u", "-T d", "-j --json-pool-key-guid"]),
    ("status", "tank 1 1", &["-T u", "-T d", "-j --json-pool-key-guid", "-j --json-flat-vdevs"]),
    ("get", "all tank", &["-j --json-pool-key-guid"]),
    ("offline", "tank a", &["-f", "-t", "--power"]),
    ("online", "tank a", &["-e", "--power"]),
    ("prefetch", "tank", &["-t ddt"]),
    ("reguid", "tank", &["-g 123"]),
    ("remove", "tank a", &["-n", "-p", "-w"]),
    ("remove", "tank", &["-s"]),
    ("reopen", "tank", &["-n"]),
    ("replace", "tank a b", &["-f", "-s", "-w", "-o ashift=12"]),
    ("resilver", "tank", &[]),
    ("scrub", "tank", &["-e", "-p", "-s", "-C", "-w", "-t", "-C -t", "-S 2026-01-01", "-E 2026-01-01"]),
    ("scrub", "", &["-a", "-a -w"]),
    ("set", "comment=x tank", &[]),
    ("split", "tank attic a", &["-g", "-L", "-l -R /mnt", "-n", "-P", "-o ashift=12", "-R /mnt"]),
    (
        "status",
        "tank",
        &[
            "-d",
            "-D",
            "-e",
            "-g",
            "-i",
            "-L",
            "-p",
            "-P",
            "-s",
            "-t",
            "-v",
            "-x",
            "-c",
            "-c smart",
            "-j",
            "-j --json-int",
        ],
    ),
    ("sync", "tank", &[]),
    ("trim", "tank a", &["-d", "-w", "-r 1M", "-c", "-s"]),
    ("trim", "", &["-a", "--all -w"]),
    ("upgrade", "", &["-v", "-a", "-V 5000 -a"]),
    ("upgrade", "tank", &["-V 5000"]),
    ("version", "", &["-j"]),
    ("wait", "tank", &["-H", "-p", "-T u", "-t scrub"]),
];

const ZFS: &[Verb] = &[
    ("allow", "tank", &["-d alice mount", "-g staff mount", "-l alice mount", "-u alice mount"]),
    ("allow", "tank", &["-e mount", "-c mount", "-s @set mount"]),
    ("bookmark", "tank@a tank#a", &[]),
    (
        "change-key",
        "tank",
        &["-l", "-o keylocation=prompt", "-o keyformat=hex", "-o pbkdf2iters=100000", "-i", "-i -l"],
    ),
    ("clone", "tank@a tank/b", &["-p", "-o compression=lz4"]),
    ("create", "tank/a", &["-P", "-n", "-p", "-u", "-v", "-o atime=off", "-V 1M", "-V 1M -s", "-V 1M -b 8K"]),
    ("destroy", "tank/a", &["-R", "-f", "-n", "-p", "-r", "-v"]),
    ("destroy", "tank@a%b,c", &["-R", "-d", "-n", "-p", "-r", "-v"]),
    ("destroy", "tank#a", &[]),
    ("diff", "tank@a tank@b", &["-F", "-H", "-t", "-h"]),
    (
        "get",
        "all tank",
        &["-r", "-d 1", "-H", "-p", "-j", "-j --json-int", "-o name,value", "-s local", "-t snapshot"],
    ),
    (
        "groupspace",
        "tank",
        &["-H", "-i", "-n", "-p", "-o name,used", "-s used", "-S used", "-t posixgroup,smbgroup"],
    ),
    ("hold", "tag tank@a", &["-r"]),
    ("holds", "tank@a", &["-r", "-H", "-p"]),
    ("inherit", "atime tank", &["-r", "-S"]),
    ("jail", "1 tank", &[]),
    (
        "list",
        "tank",
        &["-r", "-d 1", "-H", "-p", "-j", "-j --json-int", "-o name", "-s name", "-S name", "-t all"],
    ),
    ("load-key", "tank", &["-n", "-r", "-n -r", "-L file:///none", "-n -L prompt", "-n -L https://host/key"]),
    ("load-key", "", &["-a", "-n -a"]),
    ("mount", "", &["-j", "-a", "-O -a", "-f -a", "-l -a", "-v -a", "-o ro -a"]),
    ("mount", "tank", &["-R"]),
    ("program", "tank script.lua", &["-j", "-n", "-t 100", "-m 100"]),
    ("project", "file", &["-d", "-r", "-C", "-C -k", "-c", "-c -0", "-c -p 1", "-p 1 -s"]),
    ("projectspace", "tank", &["-H", "-p", "-o name,used", "-s used", "-S used"]),
    ("promote", "tank/a", &[]),
    (
        "receive",
        "tank/a",
        &["-F", "-h", "-M", "-n", "-s", "-u", "-v", "-d", "-e", "-o origin=tank@a", "-x atime", "-A", "-c"],
    ),
    ("recv", "tank/a", &["-F"]),
    ("redact", "tank@a mark tank/b@c", &[]),
    ("release", "tag tank@a", &["-r"]),
    ("rename", "tank/a tank/b", &["-f", "-p", "-u"]),
    ("rename", "tank@a tank@b", &["-r"]),
    ("rewrite", "file", &["-r", "-v", "-x", "-P", "-C", "-S", "-o 4096 -l 0x1000"]),
    ("rollback", "tank@a", &["-R", "-f", "-r"]),
    (
        "send",
        "tank@a",
        &[
            "-D",
            "-L",
            "-P",
            "-V",
            "-b",
            "-c",
            "-e",
            "-h",
            "-n",
            "-p",
            "-R -s",
            "-v",
            "-w",
            "-R",
            "-R -X tank/a",
            "-I tank@b",
            "-i tank@b",
            "--redact mark",
            "-t token",
        ],
    ),
    ("send", "tank", &["-S"]),
    ("set", "atime=off compression=lz4 tank", &["-u"]),
    ("share", "", &["-a", "-l -a"]),
    ("snapshot", "tank@a tank/b@a", &["-r", "-o user:x=y"]),
    ("snap", "tank@a", &[]),
    ("umount", "tank", &[]),
    ("unallow", "alice tank", &["-d", "-g", "-l", "-r", "-u"]),
    ("unallow", "-e tank", &["-r"]),
    ("unallow", "-c tank", &["-r"]),
    ("unallow", "-s @set tank", &["-r"]),
    ("unjail", "1 tank", &[]),
    ("unload-key", "tank", &["-r"]),
    ("unload-key", "", &["-a"]),
    ("unmount", "tank", &["-f", "-u"]),
    ("unmount", "", &["-a"]),
    ("unshare", "", &["-a"]),
    ("unzone", "/proc/1/ns/user tank", &[]),
    ("upgrade", "", &["-v", "-a", "-r -V 5 -a"]),
    ("upgrade", "tank", &["-r", "-V 5", "-r -V current"]),
    (
        "userspace",
        "tank",
        &["-H", "-i", "-n", "-p", "-o name,used", "-s used", "-S used", "-t posixuser,smbuser,all"],
    ),
    ("version", "", &["-j"]),
    ("wait", "tank", &["-t deleteq"]),
    ("zone", "/proc/1/ns/user tank", &[]),
];

/// An empty folder with links under which the program acts as OpenZFS's tools.
struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        for tool in ["zpool", "zfs"] {
            symlink(env!("CARGO_BIN_EXE_cenote"), folder.path().join(tool)).unwrap();
        }
        std::fs::create_dir(folder.path().join("disks")).unwrap();
        Bench(folder)
    }

    fn run(&self, tool: &str, line: &str) -> Output {
        let mut program = Command::new(self.0.path().join(tool));
        program.current_dir(self.0.path().join("disks")).env("CENOTE_DISKS", ".");
        program.args(line.split_whitespace()).output().unwrap()
    }
}

/// It ran, failed for lack of a pool, or named an alternative. Any other usage error means it is unknown.
fn is_known(output: &Output) -> bool {
    let errors = String::from_utf8_lossy(&output.stderr);
    match errors.split_once("is not in Cenote yet. ") {
        Some((_, advice)) => advice.len() > 20,
        None => matches!(output.status.code(), Some(0 | 1 | 255)),
    }
}

#[test]
fn every_line_of_the_manual_is_known() {
    let (bench, mut unknown) = (Bench::new(), Vec::new());
    let mut count = 0;
    for (tool, verbs) in [("zpool", ZPOOL), ("zfs", ZFS)] {
        for (verb, operands, options) in verbs {
            for option in [""].iter().chain(*options) {
                let line = format!("{verb} {option} {operands}");
                let output = bench.run(tool, &line);
                count += 1;
                // Some verbs require one of their options.
                if !(is_known(&output) || option.is_empty() && operands.is_empty()) {
                    unknown.push(format!("{tool} {line}: {}", String::from_utf8_lossy(&output.stderr)));
                }
            }
        }
    }
    assert!(unknown.is_empty(), "of {count} lines not known:\n{}", unknown.join("\n"));
}

#[test]
fn a_missing_verb_leads_to_no_other_verb() {
    let bench = Bench::new();
    let errors = |tool, line| {
        let output = bench.run(tool, line);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, jail) = errors("zfs", "jail 1 tank");
    assert_eq!(status, Some(1));
    assert!(jail.contains("`zfs jail` is not in Cenote yet. It is for FreeBSD's jails"), "{jail}");
    let (_, unmount) = errors("zfs", "unmount tank");
    assert!(!unmount.contains("similar") && !unmount.contains("did you mean"), "{unmount}");
    // An unknown verb is answered with the most similar one.
    let (status, typo) = errors("zpool", "lisst tank");
    assert!(status == Some(2) && typo.contains("no verb 'lisst'; did you mean 'list'?"), "{typo}");
}

#[test]
fn one_letter_asks_no_verb_of_a_tool_for_help() {
    let bench = Bench::new();
    for line in ["scrub -h tank", "scrub -? tank", "wait -t scrub -h"] {
        let output = bench.run("zpool", line);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {errors}");
        assert!(errors.contains("invalid option") && errors.contains("Usage"), "{line}: {errors}");
    }
    // `-h` is an option where OpenZFS's manual lists it.
    assert_ne!(bench.run("zfs", "diff -h tank@a tank@b").status.code(), Some(2));
    assert_eq!(bench.run("zpool", "iostat -h").status.code(), Some(0));
    assert_eq!(bench.run("zpool", "scrub --help").status.code(), Some(0));
    let own = Command::new(env!("CARGO_BIN_EXE_cenote")).args(["zpool", "scrub", "-h"]).output().unwrap();
    assert!(own.status.success() && String::from_utf8_lossy(&own.stdout).contains("Usage"));
}

#[test]
fn an_unknown_activity_is_refused_in_the_words_of_openzfs() {
    let bench = Bench::new();
    for activity in ["foo", "scrub=getsubopt"] {
        let output = bench.run("zpool", &format!("wait -t free,{activity} tank"));
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(&format!("invalid activity '{activity}'")), "{errors}");
    }
}

#[test]
fn versions_are_told_in_every_way_that_openzfs_has() {
    let bench = Bench::new();
    for tool in ["zpool", "zfs"] {
        for line in ["version", "-V", "--version"] {
            let output = bench.run(tool, line);
            let text = String::from_utf8(output.stdout).unwrap();
            assert_eq!(text, format!("cenote {}\n", env!("CARGO_PKG_VERSION")), "{tool} {line}");
        }
        let json: serde_json::Value = serde_json::from_slice(&bench.run(tool, "version -j").stdout).unwrap();
        assert_eq!(json["output_version"]["command"], format!("{tool} version"));
        assert!(json["zfs_version"]["userland"].as_str().unwrap().starts_with("cenote "));
        for line in ["set -V tank", "get --version all tank"] {
            assert_eq!(bench.run(tool, line).status.code(), Some(2), "{tool} {line}");
        }
        let help = bench.run(tool, "-?");
        assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains("Usage"));
    }
}

/// Where the manual pages are installed, their verbs are compared with this list.
#[test]
fn the_list_of_verbs_is_that_of_the_manual() {
    let Ok(pages) = std::path::Path::new("/usr/share/man/man8").read_dir() else {
        eprintln!("skipped: no manual");
        return;
    };
    let mut missing = Vec::new();
    for page in pages.filter_map(|page| page.unwrap().file_name().into_string().ok()) {
        let Some((tool, verb)) = page.split('.').next().unwrap().split_once('-') else { continue };
        let verbs = match tool {
            "zpool" => ZPOOL,
            "zfs" => ZFS,
            _ => continue,
        };
        // A program of systemd.
        if verb != "mount-generator" && verbs.iter().all(|(name, ..)| *name != verb) {
            missing.push(page);
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}
