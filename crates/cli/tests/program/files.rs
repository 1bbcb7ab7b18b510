//! `ls`, `cat`, `find`, `du`, `cp` and `volume cp` on golden pools: their results equal the OpenZFS module's
//! view, and `cp` reports exactly the attributes it could not preserve.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use cenote_testkit::{Golden, golden};
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The second in which the module replayed the logs of `unclean-zil`; later times in its manifest come from
/// its clock.
const REPLAYED_AT: i64 = 1_795_247_790;

fn cenote(pool: &Golden, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
    command.arg("-d").arg(pool.images()).args(arguments);
    command
}

fn run(pool: &Golden, arguments: &[&str]) -> Output {
    cenote(pool, arguments).output().unwrap()
}

/// Runs a command that must end with this status.
fn expect(pool: &Golden, status: i32, arguments: &[&str]) -> Output {
    let output = run(pool, arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
    output
}

/// A folder for one test, removed at its end, immutable files included.
struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Scratch {
        Scratch(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).into_os_string().into_string().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for path in tree(self.0.path()) {
            if let Some(flags) = flags(&path).filter(|flags| flags.intersects(lasting())) {
                let file = fs::File::open(&path).unwrap();
                ioctl_setflags(file, flags.difference(lasting())).unwrap();
            }
        }
    }
}

fn lasting() -> IFlags {
    IFlags::IMMUTABLE | IFlags::APPEND
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: owners, devices and flags (only root may set them)");
    }
    root
}

/// Flags of a regular file or folder, where the file system supports them.
fn flags(path: &Path) -> Option<IFlags> {
    let kind = fs::symlink_metadata(path).ok()?.file_type();
    (kind.is_file() || kind.is_dir()).then(|| ioctl_getflags(fs::File::open(path).ok()?).ok()).flatten()
}

/// A folder and all paths below it.
fn tree(root: &Path) -> Vec<PathBuf> {
    let mut all = vec![root.to_path_buf()];
    let mut at = 0;
    while let Some(path) = all.get(at).cloned() {
        at += 1;
        if fs::symlink_metadata(&path).unwrap().is_dir() {
            all.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    all
}

/// A manifest row, by column.
type Row = BTreeMap<String, String>;

fn manifest(pool: &Golden, dataset: &str) -> Vec<Row> {
    let facts = pool.facts();
    let facts = facts.datasets.iter().find(|d| d.name == dataset).unwrap();
    let text = String::from_utf8(pool.bytes(facts.manifest.as_ref().unwrap())).unwrap();
    let mut lines = text.lines().map(|line| line.split('\t').map(str::to_string));
    let header: Vec<String> = lines.next().unwrap().collect();
    lines.map(|cells| header.iter().cloned().zip(cells).collect()).collect()
}

/// Decodes `\xNN`.
fn unescape(text: &str) -> Vec<u8> {
    let mut parts = text.split("\\x");
    let mut out = parts.next().unwrap().as_bytes().to_vec();
    for part in parts {
        out.push(u8::from_str_radix(&part[..2], 16).unwrap());
        out.extend_from_slice(&part.as_bytes()[2..]);
    }
    out
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

fn hash_file(path: &Path) -> String {
    let (mut file, mut hash, mut buffer) = (fs::File::open(path).unwrap(), Sha256::new(), vec![0; 1 << 20]);
    loop {
        match file.read(&mut buffer).unwrap() {
            0 => return hash.finalize().iter().map(|b| format!("{b:02x}")).collect(),
            len => hash.update(&buffer[..len]),
        }
    }
}

/// Names of extended attributes with the length and hash of each, in the manifests' format.
fn xattrs(path: &Path) -> BTreeSet<String> {
    let mut names = vec![0; 1 << 16];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
    let names = names[..len].split(|b| *b == 0).filter(|name| !name.is_empty());
    names
        .map(|name| {
            let mut value = vec![0; 1 << 16];
            let len = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
            let value = &value[..len];
            format!("{}={}:{}", String::from_utf8_lossy(name), value.len(), hash(value))
        })
        .collect()
}

/// Differences between copies and manifests, counted the way `cp` counts losses.
#[derive(Debug, Default, PartialEq, Eq)]
struct Differences {
    times: u64,
    xattrs: u64,
    /// Differences that must never occur, described.
    wrong: Vec<String>,
}

impl Differences {
    /// Compares one file with its row.
    fn compare(&mut self, path: &Path, row: &Row, root: bool) {
        let Ok(found) = fs::symlink_metadata(path) else {
            // Only root can create device nodes.
            if root || !matches!(&row["type"][..], "b" | "c") {
                self.wrong.push(format!("{}: missing", row["path"]));
            }
            return;
        };
        let kind = found.file_type();
        let is_device = kind.is_block_device() || kind.is_char_device();
        let mut check = |column: &str, ours: String| {
            if row[column] != ours {
                self.wrong.push(format!("{} {column}: {ours}, not {}", row["path"], row[column]));
            }
        };
        if root {
            check("uid", found.uid().to_string());
            check("gid", found.gid().to_string());
            check("mode", format!("{:04o}", found.mode() & 0o7777));
            let shown = IFlags::IMMUTABLE | IFlags::APPEND | IFlags::NODUMP;
            if let Some(flags) = flags(path).filter(|_| row["flags"] != "-") {
                let wanted = u32::from_str_radix(row["flags"].trim_start_matches("0x"), 16).unwrap();
                let wanted = IFlags::from_bits_retain(wanted) & shown;
                assert_eq!(flags & shown, wanted, "{}", row["path"]);
            }
        }
        if !kind.is_dir() {
            check("nlink", found.nlink().to_string());
            check("size", found.size().to_string());
        }
        if kind.is_file() && !row["sha256"].starts_with("extents") {
            let content = row["sha256"].rsplit('|').next().unwrap();
            let ours = hash_file(path);
            if ours != content {
                self.wrong.push(format!("{}: content {ours}, not {content}", row["path"]));
            }
        }
        if kind.is_symlink()
            && fs::read_link(path).unwrap().as_os_str().as_bytes() != unescape(&row["target"])
        {
            self.wrong.push(format!("{}: target", row["path"]));
        }
        if is_device {
            let (major, minor) = (rustix::fs::major(found.rdev()), rustix::fs::minor(found.rdev()));
            assert_eq!(row["rdev"], format!("{major}:{minor}"), "{}", row["path"]);
        }
    }

    /// Counts the attributes of a file that the local file system can't store.
    fn count_lost(&mut self, path: &Path, row: &Row, replayed: bool) {
        let Ok(found) = fs::symlink_metadata(path) else { return };
        let seconds: i64 = row["mtime"].split('.').next().unwrap().parse().unwrap();
        let of_clock = replayed && seconds >= REPLAYED_AT && found.mtime() > REPLAYED_AT;
        if !of_clock && row["mtime"] != format!("{}.{:09}", found.mtime(), found.mtime_nsec()) {
            self.times += 1;
        }
        let ours = xattrs(path);
        let theirs = row["xattrs"].split(',').filter(|x| *x != "-");
        let lost = theirs.filter(|x| !ours.contains(&String::from_utf8_lossy(&unescape(x))[..]));
        self.xattrs += lost.count() as u64;
    }
}

/// Copies a dataset out and compares everything with the manifest; `options` are passed to `cp`.
fn copy_and_compare(pool: &Golden, dataset: &str, status: i32, options: &[&str]) {
    let (scratch, root) = (Scratch::new(), is_root());
    let (source, copy) = (format!("{dataset}:/"), scratch.text("copy"));
    let arguments = [&["cp"], options, &["-r", "--json", &source, &copy]].concat();
    let output = expect(pool, status, &arguments);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let lost = |words: &str| said["lost"][words].as_u64().unwrap_or(0);

    let (mut differences, mut links) = (Differences::default(), BTreeMap::new());
    let rows = manifest(pool, dataset);
    for row in &rows {
        let path = match &row["path"][..] {
            "." => scratch.path("copy"),
            path => scratch.path("copy").join(OsStr::from_bytes(&unescape(path))),
        };
        differences.compare(&path, row, root);
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        match links.insert(row["ino"].clone(), found.ino()) {
            Some(other) => assert_eq!(other, found.ino(), "{}: no hard link", row["path"]),
            None => differences.count_lost(&path, row, options.contains(&"--replay")),
        }
    }
    assert_eq!(differences.wrong, Vec::<String>::new(), "{dataset}");
    if root {
        assert_eq!(tree(&scratch.path("copy")).len(), rows.len(), "{dataset}: nothing else was made");
        assert_eq!(lost("times"), differences.times, "{dataset}: {said}");
        assert_eq!(lost("extended attributes"), differences.xattrs, "{dataset}: {said}");
    }
    assert_eq!(lost("hard links, now copies"), 0, "{dataset}");
}

#[test]
fn copies_are_what_the_module_saw() {
    let pool = golden("single");
    for dataset in ["single", "single/data@one", "single/data"] {
        copy_and_compare(&pool, dataset, 0, &[]);
    }
    let pool = golden("tree");
    for dataset in ["meta", "names", "special", "xattr-sa-legacy", "xattr-dir-auto", "dn16k", "v1", "norm-ci"]
    {
        copy_and_compare(&pool, &format!("gtree/{dataset}@s"), 0, &[]);
    }
}

#[test]
fn copies_have_the_intent_log_applied() {
    let pool = golden("unclean-zil");
    // The ACL of `a` contradicts its mode and can't be preserved.
    for (dataset, status) in [("a", 1), ("always", 0), ("b", 0), ("c", 0), ("thr", 0)] {
        copy_and_compare(&pool, &format!("gunczil/{dataset}"), status, &["--replay"]);
    }
    let paths = found(&pool, &["--replay"], "gunczil/a");
    assert_eq!(paths, listed(&pool, "gunczil/a"));
    assert_ne!(paths, found(&pool, &[], "gunczil/a"), "without --replay it is as it was");
}

#[test]
fn damage_is_left_out_or_zeros_and_is_said() {
    let pool = golden("damaged");
    let (scratch, dataset) = (Scratch::new(), "gdamaged/raw@s");
    let hurt: Vec<Row> =
        manifest(&pool, dataset).into_iter().filter(|row| row["sha256"].starts_with("EIO")).collect();
    assert!(!hurt.is_empty());
    let output = expect(&pool, 3, &["cp", "-r", &format!("{dataset}:/"), &scratch.text("whole")]);
    let said = String::from_utf8(output.stderr).unwrap();
    for row in &hurt {
        assert!(said.contains(&format!("/{}: not copied", row["path"])), "{said}");
        assert!(!scratch.path("whole").join(&row["path"]).exists());
    }

    copy_and_compare(&pool, dataset, 3, &["--partial"]);
    let output = expect(&pool, 3, &["cp", "-r", "--partial", &format!("{dataset}:/"), &scratch.text("part")]);
    let said = String::from_utf8(output.stderr).unwrap();
    for row in &hurt {
        let ranges =
            row["sha256"].strip_prefix("EIO:").unwrap().split('|').next().unwrap().replace(';', ", ");
        assert!(said.contains(&format!("/{}: zeros at {ranges}:", row["path"])), "{said}");
    }
    let path = format!("{dataset}:/{}", hurt[0]["path"]);
    let output = expect(&pool, 3, &["cat", &path]);
    assert!((output.stdout.len() as u64) < hurt[0]["size"].parse().unwrap());
}

#[test]
fn nothing_is_overwritten_unless_told_and_links_are_not_followed() {
    let pool = golden("single");
    let scratch = Scratch::new();
    let row = manifest(&pool, "single/data").into_iter().find(|row| row["type"] == "f").unwrap();
    let (source, copy) = (format!("single/data:/{}", row["path"]), scratch.text("copy"));
    fs::write(&copy, "mine").unwrap();
    expect(&pool, 1, &["cp", &source, &copy]);
    assert_eq!(fs::read(&copy).unwrap(), b"mine");
    expect(&pool, 0, &["cp", "-f", &source, &copy]);
    assert_eq!(hash_file(Path::new(&copy)), row["sha256"]);

    // A symbolic link in place of a folder points outside the destination.
    let folder = manifest(&pool, "single/data");
    let folder = folder.iter().find(|row| row["type"] == "d" && row["path"] != ".").unwrap();
    let top = folder["path"].split('/').next().unwrap();
    fs::create_dir_all(scratch.path("into/data")).unwrap();
    fs::create_dir(scratch.path("outside")).unwrap();
    std::os::unix::fs::symlink("../../outside", scratch.path("into/data").join(top)).unwrap();
    expect(&pool, 1, &["cp", "-rf", "single/data:/", &scratch.text("into")]);
    assert_eq!(fs::read_dir(scratch.path("outside")).unwrap().count(), 0);
}

#[test]
fn volumes_come_out_whole_and_sparse() {
    let pool = golden("zvols");
    let scratch = Scratch::new();
    let mut compared = 0;
    for facts in pool.facts().datasets {
        let (Some(wanted), Some(size)) = (&facts.sha256, facts.size) else { continue };
        let copy = scratch.text(&format!("v{compared}"));
        expect(&pool, 0, &["volume", "cp", &facts.name, &copy]);
        assert_eq!(fs::metadata(&copy).unwrap().len(), size, "{}", facts.name);
        assert_eq!(hash_file(Path::new(&copy)), *wanted, "{}", facts.name);
        if compared == 0 {
            assert_eq!(hash(&expect(&pool, 0, &["volume", "cp", &facts.name, "-"]).stdout), *wanted);
            expect(&pool, 2, &["volume", "cp", &facts.name, &copy]);
            expect(&pool, 0, &["volume", "cp", "-f", &facts.name, &copy]);
        }
        compared += 1;
    }
    assert!(compared > 10, "only {compared} volumes");
    // A terabyte, almost entirely a hole.
    expect(&pool, 0, &["volume", "cp", "gzvols/huge", &scratch.text("huge")]);
    let huge = fs::metadata(scratch.path("huge")).unwrap();
    assert!(huge.len() >= 1 << 40 && huge.blocks() * 512 < 1 << 24, "{} blocks", huge.blocks());
    let pool = golden("unclean-zil");
    for facts in pool.facts().datasets.iter().filter(|facts| facts.kind == "volume") {
        let output = expect(&pool, 0, &["--replay", "volume", "cp", &facts.name, "-"]);
        assert_eq!(hash(&output.stdout), *facts.sha256.as_ref().unwrap(), "{}", facts.name);
    }
}

/// Paths printed by `find`, relative to the dataset's root.
fn found(pool: &Golden, options: &[&str], dataset: &str) -> BTreeSet<Vec<u8>> {
    let output = expect(pool, 0, &[options, &["find", "-0", dataset]].concat());
    let prefix = format!("{dataset}:/");
    let paths = output.stdout.split(|b| *b == 0).filter(|path| !path.is_empty());
    paths.map(|path| path.strip_prefix(prefix.as_bytes()).unwrap().to_vec()).collect()
}

/// Paths of a manifest.
fn listed(pool: &Golden, dataset: &str) -> BTreeSet<Vec<u8>> {
    let path = |row: &Row| if row["path"] == "." { Vec::new() } else { unescape(&row["path"]) };
    manifest(pool, dataset).iter().map(path).collect()
}

#[test]
fn find_and_du_agree_with_the_manifest() {
    let pool = golden("tree");
    for dataset in ["gtree/names", "gtree/dirs@s", "gtree/special"] {
        assert_eq!(found(&pool, &[], dataset), listed(&pool, dataset), "{dataset}");
        let rows = manifest(&pool, dataset);
        // Each file counts once, however many names it has.
        let contents: BTreeMap<&String, u64> = rows
            .iter()
            .filter(|row| matches!(&row["type"][..], "f" | "l"))
            .map(|row| (&row["ino"], row["size"].parse().unwrap()))
            .collect();
        let output = expect(&pool, 0, &["du", "-s", "-b", "--apparent", dataset]);
        let total = contents.values().sum::<u64>();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{total}\t{dataset}:/\n"));
        let output = expect(&pool, 0, &["find", "--type", "d", "--size", "+3", dataset]);
        let large = |row: &&Row| row["type"] == "d" && row["size"].parse::<u64>().unwrap() >= 3;
        let lines = String::from_utf8(output.stdout).unwrap().lines().count();
        assert_eq!(lines, rows.iter().filter(large).count(), "{dataset}");
    }
    // A folder's total is the sum of its contents' totals and its own size.
    let output = expect(&pool, 0, &["--json", "du", "--depth", "1", "gtree/dirs@s"]);
    let totals: Value = serde_json::from_slice(&output.stdout).unwrap();
    let bytes: Vec<u64> = totals.as_array().unwrap().iter().map(|t| t["bytes"].as_u64().unwrap()).collect();
    let (all, within) = bytes.split_last().unwrap();
    assert!(within.iter().sum::<u64>() < *all && within.len() > 1, "{totals}");
}

#[test]
fn ls_and_stat_show_what_is_there() {
    let pool = golden("tree");
    let output = expect(&pool, 0, &["--json", "ls", "-aR", "gtree/special"]);
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut sizes: BTreeMap<String, (String, String)> = BTreeMap::new();
    for file in shown.as_array().unwrap() {
        let path = file["path"].as_str().unwrap().strip_prefix("gtree/special:/").unwrap().to_string();
        sizes.insert(path, (file["size"].to_string(), file["mtime"].as_str().unwrap().to_string()));
    }
    let rows = manifest(&pool, "gtree/special");
    for row in rows.iter().filter(|row| row["path"] != "." && !row["path"].contains('\\')) {
        assert_eq!(
            sizes.get(&row["path"]),
            Some(&(row["size"].clone(), row["mtime"].clone())),
            "{}",
            row["path"]
        );
    }
    assert_eq!(sizes.len(), rows.len() - 1);

    let output = expect(&pool, 0, &["ls", "-l", "gtree/special:/fifo", "gtree/special:/bigdev"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("p---rws---") && text.contains("511, 1048575"), "{text}");
    expect(&pool, 1, &["ls", "gtree/special:/there-is-no-such-file"]);
    expect(&pool, 2, &["ls", "/no/dataset"]);

    let pool = golden("single");
    let rows = manifest(&pool, "single/data");
    let row = rows.iter().filter(|row| row["type"] == "f").max_by_key(|row| row["size"].parse::<u64>().ok());
    let path = format!("single/data:/{}", row.unwrap()["path"]);
    let output = expect(&pool, 0, &["--json", "stat", "--blocks", &path]);
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let blocks = shown[0]["blocks"].as_array().unwrap();
    let data: u64 = blocks.iter().filter(|b| b["level"] == 0).map(|b| b["lsize"].as_u64().unwrap()).sum();
    assert!(data > 0 && data.is_multiple_of(shown[0]["block_size"].as_u64().unwrap()), "{shown}");
    let human = String::from_utf8(expect(&pool, 0, &["stat", "--blocks", &path]).stdout).unwrap();
    assert!(human.contains("modified:") && human.contains("CHECKSUM"), "{human}");
}

#[test]
fn ls_of_all_folders_is_written_as_it_goes_and_in_order() {
    let pool = golden("tree");
    let target = "gtree/dirs@s:/";
    let text = String::from_utf8(expect(&pool, 0, &["ls", "-Ra", "--json", target]).stdout).unwrap();
    let files: Vec<Value> = serde_json::from_str(&text).unwrap();
    // One element per line: neither side needs to hold all.
    assert_eq!(text.lines().count(), files.len() + 2);
    let listed: BTreeSet<Vec<u8>> =
        files.iter().map(|file| unescape(file["path"].as_str().unwrap())).collect();
    assert_eq!(listed.len(), files.len(), "each once");
    let below = |path: &[u8]| path.strip_prefix(target.as_bytes()).unwrap().to_vec();
    let listed: BTreeSet<Vec<u8>> = listed.iter().map(|path| below(path)).collect();
    let rows = manifest(&pool, "gtree/dirs@s");
    assert_eq!(listed, rows.iter().map(|row| unescape(&row["path"])).filter(|path| path != b".").collect());

    let text = String::from_utf8(expect(&pool, 0, &["ls", "-Ra", target]).stdout).unwrap();
    let sections: Vec<Vec<&str>> = text.split("\n\n").map(|section| section.lines().collect()).collect();
    let titles =
        sections.iter().map(|section| section[0].trim_end_matches(':').split('/').collect::<Vec<_>>());
    assert!(titles.is_sorted(), "folders come before what is below them");
    assert!(sections.iter().all(|section| section[1..].is_sorted()), "names are in order");
    assert_eq!(sections.iter().map(|section| section.len() - 1).sum::<usize>(), files.len());
}

#[test]
fn cat_writes_ranges_and_stops_when_nobody_reads() {
    let pool = golden("single");
    let rows = manifest(&pool, "single/data");
    let row = rows.iter().filter(|row| row["type"] == "f").max_by_key(|row| row["size"].parse::<u64>().ok());
    let row = row.unwrap();
    let path = format!("single/data:/{}", row["path"]);
    let whole = expect(&pool, 0, &["cat", &path]).stdout;
    assert_eq!(whole.len().to_string(), row["size"]);
    if !row["sha256"].starts_with("extents") {
        assert_eq!(hash(&whole), row["sha256"]);
    }
    let part = expect(&pool, 0, &["cat", "--offset", "1000", "--length", "4K", &path]).stdout;
    assert_eq!(part, whole[1000..5096]);
    assert_eq!(expect(&pool, 0, &["cat", "--offset", "1E", &path]).stdout, b"");
    expect(&pool, 1, &["cat", "single/data:/"]);

    let mut command = cenote(&pool, &["cat", &path, &path, &path]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), &said[..]), (Some(0), ""));
}
