//! `cenote stream`: as zstream does it, on all streams of OpenZFS here.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use cenote_testkit::{decompress, needs, shared_path, unpack_bzip2};

/// Streams whose defects each tool shows in its own way.
const DAMAGED: [&str; 3] = ["truncated-inc-I", "corrupt-full", "resume-first-part"];

fn cenote(words: &str, input: Option<&Path>) -> Output {
    run(env!("CARGO_BIN_EXE_cenote"), &format!("stream {words}"), input)
}

fn run(program: &str, words: &str, input: Option<&Path>) -> Output {
    let mut command = Command::new(program);
    let input = input.map_or(Stdio::null(), |path| File::open(path).unwrap().into());
    command.args(words.split(' ')).env("CENOTE_SOCKET", "").stdin(input).output().unwrap()
}

/// Runs zstream, if installed.
fn zstream(words: &str, input: Option<&Path>) -> Option<Output> {
    if Command::new("zstream").stdin(Stdio::null()).output().is_ok() {
        return Some(run("zstream", words, input));
    }
    assert!(std::env::var_os("CENOTE_REQUIRE_ZDB").is_none(), "zstream is missing");
    println!("zstream is not installed: not compared");
    None
}

#[track_caller]
fn out(output: &Output) -> &[u8] {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    &output.stdout
}

/// All golden streams, unpacked.
fn golden(folder: &Path) -> Vec<(String, PathBuf)> {
    let mut streams = Vec::new();
    for entry in std::fs::read_dir(shared_path("streams")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let Some(name) = name.strip_suffix(".zs.zst").map(str::to_owned) else { continue };
        let unpacked = folder.join(format!("{name}.zs"));
        std::fs::write(&unpacked, decompress(&std::fs::read(&path).unwrap())).unwrap();
        streams.push((name, unpacked));
    }
    streams.sort();
    assert!(streams.len() > 30, "{} streams", streams.len());
    streams
}

fn whole(folder: &Path) -> Vec<(String, PathBuf)> {
    let mut streams = golden(folder);
    streams.retain(|(name, _)| !DAMAGED.contains(&&**name));
    streams
}

fn fixture(folder: &Path, name: &str) -> PathBuf {
    let unpacked = folder.join(name.replace('/', "-"));
    unpack_bzip2(&shared_path(&format!("fixtures/{name}.bz2")), &unpacked);
    unpacked
}

#[track_caller]
fn same(name: &str, ours: &[u8], theirs: &[u8]) {
    let at = ours.iter().zip(theirs).position(|(a, b)| a != b);
    let shown = |bytes: &[u8], at: usize| {
        let from = at.saturating_sub(80);
        String::from_utf8_lossy(&bytes[from..bytes.len().min(at + 80)]).into_owned()
    };
    if let Some(at) = at {
        panic!("{name} differs at byte {at}:\n{}\n---\n{}", shown(ours, at), shown(theirs, at));
    }
    assert_eq!(ours.len(), theirs.len(), "{name}");
}

#[needs("streams/streams.json")]
#[test]
fn dumps_are_those_of_zstream() {
    let folder = tempfile::tempdir().unwrap();
    for (name, path) in golden(folder.path()) {
        let flags: &[&str] =
            if name.starts_with("xa") { &["", "-v ", "-vv ", "-vC ", "-d "] } else { &["", "-v "] };
        for flags in flags {
            let words = format!("dump {flags}{}", path.display());
            let Some(theirs) = zstream(&words, None) else { return };
            let ours = cenote(&words, None);
            same(&format!("{name} {flags}"), &ours.stdout, &theirs.stdout);
            assert_eq!(ours.status.success(), !DAMAGED.contains(&&*name), "{name}");
        }
    }
}

#[needs("streams/streams.json")]
#[test]
fn a_dump_reads_standard_input_and_ends_with_the_defect() {
    let folder = tempfile::tempdir().unwrap();
    let streams = golden(folder.path());
    let path = |name: &str| &streams.iter().find(|(other, _)| other == name).unwrap().1;
    let (named, piped) =
        (cenote(&format!("dump -v {}", path("xa").display()), None), cenote("dump -v", Some(path("xa"))));
    same("xa", out(&piped), out(&named));
    for (name, why) in [("truncated-inc-I", "incomplete stream"), ("corrupt-full", "checksum mismatch")] {
        let ended = cenote("dump", Some(path(name)));
        assert_eq!(ended.status.code(), Some(1), "{name}");
        assert!(String::from_utf8_lossy(&ended.stderr).contains(why), "{name}");
        assert!(String::from_utf8_lossy(&ended.stdout).contains("SUMMARY:"), "{name}");
    }
    let json = cenote("dump --json", Some(path("xa")));
    let lines: Vec<String> = serde_json::from_slice(out(&json)).unwrap();
    assert_eq!(lines[0], "BEGIN record");
}

/// OpenZFS's own: both byte orders, and what `zstream dump -v` of 2.3 shows of them.
#[needs("fixtures/zstream")]
#[test]
fn dumps_of_both_byte_orders_are_as_openzfs_wants_them() {
    let folder = tempfile::tempdir().unwrap();
    for (stem, name) in [
        ("leadtbn", "little-endian-all-drr-types-base-NATIVE"),
        ("leadtbx", "little-endian-all-drr-types-base-XDR"),
        ("leadtin", "little-endian-all-drr-types-incr-NATIVE"),
        ("leadtix", "little-endian-all-drr-types-incr-XDR"),
        ("lelp", "little-endian-long-payloads"),
        ("beadtbn", "big-endian-all-drr-types-base-NATIVE"),
        ("beadtbx", "big-endian-all-drr-types-base-XDR"),
        ("beadtin", "big-endian-all-drr-types-incr-NATIVE"),
        ("beadtix", "big-endian-all-drr-types-incr-XDR"),
        ("belp", "big-endian-long-payloads"),
    ] {
        let stream = fixture(folder.path(), &format!("zstream/{name}.zsend"));
        let wanted = std::fs::read(fixture(folder.path(), &format!("zstream/{stem}-old.dump"))).unwrap();
        same(name, out(&cenote("dump -v", Some(&stream))), &wanted);
    }
}

#[needs("streams/streams.json")]
#[test]
fn streams_that_are_not_changed_come_out_as_from_zstream() {
    let folder = tempfile::tempdir().unwrap();
    for (name, path) in whole(folder.path()) {
        for words in ["decompress", "recompress off"] {
            let Some(theirs) = zstream(words, Some(&path)) else { return };
            same(&format!("{name} {words}"), out(&cenote(words, Some(&path))), out(&theirs));
        }
        let words = format!("redup {}", path.display());
        let Some(theirs) = zstream(&words, None) else { return };
        same(&format!("{name} redup"), out(&cenote(&words, None)), out(&theirs));
        // Without a record to drop, that is the same as decompressing none.
        let dropped = cenote("drop-record 1,77", Some(&path));
        same(&format!("{name} drop-record"), out(&dropped), out(&theirs));
    }
}

/// Compressors differ between libraries: the sizes may, the content must not.
#[needs("streams/streams.json")]
#[test]
fn recompressed_streams_have_the_same_content() {
    let folder = tempfile::tempdir().unwrap();
    let again = folder.path().join("again");
    for (name, path) in
        whole(folder.path()).iter().filter(|(name, _)| ["comp-c", "xa", "enc-w"].contains(&&**name))
    {
        let plain = cenote("recompress off", Some(path));
        for words in ["lzjb", "zle", "gzip-9", "lz4", "zstd", "-l 9 zstd"] {
            let words = &format!("recompress {words}");
            std::fs::write(&again, out(&cenote(words, Some(path)))).unwrap();
            same(&format!("{name} {words}"), out(&cenote("recompress off", Some(&again))), out(&plain));
            let verified = cenote("verify", Some(&again));
            assert!(verified.status.success(), "{name} {words}: {verified:?}");
        }
    }
    let refused = cenote("recompress brotli", Some(&again));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("Invalid compression type brotli."));
}

#[needs("streams/streams.json", "fixtures/zstream")]
#[test]
fn named_records_are_decompressed_and_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let path = fixture(folder.path(), "zstream/decompress.zsend");
    for words in ["decompress 2,0,zstd 3,0,zstd 128,131072,zstd", "decompress 2,0,lz4 3,0,lz4"] {
        let Some(theirs) = zstream(words, Some(&path)) else { return };
        same(words, out(&cenote(words, Some(&path))), out(&theirs));
    }
    let as_recorded = cenote("decompress -v 2,0 3,0 128,131072", Some(&path));
    let named = cenote("decompress 2,0,zstd 3,0,zstd 128,131072,zstd", Some(&path));
    same("decompress", out(&as_recorded), out(&named));
    let said = String::from_utf8_lossy(&as_recorded.stderr);
    assert_eq!(said.matches("successfully decompressed ino").count(), 3, "{said}");
    let dropped = folder.path().join("dropped");
    let output = cenote("drop_record -v 2,0", Some(&path));
    assert!(String::from_utf8_lossy(&output.stderr).contains("dropping WRITE record for object 2 offset 0"));
    std::fs::write(&dropped, out(&output)).unwrap();
    let dump = |path: &Path| String::from_utf8(cenote("dump -v", Some(path)).stdout).unwrap();
    assert!(dump(&path).contains("\nWRITE object = 2 ") && !dump(&dropped).contains("\nWRITE object = 2 "));
    for words in ["decompress 2", "decompress x,0", "decompress 2,0,brotli", "drop-record 2,0,zstd"] {
        assert!(!cenote(words, Some(&path)).status.success(), "{words}");
    }
}

#[needs("fixtures/rsend")]
#[test]
fn deduplicated_streams_become_whole_as_with_zstream() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["rsend/dedup.zsend", "rsend/dedup_encrypted_zvol.zsend"] {
        let path = fixture(folder.path(), name);
        let words = format!("redup -v {}", path.display());
        let Some(theirs) = zstream(&words, None) else { return };
        let ours = cenote(&words, None);
        same(name, out(&ours), out(&theirs));
        assert!(String::from_utf8_lossy(&ours.stderr).contains("total records, including"));
        let refused = cenote("decompress", Some(&path));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("Deduplicated streams are not supported"));
        let piped = cenote("redup -", Some(Path::new("/dev/null")));
        assert!(String::from_utf8_lossy(&piped.stderr).contains("must be in a file"));
    }
}

#[needs("streams/streams.json")]
#[test]
fn tokens_show_what_they_hold() {
    let facts = std::fs::read(shared_path("streams/streams.json")).unwrap();
    let facts: serde_json::Value = serde_json::from_slice(&facts).unwrap();
    let token = facts["resume_token"].as_str().unwrap();
    let shown = cenote(&format!("token {token}"), None);
    let wanted = "     object: 3\n     offset: 0\n     bytes: 3149712\n     toguid: 1681754225128246012\n\
                  \x20    toname: 'gsrc/big@1'\n     largeblockok\n";
    assert_eq!(String::from_utf8_lossy(out(&shown)), wanted);
    let bad = cenote("token 1-1162e8285b-100789c6360", None);
    assert_eq!(bad.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&bad.stderr)
            .contains("Unable to parse resume token: resume token is corrupt")
    );
}

#[needs("streams/streams.json")]
#[test]
fn sound_streams_verify_and_damaged_ones_do_not() {
    let folder = tempfile::tempdir().unwrap();
    for (name, path) in golden(folder.path()) {
        let verified = cenote("verify", Some(&path));
        let said = String::from_utf8_lossy(&verified.stdout);
        match DAMAGED.contains(&&*name) {
            // A stream that the module does not receive as it was.
            false if name == "xa-ec" => assert!(said.contains("embedded spill block"), "{said}"),
            false => {
                assert!(verified.status.success() && said.ends_with(" 0 wrong, 0 odd\n"), "{name}: {said}")
            }
            true => assert_eq!(verified.status.code(), Some(3), "{name}: {said}"),
        }
    }
    let json = cenote("verify --json", Some(&folder.path().join("xa.zs")));
    let all: Vec<serde_json::Value> = serde_json::from_slice(out(&json)).unwrap();
    assert_eq!(all.last().unwrap()["wrong"], 0);
}

#[needs("streams/streams.json")]
#[test]
fn files_in_a_stream_are_listed_and_read() {
    let folder = tempfile::tempdir().unwrap();
    golden(folder.path());
    let stream = folder.path().join("full.zs");
    let listed = cenote(&format!("ls -R {}", stream.display()), None);
    let names = String::from_utf8_lossy(out(&listed)).into_owned();
    assert!(names.lines().any(|line| line == "t/big"), "{names}");
    let long = cenote(&format!("ls -l {} /t", stream.display()), None);
    assert!(String::from_utf8_lossy(out(&long)).contains(" big\n"), "{long:?}");
    let json = cenote(&format!("ls -R --json {}", stream.display()), None);
    let files: Vec<serde_json::Value> = serde_json::from_slice(out(&json)).unwrap();
    // `cenote` splits its words at spaces.
    let is_word = |file: &serde_json::Value| !file["path"].as_str().unwrap().contains(char::is_whitespace);
    let is_long = |file: &serde_json::Value| file["type"] == "f" && file["size"].as_u64() > Some(1000);
    let file = files.iter().find(|file| is_long(file) && is_word(file)).unwrap();
    let read = cenote(&format!("cat {} {}", stream.display(), file["path"].as_str().unwrap()), None);
    assert_eq!(out(&read).len() as u64, file["size"].as_u64().unwrap());
    let folder_read = cenote(&format!("cat {} /t", stream.display()), None);
    assert!(String::from_utf8_lossy(&folder_read.stderr).contains("is a folder"));
    let missing = cenote(&format!("ls {} /none", stream.display()), None);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("no such file"));
}

/// The image has what the volume has after a receive of the same streams.
#[needs("streams/streams.json")]
#[test]
fn volumes_become_images() {
    let folder = tempfile::tempdir().unwrap();
    golden(folder.path());
    let disks = crate::common::disks::Disks::new(&[256]);
    disks.cenote("zpool create tank a", &[]);
    let image = folder.path().join("image");
    let mut guid = "0".to_owned();
    for (name, source) in [("vol", 0), ("vol-i", 1)] {
        let stream = folder.path().join(format!("{name}.zs"));
        let mut receive = Command::new(env!("CARGO_BIN_EXE_cenote"));
        receive.args(["zfs", "receive", "-F", "tank/vol", "--disks"]).arg(disks.path());
        out(&receive.stdin(File::open(&stream).unwrap()).output().unwrap());
        let given = if source == 0 { String::new() } else { format!("-g {guid} ") };
        let applied = cenote(&format!("raw {given}{}", image.display()), Some(&stream));
        guid = String::from_utf8_lossy(out(&applied)).trim().to_owned();
        let copy = folder.path().join(format!("{name}.copy"));
        disks.cenote(&format!("volume cp tank/vol {}", copy.display()), &[]);
        same(name, &std::fs::read(&image).unwrap(), &std::fs::read(&copy).unwrap());
        let snapshots = disks.cenote("zfs list -Hp -t snapshot -o guid -s creation tank/vol", &[]);
        assert_eq!(snapshots.lines().last(), Some(&*guid), "{name}");
    }
    let wrong = cenote(&format!("raw -g 7 {}", image.display()), Some(&folder.path().join("vol-i.zs")));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("wrong fromguid"), "{wrong:?}");
    let other = cenote(&format!("raw {}", image.display()), Some(&folder.path().join("xa.zs")));
    assert!(String::from_utf8_lossy(&other.stderr).contains("is no volume"), "{other:?}");
}
