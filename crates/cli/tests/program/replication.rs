//! `zfs send | zfs receive` from pool to pool, without a daemon.

use std::io::{Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use cenote_testkit::{decompress, needs, shared_path};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::disks::{Disks, noise};

const FILE_BYTES: usize = 3_000_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// `cenote WORDS --disks FOLDER`, to be piped.
fn command(disks: &Disks, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
    command.current_dir(disks.path()).args(words.split(' ')).arg("--disks").arg(disks.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs `zfs send WORDS | zfs receive WORDS`.
fn pipe(from: &Disks, send: &str, to: &Disks, receive: &str) -> (Output, Output) {
    let mut sends = command(from, &format!("zfs send {send}")).spawn().unwrap();
    let stream = sends.stdout.take().unwrap();
    let received = command(to, &format!("zfs receive {receive}")).stdin(stream).output().unwrap();
    (sends.wait_with_output().unwrap(), received)
}

/// The same, which must succeed; returns the output.
#[track_caller]
fn piped(from: &Disks, send: &str, to: &Disks, receive: &str) -> String {
    let (sent, received) = pipe(from, send, to, receive);
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(received.status.success(), "receive {receive}: {}", said(&received));
    assert!(sent.status.success(), "send {send}: {}", said(&sent));
    String::from_utf8(received.stdout).unwrap()
}

fn put(disks: &Disks, dataset: &str, seed: u64) {
    let file = disks.path().join(format!("file{seed}"));
    std::fs::write(&file, noise(seed, FILE_BYTES)).unwrap();
    disks.cenote(&format!("cp {} {dataset}:/", file.display()), &[]);
    std::fs::remove_file(file).unwrap();
}

#[track_caller]
fn assert_has(disks: &Disks, dataset: &str, seeds: std::ops::Range<u64>) {
    for seed in seeds.clone() {
        let read = disks.run(&format!("cat {dataset}:/file{seed}"), &[]);
        assert!(read.stdout == noise(seed, FILE_BYTES), "{}", String::from_utf8_lossy(&read.stderr));
    }
    disks.fails(&format!("cat {dataset}:/file{}", seeds.end), "no such file");
}

fn get(disks: &Disks, property: &str, dataset: &str) -> String {
    disks.cenote(&format!("zfs get -Hp -o value {property} {dataset}"), &[]).trim().to_owned()
}

/// Pools `tank`, with a file in `tank/home` at each of the snapshots 1 to 4, and `back`.
fn pools() -> (Disks, Disks) {
    let (from, to) = (Disks::new(&[256]), Disks::new(&[256]));
    from.cenote("zpool create tank a", &[]);
    from.cenote("zfs create tank/home", &[]);
    for seed in 1..=4 {
        put(&from, "tank/home", seed);
        from.cenote(&format!("zfs snapshot tank/home@{seed}"), &[]);
    }
    to.cenote("zpool create back a", &[]);
    (from, to)
}

fn snapshots(disks: &Disks, dataset: &str) -> String {
    disks.cenote(&format!("zfs list -H -t snapshot -o name {dataset}"), &[])
}

#[test]
fn snapshots_and_their_increments_arrive() {
    let (from, to) = pools();
    let said = piped(&from, "tank/home@1", &to, "-v back/home");
    assert!(said.starts_with("receiving full stream of tank/home@1 into back/home@1\nreceived "), "{said}");
    assert!(said.contains("M stream in ") && said.ends_with("/sec)\n"), "{said}");
    assert_has(&to, "back/home", 1..2);
    piped(&from, "-i @1 tank/home@2", &to, "back/home");
    assert_has(&to, "back/home", 1..3);
    let said = piped(&from, "-I @2 tank/home@4", &to, "-v back/home");
    assert_eq!(said.matches("receiving incremental stream of").count(), 2, "{said}");
    assert_has(&to, "back/home", 1..5);
    assert_eq!(snapshots(&to, "back/home"), "back/home@1\nback/home@2\nback/home@3\nback/home@4\n");
    for snapshot in 1..=4 {
        let [sent, received] = [(&from, "tank"), (&to, "back")]
            .map(|(disks, pool)| get(disks, "guid,creation", &format!("{pool}/home@{snapshot}")));
        assert_eq!(sent, received);
    }
    // Existing snapshots are skipped.
    let said = piped(&from, "-I @2 tank/home@4", &to, "-v back/home");
    assert_eq!(said.matches("already exists; ignoring").count(), 2, "{said}");
    to.zdb_is_content_with("back");
    from.zdb_is_content();
}

#[test]
fn a_tree_follows_its_sender_with_clones_properties_and_names() {
    let (from, to) = pools();
    from.cenote("zfs clone tank/home@2 tank/clone", &[]);
    from.cenote("zfs set compression=gzip org.me:note=x tank/home", &[]);
    from.cenote("zfs create -V 8M tank/volume", &[]);
    from.cenote("zfs snapshot -r tank@r", &[]);
    piped(&from, "-R tank@r", &to, "back/all");
    assert_eq!(get(&to, "origin", "back/all/clone"), "back/all/home@2");
    assert_eq!(get(&to, "type", "back/all/volume"), "volume");
    let source = "zfs get -H -o value,source compression,org.me:note back/all/home";
    assert_eq!(to.cenote(source, &[]), "gzip\treceived\nx\treceived\n");
    assert_has(&to, "back/all/home", 1..5);

    from.cenote("zfs destroy -r tank/clone", &[]);
    from.cenote("zfs destroy tank/home@1", &[]);
    from.cenote("zfs rename tank/home@3 third", &[]);
    from.cenote("zfs rename tank/home tank/haus", &[]);
    put(&from, "tank/haus", 5);
    from.cenote("zfs create tank/haus/new", &[]);
    from.cenote("zfs set compression=off tank/haus", &[]);
    from.cenote("zfs snapshot -r tank@s", &[]);
    piped(&from, "-R -I @r tank@s", &to, "-F back/all");
    let names = to.cenote("zfs list -H -o name -r back/all", &[]);
    assert_eq!(names, "back/all\nback/all/haus\nback/all/haus/new\nback/all/volume\n");
    let list = "2 third 4 r s".split(' ').map(|own| format!("back/all/haus@{own}\n")).collect::<String>();
    assert_eq!(snapshots(&to, "back/all/haus"), list);
    assert_has(&to, "back/all/haus", 1..6);
    assert_eq!(to.cenote(source.replace("home", "haus").as_str(), &[]), "off\treceived\nx\treceived\n");
    to.zdb_is_content_with("back");
}

#[test]
fn properties_are_set_and_left_out_as_typed() {
    let (from, to) = pools();
    from.cenote("zfs set atime=off compression=gzip org.me:note=x tank/home", &[]);
    from.cenote("zfs create tank/home/below", &[]);
    from.cenote("zfs snapshot -r tank/home@p", &[]);
    piped(&from, "-R tank/home@p", &to, "-o compression=zle -x atime -o org.me:note=y back/home");
    let of = |dataset: &str| {
        let command = format!("zfs get -H -o value,source compression,atime,org.me:note {dataset}");
        to.cenote(&command, &[])
    };
    assert_eq!(of("back/home"), "zle\tlocal\non\tdefault\ny\tlocal\n");
    let inherited = "inherited from back/home";
    assert_eq!(of("back/home/below"), format!("zle\t{inherited}\non\tdefault\ny\t{inherited}\n"));
    // Also without properties in the stream; the names follow.
    piped(&from, "tank/home@1", &to, "-e -o atime=off back/home");
    assert_eq!(get(&to, "atime", "back/home/home"), "off");
    piped(&from, "tank/home/below@p", &to, "-d -o readonly=on back/home");
    assert_eq!(get(&to, "readonly", "back/home/home/below"), "on");
    for (words, why) in [
        ("-o nonsense=1 back/x", "invalid property 'nonsense'"),
        ("-x used back/x", "invalid property 'used'"),
        ("-o compression=off -x compression back/x", "multiple times"),
        ("-o origin=back/no@x back/x", "specified origin fs (back/no@x) does not exist"),
        ("-d back/none", "specified fs (back/none) does not exist"),
        ("-d back@x", "specified fs (back@x) does not exist"),
    ] {
        let (_, received) = pipe(&from, "tank/home@1", &to, words);
        let said = String::from_utf8_lossy(&received.stderr);
        assert!(!received.status.success() && said.contains(why), "{words}: {said}");
    }
    to.zdb_is_content_with("back");
}

#[test]
fn what_is_encrypted_is_sent_raw_and_read_with_its_key() {
    const KEY: &str = "--key tank=pass:a-horse-of-many-words";
    let (from, to) = (Disks::new(&[192]), Disks::new(&[192]));
    let options = "-O encryption=on -O keyformat=passphrase -O pbkdf2iters=100000";
    from.cenote(&format!("zpool create {KEY} {options} tank a"), &[]);
    from.cenote(&format!("zfs create {KEY} tank/home"), &[]);
    to.cenote("zpool create back a", &[]);
    for seed in 1..=2 {
        std::fs::write(from.path().join("file"), noise(seed, FILE_BYTES)).unwrap();
        from.cenote(&format!("cp {KEY} file tank/home:/file{seed}"), &[]);
        from.cenote(&format!("zfs snapshot -r tank@{seed}"), &[]);
    }
    piped(&from, "-w -R tank@1", &to, "back/all");
    piped(&from, "-w -R -i @1 tank@2", &to, "back/all");
    assert_eq!(get(&to, "encryptionroot", "back/all/home"), "back/all");
    to.fails("cat --key nobody=pass:nothing-at-all back/all/home:/file1", "key");
    for seed in 1..=2 {
        let read =
            to.run(&format!("cat --key back/all=pass:a-horse-of-many-words back/all/home:/file{seed}"), &[]);
        assert!(read.stdout == noise(seed, FILE_BYTES), "{}", String::from_utf8_lossy(&read.stderr));
    }
    let (sent, _) = pipe(&from, "-R tank@1", &to, "back/clear");
    assert!(String::from_utf8_lossy(&sent.stderr).contains("without the raw flag"));
    to.zdb_is_content_with("back");
}

#[test]
fn excluded_datasets_may_be_encrypted() {
    let (from, to) = (Disks::new(&[128]), Disks::new(&[128]));
    from.cenote("zpool create tank a", &[]);
    to.cenote("zpool create back a", &[]);
    from.cenote("zfs create tank/home", &[]);
    let options = "-o encryption=on -o keyformat=passphrase -o pbkdf2iters=100000";
    from.cenote(&format!("zfs create --key tank/secret=pass:a-horse-of-words {options} tank/secret"), &[]);
    from.cenote("zfs snapshot -r tank@1", &[]);
    piped(&from, "-R -X tank/secret tank@1", &to, "back/all");
    assert_eq!(to.cenote("zfs list -H -o name -r back/all", &[]), "back/all\nback/all/home\n");
}

/// The sender gives a dataset a key of its own, takes it away from another, and moves a key's place.
#[test]
fn encryption_roots_follow_those_of_the_sender() {
    let (from, to) = (Disks::new(&[128]), Disks::new(&[128]));
    let key = |dataset: &str| format!("--key {dataset}=pass:a-horse-of-words");
    let options = "encryption=on -o keyformat=passphrase -o pbkdf2iters=100000";
    from.cenote("zpool create tank a", &[]);
    to.cenote("zpool create back a", &[]);
    from.cenote(&format!("zfs create {} -o {options} tank/top", key("tank/top")), &[]);
    for name in ["gets", "gets/below"] {
        from.cenote(&format!("zfs create {} tank/top/{name}", key("tank/top")), &[]);
    }
    let both = format!("{} {}", key("tank/top"), key("tank/top/loses"));
    from.cenote(&format!("zfs create {both} -o {options} tank/top/loses"), &[]);
    from.cenote("zfs snapshot -r tank/top@1", &[]);
    piped(&from, "-w -R tank/top@1", &to, "back/top");
    let roots = || {
        let all = to.cenote("zfs get -H -r -t filesystem -o name,value encryptionroot back/top", &[]);
        all.lines()
            .map(|line| line.replace("back/top", "top").replace('\t', " "))
            .collect::<Vec<_>>()
            .join(", ")
    };
    assert_eq!(roots(), "top top, top/gets top, top/gets/below top, top/loses top/loses");

    let new = format!("{} --key tank/top/gets=pass:another-horse", key("tank/top"));
    from.cenote(
        &format!("zfs change-key {new} -o keyformat=passphrase -o pbkdf2iters=100000 tank/top/gets"),
        &[],
    );
    from.cenote(&format!("zfs change-key -i {both} tank/top/loses"), &[]);
    let place = from.path().join("key");
    std::fs::write(&place, "another-horse").unwrap();
    from.cenote(&format!("zfs set keylocation=file://{} tank/top/gets", place.display()), &[]);
    from.cenote("zfs snapshot -r tank/top@2", &[]);
    piped(&from, "-w -R -i @1 tank/top@2", &to, "back/top");
    assert_eq!(roots(), "top top, top/gets top/gets, top/gets/below top/gets, top/loses top");
    assert_eq!(get(&to, "keylocation", "back/top/gets"), format!("file://{}", place.display()));
    assert_eq!(get(&to, "keylocation", "back/top"), "prompt");
    to.cenote("zfs load-key -n --key back/top/gets=pass:another-horse back/top/gets", &[]);
    to.cenote(&format!("ls {} back/top/loses:/", key("back/top")), &[]);
    to.zdb_is_content_with("back");
}

/// A receive that has read `part` of a stream and waits for more.
fn begun(to: &Disks, words: &str, part: &[u8]) -> Child {
    let mut child = command(to, &format!("zfs receive {words}")).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(part).unwrap();
    // Data still in the pipe has not been received: wait until the pipe is empty.
    let pipe = child.stdin.as_ref().unwrap();
    let begun = Instant::now();
    while rustix::io::ioctl_fionread(pipe).unwrap() > 0 {
        assert!(begun.elapsed() < PATIENCE, "nothing is read");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn sent(from: &Disks, words: &str) -> Vec<u8> {
    let output = command(from, &format!("zfs send {words}")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn a_receive_that_is_interrupted_goes_on_or_leaves_nothing() {
    let (from, to) = pools();
    let stream = sent(&from, "tank/home@4");
    let half = &stream[..stream.len() / 2];

    let interrupted = begun(&to, "back/home", half);
    signal(&interrupted, Signal::INT);
    let output = interrupted.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot receive new filesystem stream: "), "{said}");
    assert_eq!(to.cenote("zfs list -H -o name", &[]), "back\n");

    let interrupted = begun(&to, "-s back/home", half);
    signal(&interrupted, Signal::INT);
    let output = interrupted.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let token = get(&to, "receive_resume_token", "back/home");
    assert!(
        said.contains("checksum mismatch or incomplete stream.\nPartially received snapshot is saved.\n")
            && said.contains(&format!("by running:\n    zfs send -t {token}")),
        "{said}"
    );
    let all = to.cenote("zfs get -H -o property,value all back/home", &[]);
    assert!(all.contains(&format!("receive_resume_token\t{token}\n")), "{all}");
    let (_, busy) = pipe(&from, "tank/home@4", &to, "back/home");
    assert!(String::from_utf8_lossy(&busy.stderr).contains("partially-complete state"), "{busy:?}");
    let foretold = from.cenote(&format!("zfs send -nvP -t {token}"), &[]);
    for words in ["resume token contents:\nnvlist version: 0\n", "\ttoname = tank/home@4\n"] {
        assert!(foretold.contains(words), "{foretold}");
    }
    // The part can be sent on; its receiver waits for the rest, too.
    let part = sent(&to, "--saved back/home");
    let received = to.run_with("zfs receive -s back/copy", &part);
    let said = String::from_utf8_lossy(&received.stderr).into_owned();
    assert!(said.contains("Partially received snapshot is saved"), "{said}");
    let of_copy = get(&to, "receive_resume_token", "back/copy");
    piped(&from, &format!("-t {of_copy}"), &to, "-s back/copy");
    assert_has(&to, "back/copy", 1..5);
    to.cenote("zfs destroy -r back/copy", &[]);

    let rest = sent(&from, &format!("-t {token}"));
    assert!(rest.len() < stream.len() * 3 / 4, "{} of {}", rest.len(), stream.len());
    assert!(foretold.trim_end().ends_with(&format!("\t{}", rest.len())), "{foretold}: {}", rest.len());

    // A killed receive resumes from the last saved position.
    let killed = begun(&to, "-s back/home", &rest[..rest.len() / 2]);
    signal(&killed, Signal::KILL);
    killed.wait_with_output().unwrap();
    let token = get(&to, "receive_resume_token", "back/home");
    piped(&from, &format!("-t {token}"), &to, "-s back/home");
    assert_has(&to, "back/home", 1..5);
    assert_eq!(get(&to, "receive_resume_token", "back/home"), "-");

    // An incremental stream into an existing dataset, then aborted.
    put(&from, "tank/home", 5);
    from.cenote("zfs snapshot tank/home@5", &[]);
    let stream = sent(&from, "-i @4 tank/home@5");
    let interrupted = begun(&to, "-s back/home", &stream[..stream.len() / 2]);
    drop(interrupted.wait_with_output().unwrap());
    assert!(get(&to, "receive_resume_token", "back/home").starts_with("1-"));
    assert_has(&to, "back/home", 1..5);
    to.cenote("zfs receive -A back/home", &[]);
    assert_eq!(get(&to, "receive_resume_token", "back/home"), "-");
    let again = to.run("zfs receive -A back/home", &[]);
    assert_eq!(again.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&again.stderr)
            .contains("'back/home' does not have any resumable receive state to abort"),
        "{again:?}"
    );
    // Destroying a dataset also discards what was received in part beside it.
    let interrupted = begun(&to, "-s back/home", &stream[..stream.len() / 2]);
    drop(interrupted.wait_with_output().unwrap());
    assert!(get(&to, "receive_resume_token", "back/home").starts_with("1-"));
    assert!(!to.cenote("zfs destroy -nvr back/home", &[]).contains('%'));
    to.cenote("zfs destroy -r back/home", &[]);
    to.zdb_is_content_with("back");

    // A token is shown even if its snapshot is gone.
    from.cenote("zfs destroy tank/home@4", &[]);
    let output = command(&from, &format!("zfs send -nvt {token}")).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.starts_with("resume token contents:\nnvlist version: 0\n\tobject = 0x"), "{shown}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("'tank/home@4' used in the initial send no longer exists"), "{said}");
    assert_eq!(output.status.code(), Some(255));
}

#[test]
fn what_does_not_fit_is_refused_in_the_words_of_openzfs() {
    let (from, to) = pools();
    let refused = |send: &str, receive: &str, words: &str| {
        let (_, received) = pipe(&from, send, &to, receive);
        let said = String::from_utf8_lossy(&received.stderr).into_owned();
        assert_eq!(received.status.code(), Some(1), "{receive}: {said}");
        assert!(said.contains(words), "{receive}: {said}");
    };
    refused("tank/home@1", "back/none/home", "cannot open 'back/none': dataset does not exist\n");
    refused(
        "-i @1 tank/home@2",
        "back/home",
        "cannot receive incremental stream: destination 'back/home' does not exist",
    );
    piped(&from, "tank/home@1", &to, "back/home");
    refused(
        "tank/home@1",
        "back/home",
        "cannot receive new filesystem stream: destination 'back/home' exists\nmust specify -F to overwrite",
    );
    refused("tank/home@1", "-F back/home", "destination has snapshots (eg. back/home@1)");
    refused("-i @2 tank/home@3", "back/home", "most recent snapshot of back/home does not\nmatch");
    put(&to, "back/home", 9);
    refused(
        "-i @1 tank/home@2",
        "back/home",
        "destination back/home has been modified\nsince most recent snapshot",
    );
    piped(&from, "-i @1 tank/home@2", &to, "-F back/home");
    assert_has(&to, "back/home", 1..3);
    let empty = to.run_with("zfs receive back/x", b"");
    assert_eq!(empty.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&empty.stderr).contains("cannot receive: failed to read from stream"));
    let wrong = to.run_with("zfs receive back/x", &[7; 1000]);
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("invalid stream (bad magic number)"));
    let dry = piped(&from, "-i @2 tank/home@3", &to, "-nv back/home");
    assert_eq!(dry, "would receive incremental stream of tank/home@3 into back/home@3\n");
    to.fails("zfs list back/home@3", "does not exist");
    let usage = to.run("zfs receive", &[]);
    assert_eq!(usage.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&usage.stderr).contains("receive -A <filesystem|volume>"), "{usage:?}");
    let usage = to.run("zfs send", &[]);
    assert_eq!(usage.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&usage.stderr).contains("<receive_resume_token>"), "{usage:?}");
    to.zdb_is_content_with("back");
}

#[test]
fn a_reader_that_goes_away_ends_a_send_with_an_error() {
    let (from, _) = pools();
    let mut sends = command(&from, "zfs send tank/home@4").spawn().unwrap();
    let mut stream = sends.stdout.take().unwrap();
    stream.read_exact(&mut [0; 1000]).unwrap();
    drop(stream);
    let output = sends.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("warning: cannot send 'tank/home@4': Broken pipe"), "{said}");
}

/// Scripts look for OpenZFS's sentences at the beginning of a line.
#[test]
fn called_as_zfs_the_program_tells_errors_without_its_name() {
    let (_, to) = pools();
    let tool = to.path().join("zfs");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_cenote"), &tool).unwrap();
    for words in [&["list", "back/none"][..], &["destroy", "back/none"], &["receive", "-A", "back/none"]] {
        let output = Command::new(&tool).args(words).arg("--disks").arg(to.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.starts_with("cannot ") && said.contains("dataset does not exist"), "{words:?}: {said}");
    }
}

/// The verb receives the module's streams: guids match, and `zdb` finds nothing missing.
#[needs("../shared/streams")]
#[test]
fn streams_of_the_module_are_received() {
    let facts: serde_json::Value =
        serde_json::from_slice(&std::fs::read(shared_path("streams/streams.json")).unwrap()).unwrap();
    let to = Disks::new(&[1024]);
    to.cenote("zpool create back a", &[]);
    let mut compared = 0;
    for result in facts["results"].as_array().unwrap() {
        let name = result["name"].as_str().unwrap();
        let options = result["recv_options"].as_str().unwrap();
        if let Some((parent, _)) = name.rsplit_once('/') {
            to.cenote(&format!("zfs create -p back/{parent}"), &[]);
        }
        for stream in result["streams"].as_array().unwrap() {
            let stream = stream.as_str().unwrap();
            let packed = std::fs::read(shared_path(&format!("streams/{stream}.zs.zst"))).unwrap();
            let words = format!("zfs receive {options} back/{name}").replace("  ", " ");
            let received = to.run_with(&words, &decompress(&packed));
            let said = String::from_utf8_lossy(&received.stderr).into_owned();
            match stream {
                "resume-first-part" => assert!(said.contains("Partially received"), "{stream}: {said}"),
                _ => assert!(received.status.success() && said.is_empty(), "{stream}: {said}"),
            }
        }
        for dataset in result["datasets"].as_array().unwrap().iter().filter(|it| it["type"] == "snapshot") {
            let full = format!("back/{}", dataset["name"].as_str().unwrap());
            assert_eq!(get(&to, "guid", &full), dataset["guid"].as_u64().unwrap().to_string(), "{full}");
            compared += 1;
        }
    }
    assert!(compared > 20, "{compared}");
    to.zdb_is_content_with("back");
}
