//! House rules, checked on the whole tree: short files with a module comment, no large circle of imports,
//! and engine crates that take time, tasks and randomness only from `runtime`.
#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]

mod circles;
mod mutants;
mod prose;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use prose::Prose;

/// The maximum length of a source file, except for tables of facts.
const MOST_LINES: usize = 800;
/// Tables of facts, one per line.
const TABLES: [&str; 3] = ["format/src/features/", "format/src/props/", "format/src/draid/"];
/// The maximum width of a line of code or prose, in characters.
const MOST_COLUMNS: usize = 110;
/// Longer lines are allowed here: a table of facts, reports written by the lab, and crates and documents
/// whose lines have not been shortened yet.
const WIDE: &[&str] = &["crates/format/src/features.rs", "docs/example/"];
/// Starts of paths that exist only on the machines where Cenote is built.
const BUILD_MACHINES: [&str; 5] = ["/work/", "/builds/", "/home/runner/", "/github/", "/Users/"];
/// Folders without texts of the project.
const NO_TEXTS: [&str; 5] = ["target", ".git", "golden/pools", "fuzz/corpus", "fuzz/failures"];
/// Larger files are not texts.
const MOST_TEXT_BYTES: u64 = 1 << 20;
/// Crates whose code also runs in the simulator.
const ENGINE: [&str; 13] = [
    "bucket", "format", "codec", "device", "remote", "pool", "cache", "object", "dataset", "engine", "tasks",
    "fs", "inspect",
];
/// Calls forbidden in engine crates.
const FORBIDDEN: [&str; 7] = [
    "std::time::Instant",
    "SystemTime",
    "thread::spawn",
    "tokio::spawn",
    "tokio::time",
    "rand::",
    "thread::sleep",
];

/// Calls whose order depends on a hash seed, forbidden in engine crates in files that use hash tables.
const HASH_ORDER: [&str; 5] = [".values()", ".into_values()", ".values_mut()", ".keys()", ".into_keys()"];

/// Calls that may sleep in the host's kernel, forbidden in engine crates...
const SLEEPS: [&str; 3] = ["std::fs", "rustix::fs", "libc::open"];
/// ...except on the runtime's threads for blocking calls: a hung disk must not block a worker, which serves
/// all pools.
const MAY_SLEEP: [&str; 13] = [
    "crates/device/src/file",
    // /proc, and a few bytes of /etc.
    "crates/device/src/host.rs",
    "crates/remote/src/process.rs",
    "crates/bucket/src/s3/credentials.rs",
    "crates/remote/src/dial.rs",
    "crates/remote/src/iscsi/owner.rs",
    "crates/remote/src/iscsi/secrets.rs",
    "crates/remote/src/secret.rs",
    "crates/remote/src/rbd/holder.rs",
    "crates/remote/src/tls.rs",
    "crates/pool/src/discover/scan.rs",
    "crates/pool/src/discover/seat.rs",
    // Its other side is the host.
    "crates/inspect/src/",
];

/// The daemon's crates.
const DAEMON: [&str; 4] = ["crates/daemon/src/", "crates/host/src/", "crates/serve/src/", "crates/fuse/src/"];
/// Calls with paths, forbidden in these...
const ON_PATHS: [&str; 4] = ["std::fs", "rustix::fs", "rustix::mount", ".exists()"];
/// ...except for paths outside all file systems of the daemon. A mount point may lie in another of its own
/// mounts, and a thread that looks one up would keep a killed daemon from ending.
const MAY_USE_PATHS: [&str; 16] = [
    // Rules, sockets, state, certificates and counters, in folders reserved for the daemon.
    "crates/daemon/src/agent.rs",
    "crates/daemon/src/doors.rs",
    "crates/host/src/kstat/files.rs",
    "crates/serve/src/listen.rs",
    "crates/host/src/lock.rs",
    "crates/host/src/own.rs",
    "crates/host/src/record.rs",
    "crates/serve/src/run.rs",
    "crates/serve/src/socket",
    "crates/serve/src/tls.rs",
    "crates/serve/src/ublk/links.rs",
    "crates/serve/src/vhost.rs",
    // Devices of pools.
    "crates/host/src/places.rs",
    // The kernel's /proc and /sys, and mounts of a dead daemon.
    "crates/fuse/src/guard.rs",
    "crates/fuse/src/ring.rs",
    // Made by the helper, or for a program that serves a single file system.
    "crates/fuse/src/mount",
];

/// The maximum number of files of a crate that import each other in a circle.
const MOST_IN_CIRCLE: usize = 5;

/// Crates without any such circle, and with small folders.
const IN_ROOMS: [&str; 4] = ["daemon", "lab", "shown", "study"];
/// The maximum number of files of a folder.
const MOST_IN_FOLDER: usize = 20;
/// Folders with more: layers of the engine, one file an idea, and tests.
const MAY_BE_CROWDED: [&str; 8] = [
    "crates/cli/tests/program",
    "crates/dataset/src",
    "crates/engine/src",
    "crates/format/src",
    "crates/fs/tests/write",
    "crates/inspect/tests/simulation",
    "crates/pool/src",
    "crates/tasks/src",
];

/// Clauses that hide their actor, in 1,000 words of comments of a crate; help texts are comments, too.
const MOST_CLAUSES: f64 = 1.0;
/// Words of comments for 1,000 lines of code, in all crates together.
const MOST_COMMENTS: f64 = 1150.0;
/// Clauses that hide their actor, in 1,000 words of a document.
const MOST_IN_DOCUMENTS: f64 = 1.0;

/// This test, which names the forbidden words.
fn is_this(path: &str) -> bool {
    path.contains("/tests/tidy/")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()) {
        if entry.is_dir() {
            sources(&entry, found);
        } else if entry.extension().is_some_and(|e| e == "rs") {
            found.push(entry);
        }
    }
}

/// The path (from the root) and text of every Rust file under `crates`.
fn all_sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    sources(&root().join("crates"), &mut found);
    let relative = |p: &Path| p.strip_prefix(root()).unwrap_or(p).to_string_lossy().into_owned();
    found.iter().map(|p| (relative(p), fs::read_to_string(p).unwrap())).collect()
}

fn texts_in(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap().map(|e| e.unwrap()) {
        let path = entry.path();
        let name = path.strip_prefix(root()).unwrap_or(&path).to_string_lossy().into_owned();
        if NO_TEXTS.contains(&name.as_str()) {
            continue;
        }
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            texts_in(&path, found);
        } else if kind.is_file() && entry.metadata().unwrap().len() <= MOST_TEXT_BYTES {
            let mut text = String::new();
            // A file that is not UTF-8 is not a text.
            if fs::File::open(&path).unwrap().read_to_string(&mut text).is_ok() {
                found.push((name, text));
            }
        }
    }
}

/// The path (from the root) and content of every text file of the repository.
fn all_texts() -> Vec<(String, String)> {
    let mut found = Vec::new();
    texts_in(&root(), &mut found);
    found
}

/// Whether a line may be long: a row of a table, or a link.
fn may_be_long(path: &str, line: &str) -> bool {
    let line = line.trim_start();
    let is_row = match path.ends_with(".md") {
        true => line.starts_with('|'),
        false => line.starts_with("//! |") || line.starts_with("/// |"),
    };
    is_row || line.contains("://")
}

fn assert_none(rule: &str, broken: Vec<String>) {
    assert!(broken.is_empty(), "{rule}:\n  {}", broken.join("\n  "));
}

#[test]
fn no_file_is_too_long() {
    let broken = all_sources()
        .into_iter()
        .filter(|(path, _)| !TABLES.iter().any(|table| path.contains(table)))
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|&(_, lines)| lines > MOST_LINES)
        .map(|(path, lines)| format!("{path}: {lines} lines"));
    assert_none("files of at most 800 lines", broken.collect());
}

#[test]
fn no_line_is_too_long() {
    let mut broken = Vec::new();
    for (path, text) in all_texts() {
        let is_checked = path.ends_with(".rs") || path.ends_with(".md");
        if !is_checked || WIDE.iter().any(|wide| path.starts_with(wide)) {
            continue;
        }
        for (number, line) in (1..).zip(text.lines()) {
            let columns = line.chars().count();
            if columns > MOST_COLUMNS && !may_be_long(&path, line) {
                broken.push(format!("{path}:{number}: {columns} columns"));
            }
        }
    }
    assert_none("lines of at most 110 columns", broken);
}

#[test]
fn no_text_names_a_path_of_a_build_machine() {
    let here = fs::canonicalize(root()).unwrap();
    // A short path, such as `/src`, would be found in the middle of others.
    let here = here.to_str().filter(|here| here.matches('/').count() > 1).unwrap_or("/work/");
    let is_named = |text: &str, start: &str| {
        text.match_indices(start)
            .any(|(at, _)| !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '.'))
    };
    let broken = all_texts().into_iter().filter(|(path, text)| {
        !is_this(path) && (text.contains(here) || BUILD_MACHINES.iter().any(|start| is_named(text, start)))
    });
    assert_none("paths of a build machine", broken.map(|(path, _)| path).collect());
}

#[test]
fn every_module_says_what_it_is() {
    let is_test = |path: &str| path.ends_with("tests.rs") || path.contains("/tests/");
    let broken = all_sources()
        .into_iter()
        .filter(|(path, text)| !text.starts_with("//!") && !is_test(path))
        .map(|(path, _)| path);
    assert_none("a file opens with a //! comment", broken.collect());
}

#[test]
fn no_circle_of_imports_is_large() {
    let broken = circles::larger_than(MOST_IN_CIRCLE, &all_sources());
    assert_none("at most 5 files of a crate import each other in a circle", broken);
}

/// The sources of crates divided into rooms.
fn sources_in_rooms() -> Vec<(String, String)> {
    let is_in = |path: &str| IN_ROOMS.iter().any(|name| path.starts_with(&format!("crates/{name}/src/")));
    all_sources().into_iter().filter(|(path, _)| is_in(path)).collect()
}

#[test]
fn no_circle_of_imports_is_within_a_room() {
    let broken = circles::larger_than(1, &sources_in_rooms());
    assert_none("files of crates in rooms never import each other in a circle", broken);
}

#[test]
fn no_folder_is_crowded() {
    let mut folders: BTreeMap<String, usize> = BTreeMap::new();
    let may = |path: &str| MAY_BE_CROWDED.iter().any(|crowded| path.starts_with(crowded));
    for (path, _) in all_sources().into_iter().filter(|(path, _)| !may(path)) {
        let folder = Path::new(&path).parent().map(|folder| folder.display().to_string());
        *folders.entry(folder.unwrap_or_default()).or_default() += 1;
    }
    let crowded = folders.into_iter().filter(|(_, files)| *files > MOST_IN_FOLDER);
    let broken = crowded.map(|(folder, files)| format!("{folder}: {files} files")).collect();
    assert_none("folders of at most 20 files", broken);
}

/// Commands that work on pools themselves instead of running a verb.
const ON_POOLS: [&str; 10] = [
    "cli/src/allocator.rs",
    "cli/src/session.rs",
    "cli/src/command/shell/complete",
    "cli/src/command/demo",
    "cli/src/command/inspect/dump",
    "cli/src/command/mount",
    "cli/src/command/inspect/rescue",
    "cli/src/command/zpool/manage.rs",
    // Their output.
    "shown/src/inspect/dump",
    "shown/src/inspect/rescue.rs",
];

/// `format` has plain values; `fuse`, `lab` and `study` are beside the engine.
#[test]
fn commands_reach_pools_through_control() {
    let engine =
        ["cache", "codec", "dataset", "device", "engine", "fs", "host", "inspect", "l2arc", "object", "pool"];
    let engine = engine.iter().chain(&["stream", "tasks"]).map(|name| format!("cenote_{name}"));
    let engine: Vec<String> = engine.collect();
    let names = |line: &str| {
        let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.into_iter().any(|word| engine.iter().any(|name| name == word))
    };
    let sources = all_sources().into_iter();
    let commands = sources.filter(|(path, _)| {
        let below = path.strip_prefix("crates/").unwrap_or_default();
        let is_meant = below.starts_with("cli/src/") || below.starts_with("shown/src/");
        is_meant && !ON_POOLS.iter().any(|on_pools| below.starts_with(on_pools))
    });
    let broken =
        commands.filter(|(_, text)| text.lines().any(|line| !line.trim().starts_with("//") && names(line)));
    assert_none("a command runs verbs of `control`", broken.map(|(path, _)| path).collect());
}

/// Options are the command line's; answers are shown without them.
#[test]
fn answers_are_shown_without_the_command_line() {
    let manifest = fs::read_to_string(root().join("crates/shown/Cargo.toml")).unwrap();
    let names = |name: &str| manifest.lines().any(|line| line.starts_with(name));
    let broken = ["clap", "cenote-serve", "cenote-host", "cenote-http", "tokio"]
        .into_iter()
        .filter(|name| names(name));
    assert_none("`shown` turns values into text", broken.map(str::to_owned).collect());
}

/// The maximum number of lines of the command line: 12,000 for 88 verbs, and those of `ha` and `features`.
const MOST_LINES_OF_CLI: usize = 12_150;

#[test]
fn the_command_line_is_small() {
    let sources = all_sources().into_iter().filter(|(path, _)| path.starts_with("crates/cli/src/"));
    let lines: usize = sources.map(|(_, text)| text.lines().count()).sum();
    assert!(lines < MOST_LINES_OF_CLI, "{lines} lines in crates/cli/src: answers are shown by `shown`");
}

/// The caller of a verb is an argument. Buffers, and the check of lock order, belong to a thread.
#[test]
fn no_identity_belongs_to_a_thread() {
    let may = ["crates/codec/src/compress", "crates/engine/src/locks.rs"];
    let broken = all_sources().into_iter().filter(|(path, text)| {
        !may.iter().any(|may| path.starts_with(may)) && !is_this(path) && text.contains("thread_local!")
    });
    assert_none("no thread-local state", broken.map(|(path, _)| path).collect());
}

#[test]
fn comments_name_their_actors() {
    let (mut crates, mut all): (BTreeMap<String, Prose>, _) = (BTreeMap::new(), Prose::default());
    for (path, text) in all_sources() {
        let name = path.split('/').nth(1).unwrap_or_default().to_owned();
        let prose = Prose::of_comments(&text);
        *crates.entry(name).or_default() += prose;
        all += prose;
    }
    for (name, prose) in &crates {
        let (clauses, words) = (prose.clauses_per_1000(), prose.words_per_1000_lines());
        println!("{name:16} {clauses:5.1} clauses in 1,000 words, {words:5.0} words for 1,000 lines");
    }
    println!("all: {:.1}, {:.0}", all.clauses_per_1000(), all.words_per_1000_lines());
    let broken = crates.iter().filter(|(_, prose)| prose.clauses_per_1000() > MOST_CLAUSES);
    let broken = broken.map(|(name, prose)| format!("{name}: {:.1}", prose.clauses_per_1000())).collect();
    assert_none("at most 1 clause with who, whoever or what in 1,000 words of a crate's comments", broken);
    let words = all.words_per_1000_lines();
    assert!(words <= MOST_COMMENTS, "comments have {words:.0} words for 1,000 lines of code");
}

#[test]
fn documents_name_their_actors() {
    let is_document = |path: &str| path.ends_with(".md") && !path.starts_with("docs/example/");
    let mut broken = Vec::new();
    for (path, text) in all_texts().into_iter().filter(|(path, _)| is_document(path)) {
        let clauses = Prose::of_document(&text).clauses_per_1000();
        println!("{path}: {clauses:.1}");
        if clauses > MOST_IN_DOCUMENTS {
            broken.push(format!("{path}: {clauses:.1}"));
        }
    }
    assert_none("at most 1 clause with who, whoever or what in 1,000 words of a document", broken);
}

#[test]
fn nothing_is_left_to_do() {
    let broken = all_sources().into_iter().filter(|(path, text)| {
        !is_this(path) && ["todo!(", "unimplemented!(", "FIXME", "XXX"].iter().any(|mark| text.contains(mark))
    });
    assert_none("no stubs", broken.map(|(path, _)| path).collect());
}

/// Uses in engine crates of a word that `forbidden` finds in a line of a file.
fn in_engine(forbidden: impl Fn(&str, &str) -> Option<&'static str>) -> Vec<String> {
    in_engine_but(&[], forbidden)
}

/// The same except in files whose paths begin with one of `excepted`.
fn in_engine_but(excepted: &[&str], forbidden: impl Fn(&str, &str) -> Option<&'static str>) -> Vec<String> {
    let in_engine = |path: &str| {
        ENGINE.iter().any(|krate| path.starts_with(&format!("crates/{krate}/src/")))
            && !excepted.iter().any(|start| path.starts_with(start))
    };
    let mut broken = Vec::new();
    for (path, text) in all_sources().into_iter().filter(|(path, _)| in_engine(path)) {
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if let Some(word) = forbidden(&text, code) {
                broken.push(format!("{path}:{}: {word}", number + 1));
            }
        }
    }
    broken
}

#[test]
fn the_engine_takes_time_and_tasks_from_the_runtime() {
    let broken = in_engine(|_, code| FORBIDDEN.into_iter().find(|word| code.contains(word)));
    assert_none("engine crates take time, tasks and randomness from cenote-runtime", broken);
}

#[test]
fn no_worker_of_the_engine_sleeps_in_the_kernel() {
    let broken = in_engine_but(&MAY_SLEEP, |_, code| SLEEPS.into_iter().find(|word| code.contains(word)));
    let broken = broken.into_iter().filter(|path| !path.contains("tests")).collect();
    assert_none("calls that may sleep go to Runtime::blocking, in device and discover alone", broken);
}

#[test]
fn no_thread_of_the_daemon_waits_for_its_own_mounts() {
    let mut broken = Vec::new();
    for (path, text) in all_sources() {
        let is_meant = DAEMON.iter().any(|start| path.starts_with(start));
        if !is_meant || MAY_USE_PATHS.iter().any(|start| path.starts_with(start)) {
            continue;
        }
        let program = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in (1..).zip(program.lines()) {
            let code = line.split("//").next().unwrap_or_default();
            broken.extend(
                ON_PATHS
                    .iter()
                    .filter(|call| code.contains(**call))
                    .map(|call| format!("{path}:{number}: {call}")),
            );
        }
    }
    assert_none("calls with paths go to cenote_fuse::mount::hand, or where no mount of ours can be", broken);
}

#[test]
fn nothing_in_the_engine_is_ordered_by_address_or_hash_seed() {
    let has_table = |text: &str| text.contains("HashMap") || text.contains("HashSet");
    let broken = in_engine(|text, code| {
        let by_hash = HASH_ORDER.into_iter().find(|call| code.contains(call) && has_table(text));
        by_hash.or(["Arc::as_ptr", "Rc::as_ptr"].into_iter().find(|call| code.contains(call)))
    });
    assert_none("engine crates order by what things are: BTreeMap, guids, ids", broken);
}

#[test]
fn who_changes_anything_may_go_away() {
    let broken = all_sources().into_iter().filter(|(path, text)| {
        path.contains("/src/") && !path.starts_with("crates/engine/") && text.contains(".hold().await")
    });
    let rule = "nobody but the engine holds a txg: Engine::change owns what is done under a hold";
    assert_none(rule, broken.map(|(path, _)| path).collect());
}

#[test]
fn unsafe_stands_only_in_marked_modules() {
    let broken = all_sources().into_iter().filter(|(path, text)| {
        let allowed = text.contains("#![allow(unsafe_code)]");
        !is_this(path)
            && !allowed
            && text.lines().any(|line| {
                let code = line.split("//").next().unwrap_or_default();
                code.contains("unsafe {") || code.contains("unsafe fn") || code.contains("unsafe impl")
            })
    });
    assert_none(
        "unsafe needs #![allow(unsafe_code)] in its module, with a reason",
        broken.map(|(path, _)| path).collect(),
    );
}
