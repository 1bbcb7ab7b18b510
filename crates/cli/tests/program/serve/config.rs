//! Configuration of the daemon, its report about itself, and owners of pools in use.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;

use crate::serve::bench::{Bench, can_mount};

#[test]
fn a_file_configures_the_daemon_and_systemd_is_told() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a"]);
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    bench.done("zpool export tank");
    bench.signal(rustix::process::Signal::TERM);

    let config = format!(
        "socket = \"{}\"\ndisks = [\"{}\"]\npools = [\"tank\"]\nno-mount = true\nlog-format = \"json\"\n",
        bench.text("other.sock"),
        bench.text("d"),
    );
    fs::write(bench.path("serve.toml"), config).unwrap();
    let systemd = UnixDatagram::bind(bench.path("notify")).unwrap();
    let mut program = bench.program();
    program.env_remove("CENOTE_SOCKET").env("NOTIFY_SOCKET", bench.path("notify"));
    program.args(["serve", "--config", &bench.text("serve.toml")]).stderr(Stdio::piped());
    let daemon = program.spawn().unwrap();
    let told = || {
        let mut text = [0; 100];
        let length = systemd.recv(&mut text).unwrap();
        String::from_utf8(text[..length].to_vec()).unwrap()
    };
    assert_eq!(told(), "READY=1");
    let listed =
        bench.program().env("CENOTE_SOCKET", bench.path("other.sock")).args(["zpool", "list"]).output();
    assert!(String::from_utf8(listed.unwrap().stdout).unwrap().contains("tank"));
    assert!(!bench.path("mnt/.zfs").exists(), "nothing is mounted");
    rustix::process::kill_process(rustix::process::Pid::from_child(&daemon), rustix::process::Signal::TERM)
        .unwrap();
    assert_eq!(told(), "STOPPING=1");
    let said = daemon.wait_with_output().unwrap().stderr;
    for line in String::from_utf8(said).unwrap().lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(line["message"].is_string(), "{line}");
    }

    fs::write(bench.path("serve.toml"), "sockt = 1\n").unwrap();
    let wrong = bench.fails(&format!("serve --config {}", bench.text("serve.toml")));
    assert!(wrong.contains("serve.toml") && wrong.contains("sockt"), "{wrong}");
}

#[test]
fn without_pools_nothing_is_wrong() {
    if !can_mount() {
        return;
    }
    let bench = Bench::new(&[]);
    assert_eq!(bench.done("zpool list"), "no pools available\n");
    assert_eq!(bench.done("zpool list -H"), "");
    assert_eq!(bench.done("zpool status"), "no pools available\n");
    assert_eq!(bench.done("zfs list"), "");
    assert!(bench.done("zpool list -j").contains("\"pools\""));
}

#[test]
fn who_has_the_disks_is_named() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(&["a"]);
    bench.done(&format!("zpool create -m {} tank a", bench.text("mnt")));
    let alone = |line: &str| {
        let output = bench.program().env("CENOTE_SOCKET", "").args(line.split(' ')).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let refused = alone("-d . zfs create tank/x");
    let pid = bench.daemon.as_ref().unwrap().id();
    assert!(refused.contains(&format!("process {pid}")) && refused.contains("serve -d ."), "{refused}");

    // The reverse: a command that runs without the daemon keeps it out.
    bench.done("zpool export tank");
    let mounted = bench.path("alone");
    fs::create_dir(&mounted).unwrap();
    let mut program = bench.program();
    program.env("CENOTE_SOCKET", "").args(["-d", ".", "mount", "tank"]).arg(&mounted).stderr(Stdio::piped());
    let mut command = program.spawn().unwrap();
    let mut said = std::io::BufReader::new(command.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    assert!(line.contains("is mounted"), "{line}");
    let refused = bench.fails("zpool import tank");
    assert!(
        refused.contains(&format!("process {}", command.id())) && refused.contains("mount tank"),
        "{refused}"
    );
    rustix::process::kill_process(rustix::process::Pid::from_child(&command), rustix::process::Signal::INT)
        .unwrap();
    command.wait().unwrap();
    bench.done("zpool import tank");
    bench.signal(rustix::process::Signal::TERM);
}
