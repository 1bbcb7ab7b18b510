//! Every command with standard output and error full, closed or without a reader: it ends by the program's
//! own rules, never by a panic or a signal. Commands are taken from the help, so new ones are included.
//!
//! Locking: threads take the next command from one atomic counter and share nothing else.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const DISK_BYTES: u64 = 64 << 20;

/// The fate of writes to a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Kept,
    /// No space: `/dev/full`.
    Full,
    /// Closed as by `>&-`, which the Rust runtime replaces by `/dev/null`.
    Closed,
    /// A pipe whose reader has gone.
    Broken,
}

/// The combinations of standard output and error tried.
const WAYS: [(Stream, Stream); 4] = [
    (Stream::Kept, Stream::Full),
    (Stream::Full, Stream::Kept),
    (Stream::Closed, Stream::Closed),
    (Stream::Broken, Stream::Broken),
];

/// Arguments with which a verb prints something; verbs not listed are tried with a pool and with a dataset,
/// and all verbs without arguments and with `--help`.
const WORDS: &[(&str, &[&str])] = &[
    ("zpool create", &["-n new FOLDER/new", "new FOLDER/new", "tank FOLDER/new"]),
    ("zpool labelclear", &["-f FOLDER/disk", "FOLDER/new"]),
    ("zpool add", &["-n tank FOLDER/new"]),
    ("zpool attach", &["tank FOLDER/disk FOLDER/new"]),
    ("zpool set", &["comment=x tank", "nonsense=1 tank"]),
    ("zpool upgrade", &["-v", "-a"]),
    ("zpool get", &["all tank"]),
    ("zpool import", &["tank other", "-F tank"]),
    ("zfs create", &["tank/new", "-nP -V 1M tank/volume", "-V 1M -b 512 tank/volume"]),
    ("zfs destroy", &["-rv tank/home", "tank/home", "-nv tank/home@a"]),
    ("zfs snapshot", &["-r tank@new", "tank/none@new"]),
    ("zfs rollback", &["tank/home@a"]),
    ("zfs clone", &["tank/home@a tank/clone"]),
    ("zfs rename", &["tank/home tank/house"]),
    ("zfs set", &["atime=off tank/home", "nonsense=1 tank/home"]),
    ("zfs get", &["all tank/home"]),
    ("zfs list", &["-t all -r tank", "-t volume", "tank/none"]),
    ("zfs hold", &["keep tank/home@a"]),
    ("zfs diff", &["tank/home@a"]),
    ("ls", &["-lR tank/home:/", "tank/home:/none"]),
    ("stat", &["--blocks tank/home:/file"]),
    ("cat", &["tank/home:/file", "tank/home:/folder"]),
    (
        "cp",
        &["-r tank/home:/ FOLDER/copy", "--json FOLDER/file tank/home:/", "tank/home:/folder FOLDER/copy"],
    ),
    ("mkdir", &["tank/home:/new", "tank/home:/folder"]),
    ("rm", &["-r tank/home:/folder", "tank/home:/none"]),
    ("find", &["tank/home:/", "-l tank/home:/"]),
    ("du", &["tank/home:/"]),
    (
        "scan",
        &["-r tank", "--format summary tank", "--format parquet tank/home", "--format manifest tank/home"],
    ),
    ("verify", &["--json tank"]),
    ("rescue", &["tank FOLDER/saved", "-n tank"]),
    ("dump object", &["tank/home 1", "tank/home 1 --json"]),
    ("dump label", &["-u FOLDER/disk"]),
    ("lab run", &["pools", "pools --size 1K FOLDER/none"]),
    ("lab arc", &["--inodes 100 --test 1 --policy lru", "--policy none"]),
    ("lab cache", &["--operations 10 --case 10", "--case 14"]),
    ("lab advise", &["--rules"]),
    ("completions", &["bash"]),
    ("man", &["FOLDER/pages", "FOLDER/file"]),
    ("serve", &["--socket FOLDER/file/socket tank"]),
];
/// Run without arguments until told to stop, or for minutes.
const ENDLESS: [&str; 3] = ["serve", "lab arc", "lab cache"];

/// The non-zero bytes of a disk, used to recreate it for each run.
struct Image(Vec<(u64, Vec<u8>)>);

impl Image {
    fn of(path: &Path) -> Image {
        let mut file = File::open(path).unwrap();
        let mut pieces = Vec::new();
        for at in (0..DISK_BYTES).step_by(64 << 10) {
            let mut piece = vec![0; 64 << 10];
            file.seek(SeekFrom::Start(at)).unwrap();
            file.read_exact(&mut piece).unwrap();
            if piece.iter().any(|&byte| byte != 0) {
                pieces.push((at, piece));
            }
        }
        Image(pieces)
    }

    /// A folder with the disk, an empty one, and a file to be copied.
    fn folder(&self) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in ["disk", "new"] {
            File::create(folder.path().join(name)).unwrap().set_len(DISK_BYTES).unwrap();
        }
        let disk = File::options().write(true).open(folder.path().join("disk")).unwrap();
        self.0.iter().for_each(|(at, piece)| disk.write_all_at(piece, *at).unwrap());
        std::fs::write(folder.path().join("file"), "what is copied\n").unwrap();
        folder
    }
}

/// A pool with a folder, files, a snapshot and a volume.
fn image() -> Image {
    let folder = Image(Vec::new()).folder();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(at("tree/folder")).unwrap();
    std::fs::write(at("tree/file"), vec![b'x'; 300_000]).unwrap();
    std::fs::write(at("tree/folder/inner"), "inner").unwrap();
    for words in [
        "zpool create tank FOLDER/disk",
        "zfs create tank/home",
        "cp -r FOLDER/tree/. tank/home:/",
        "zfs snapshot tank/home@a",
        "zfs create -V 1M tank/volume",
        "mkdir tank/home:/later",
    ] {
        let output = run(&folder, words, (Stream::Kept, Stream::Kept));
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Image::of(&at("disk"))
}

fn run(folder: &tempfile::TempDir, words: &str, (out, err): (Stream, Stream)) -> Output {
    let path = folder.path().to_str().unwrap();
    let closed = |stream: Stream, how: &'static str| if stream == Stream::Closed { how } else { "" };
    let shell = format!("exec \"$@\" {} {}", closed(out, ">&-"), closed(err, "2>&-"));
    let mut command = Command::new("sh");
    command.args(["-c", &shell, "sh", env!("CARGO_BIN_EXE_cenote"), "--disks", path]);
    command.args(words.split(' ').map(|word| word.replace("FOLDER", path)));
    let stdio = |stream: Stream| match stream {
        Stream::Kept | Stream::Closed => Stdio::piped(),
        Stream::Full => File::options().write(true).open("/dev/full").unwrap().into(),
        Stream::Broken => std::io::pipe().unwrap().1.into(),
    };
    command.current_dir(path).stdin(Stdio::null()).stdout(stdio(out)).stderr(stdio(err)).output().unwrap()
}

/// Tries one command in all combinations, each on fresh disks; describes violations.
fn try_all(image: &Image, words: &str) -> Vec<String> {
    let usual = run(&image.folder(), words, (Stream::Kept, Stream::Kept));
    let status = usual.status.code();
    let prints = !usual.stdout.is_empty();
    let mut broken = Vec::new();
    for way in WAYS {
        let ran = run(&image.folder(), words, way);
        let message = String::from_utf8_lossy(&ran.stderr);
        let code = ran.status.code();
        let holds = code.is_some_and(|code| (0..=3).contains(&code))
            && match way.0 {
                Stream::Full if prints => code != Some(0) && message.contains("No space left"),
                Stream::Broken if prints => [Some(0), Some(1), status].contains(&code),
                _ => code == status,
            };
        if !holds {
            broken.push(format!("{words}: {way:?}: {status:?} became {:?} {message}", ran.status));
        }
    }
    broken
}

#[test]
fn streams_that_fail_never_end_a_command_against_its_rules() {
    let image = image();
    let all = crate::common::verbs::all();
    assert!(all.len() > 60, "{all:?}");
    let mut lines = vec!["--help".to_owned(), "--version".to_owned(), "frobnicate".to_owned()];
    for verb in all.iter().map(|words| words.join(" ")) {
        let more =
            WORDS.iter().find(|(of, _)| *of == verb).map_or(&["tank", "tank/home"][..], |(_, more)| more);
        lines.extend(more.iter().chain(&["--help"]).map(|more| format!("{verb} {more}")));
        if !ENDLESS.contains(&verb.as_str()) {
            lines.push(verb);
        }
    }
    let known = |verb: &str| all.iter().any(|words| words.join(" ") == verb);
    WORDS.iter().for_each(|(verb, _)| assert!(known(verb), "{verb} is no command"));
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        let mut broken = Vec::new();
        while let Some(words) = lines.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
            broken.extend(try_all(&image, words));
        }
        broken
    };
    let broken: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
