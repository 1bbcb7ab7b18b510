//! Limits on one user's share of the daemon's sockets, and the share left for others.
//!
//! Users are threads of this process that have changed their user id: the kernel reports the id of the
//! connecting thread to the daemon.

use std::fs;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit, setrlimit};
use rustix::thread::set_thread_uid;

use crate::serve::bench::{Bench, PATIENCE, can_mount};

const NOBODY: u32 = 65534;
const OTHER: u32 = 65533;
/// Time limit of honest requests beside greedy ones.
const SOON: Duration = Duration::from_secs(10);

/// A daemon that every user can reach, with a pool and a volume.
fn bench() -> Bench {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let bench = Bench::new(&["a"]);
    fs::set_permissions(bench.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    bench.done("zpool create -m none tank a");
    bench.done("zfs create -V 64M -b 16k tank/v");
    bench
}

/// Does something as another user.
fn as_user<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> T {
    let work = || {
        // Only this thread becomes that user, then it ends.
        set_thread_uid(rustix::process::Uid::from_raw(uid)).unwrap();
        work()
    };
    std::thread::scope(|scope| scope.spawn(work).join().unwrap())
}

/// `zfs list` by a user, within a time limit; its output, or its message.
fn lists(bench: &Bench, uid: u32) -> Result<String, String> {
    let mut program = bench.program();
    program.args(["zfs", "list", "-H", "-o", "name"]).uid(uid).gid(uid).current_dir("/");
    let output = ends_soon(&mut program);
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

/// Runs a program within a time limit.
fn ends_soon(program: &mut Command) -> Output {
    let mut child =
        program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > SOON {
            child.kill().unwrap();
        }
        sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

const LISTED: &str = "tank\ntank/v\n";

fn memory_mib(daemon: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

#[test]
fn idle_connections_of_one_user_keep_nobody_else_from_the_commands() {
    if !can_mount() {
        return;
    }
    let bench = bench();
    let path = bench.path("sock");
    let idle: Vec<_> = as_user(NOBODY, || (0..600).filter_map(|_| UnixStream::connect(&path).ok()).collect());
    assert!(idle.len() > 256);
    for uid in [0, OTHER] {
        assert_eq!(lists(&bench, uid).as_deref(), Ok(LISTED), "user {uid}");
    }
    let refused = lists(&bench, NOBODY).unwrap_err();
    assert!(refused.contains("too many commands are under way"), "{refused}");
    // The daemon does not wait for requests that never come.
    let begun = Instant::now();
    while let Err(why) = lists(&bench, NOBODY) {
        assert!(begun.elapsed() < Duration::from_secs(20), "{why}");
        sleep(Duration::from_millis(100));
    }
    drop(idle);
}

#[test]
fn output_that_nobody_reads_keeps_no_command() {
    if !can_mount() {
        return;
    }
    let bench = bench();
    let (reader, writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while (&writer).write(&[0; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    let list = || {
        let mut program = bench.program();
        program.args(["zfs", "list"]).uid(NOBODY).gid(NOBODY).current_dir("/");
        program.stdin(Stdio::null()).stdout(writer.try_clone().unwrap()).stderr(Stdio::null());
        program.spawn().unwrap()
    };
    let mut clients: Vec<Child> = (0..260).map(|_| list()).collect();
    sleep(Duration::from_secs(2));
    for uid in [0, OTHER, NOBODY] {
        assert_eq!(lists(&bench, uid).as_deref(), Ok(LISTED), "user {uid}");
    }
    for client in &mut clients {
        client.kill().unwrap();
        client.wait().unwrap();
    }
    for uid in [0, OTHER, NOBODY] {
        assert_eq!(lists(&bench, uid).as_deref(), Ok(LISTED), "user {uid}, later");
    }
    drop(reader);
}

#[test]
fn a_large_request_of_a_user_is_refused_before_it_is_read() {
    if !can_mount() {
        return;
    }
    let bench = bench();
    let before_mib = memory_mib(bench.daemon.as_ref().unwrap());
    let words = vec!["[1]"; 4_100_000].join(",");
    let body = format!(r#"{{"version":1,"asking":[{words}]}}"#);
    let path = bench.path("sock");
    let send = || {
        let mut stream = UnixStream::connect(&path).unwrap();
        let null = fs::File::options().read(true).write(true).open("/dev/null").unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let streams = [null.as_fd(); 2];
        ancillary.push(SendAncillaryMessage::ScmRights(&streams));
        let length = (body.len() as u32).to_le_bytes();
        sendmsg(&stream, &[IoSlice::new(&length)], &mut ancillary, SendFlags::NOSIGNAL).unwrap();
        let is_taken = stream.write_all(body.as_bytes()).is_ok();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok();
        (is_taken, String::from_utf8_lossy(&answer).into_owned())
    };
    let answers = as_user(NOBODY, || {
        std::thread::scope(|scope| {
            // A thread belongs to the user of the thread that creates it.
            let sent: Vec<_> = (0..4).map(|_| scope.spawn(send)).collect();
            sent.into_iter().map(|sent| sent.join().unwrap()).collect::<Vec<_>>()
        })
    });
    for (is_taken, answer) in answers {
        assert!(!is_taken && answer.contains("the command is too long"), "{answer}");
    }
    let more_mib = memory_mib(bench.daemon.as_ref().unwrap()).saturating_sub(before_mib);
    assert!(more_mib < 32, "{more_mib} MiB");
}

#[test]
fn the_daemon_waits_while_there_are_no_descriptors() {
    if !can_mount() {
        return;
    }
    let bench = bench();
    let daemon = bench.daemon.as_ref().unwrap().id();
    let pid = Pid::from_raw(daemon as i32);
    let open = fs::read_dir(format!("/proc/{daemon}/fd")).unwrap().count() as u64;
    let Rlimit { maximum, .. } = prlimit(pid, Resource::Nofile, limited(open + 12)).unwrap();
    let path = bench.path("sock");
    let idle: Vec<_> = as_user(NOBODY, || (0..60).filter_map(|_| UnixStream::connect(&path).ok()).collect());
    let ticks = || {
        let stat = fs::read_to_string(format!("/proc/{daemon}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    sleep(Duration::from_millis(500));
    let before = ticks();
    sleep(Duration::from_secs(3));
    let spent = ticks() - before;
    assert!(spent < 30, "{spent} hundredths of a second of 3 s");
    prlimit(pid, Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    drop(idle);
    // Every seat is free again.
    let begun = Instant::now();
    for uid in [0, NOBODY] {
        while let Err(why) = lists(&bench, uid) {
            assert!(begun.elapsed() < PATIENCE, "user {uid}: {why}");
        }
    }
}

fn limited(most: u64) -> Rlimit {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    Rlimit { current: Some(most), maximum }
}

/// Opens the volume; returns the connection, or the server's message.
fn nbd<S: Read + Write>(mut stream: S) -> Result<S, String> {
    let name = b"tank/v";
    let mut head = [0; 20];
    let said = |error: std::io::Error| error.to_string();
    stream.read_exact(&mut head[..18]).map_err(said)?;
    let go = [&(name.len() as u32).to_be_bytes()[..], name, &[0, 0]].concat();
    let mut ask = [&3u32.to_be_bytes()[..], b"IHAVEOPT", &7u32.to_be_bytes()].concat();
    ask.extend((go.len() as u32).to_be_bytes());
    ask.extend(go);
    stream.write_all(&ask).map_err(said)?;
    loop {
        stream.read_exact(&mut head).map_err(said)?;
        let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        let mut data = vec![0; word(16) as usize];
        stream.read_exact(&mut data).map_err(said)?;
        match word(12) {
            1 => return Ok(stream),
            kind if kind >> 31 == 1 => return Err(String::from_utf8_lossy(&data).into_owned()),
            _ => {}
        }
    }
}

fn read_request(len: u32) -> Vec<u8> {
    [&0x2560_9513u32.to_be_bytes()[..], &[0; 4], &[0; 16], &len.to_be_bytes()].concat()
}

#[test]
fn idle_nbd_clients_of_one_user_keep_nobody_else_from_the_volumes() {
    let mut bench = bench();
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let door = format!("127.0.0.1:{port}");
    bench.signal(Signal::TERM);
    bench.start(&["--nbd", &door, "--insecure"]);
    let connect = || nbd(TcpStream::connect(("127.0.0.1", port)).unwrap());
    let idle: Vec<_> = as_user(NOBODY, || (0..520).map_while(|_| connect().ok()).collect());
    assert_eq!(idle.len(), 512, "half of all");
    assert!(as_user(NOBODY, connect).is_err_and(|why| why.contains("too many clients")));
    for uid in [OTHER, 0] {
        assert!(as_user(uid, connect).is_ok(), "user {uid}");
    }
    // Two users can't take the seats reserved for root.
    let idle_too: Vec<_> = as_user(OTHER, || (0..520).map_while(|_| connect().ok()).collect());
    assert_eq!(idle_too.len(), 1024 - 512 - 128);
    assert!(as_user(1, connect).is_err() && connect().is_ok());
}

#[test]
fn clients_that_read_nothing_hold_up_a_read_for_less_than_20_seconds() {
    let mut bench = bench();
    bench.signal(Signal::TERM);
    bench.start(&["--nbd", &format!("unix:{}", bench.text("nbd"))]);
    let connect = || nbd(UnixStream::connect(bench.path("nbd")).unwrap()).unwrap();
    let mut honest = connect();
    let silent: Vec<UnixStream> = (0..300).map(|_| connect()).collect();
    for (number, stream) in silent.iter().enumerate() {
        stream.set_nonblocking(true).unwrap();
        let len = if number % 2 == 0 { 1 << 20 } else { 32 << 20 };
        // More than a connection may have in flight.
        let requests = read_request(len).repeat(64);
        (&*stream).write_all(&requests).ok();
    }
    sleep(Duration::from_secs(2));
    for _ in 0..2 {
        let begun = Instant::now();
        honest.write_all(&read_request(1 << 20)).unwrap();
        honest.read_exact(&mut vec![0; 16 + (1 << 20)]).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }
    drop(silent);
}

#[test]
fn users_of_this_machine_are_let_in_by_certificates_and_accounts_only() {
    let mut bench = Bench::new(&["a"]);
    let other = ["serve", "-d", ".", "--socket", "other", "--state", "other.json"];
    for (door, why) in [
        (["--nbd", "127.0.0.1:0"], "lets every user of this machine read and write all volumes: give unix:"),
        (["--nbd", "[::1]:0"], "or --insecure if all of them are trusted"),
        (["--nbd", "0.0.0.0:0"], "lets other machines read and write all volumes: give --tls"),
        (["--iscsi", "127.0.0.1:0"], "give --iscsi-accounts FILE with names and secrets, or --insecure"),
    ] {
        let refused = ends_soon(bench.program().args([&other[..], &door].concat()));
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && said.contains(why), "{door:?}: {said}");
    }
    // A socket in the file system is closed to other users under any umask of the daemon.
    bench.signal(Signal::TERM);
    bench.start(&["--nbd", &format!("unix:{}", bench.text("nbd"))]);
    let path = bench.path("nbd");
    fs::set_permissions(bench.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let refused = as_user(NOBODY, || UnixStream::connect(&path).map(drop).unwrap_err());
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
}
