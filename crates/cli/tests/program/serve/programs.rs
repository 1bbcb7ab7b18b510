//! `zfs program` in the daemon: programs that would end it, and that would not end.

use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::bench::{Bench, PATIENCE};

#[test]
fn the_daemon_outlives_its_programs() {
    let bench = Bench::new(&["a"]);
    bench.done("zpool create -m none tank a");
    let run = |words: &str, script: &str| {
        let output = bench.run_with(&format!("zfs program {words}"), script.as_bytes());
        (String::from_utf8(output.stderr).unwrap(), output.status.code())
    };
    let (errors, _) = run("tank -", "function f(s) return string.gsub(s, '.', f) end return f('foo')");
    assert!(errors.contains("C stack overflow"), "{errors}");
    let (errors, _) = run("-t 100000001 tank -", "");
    assert!(errors.contains("Invalid instruction or memory limit."), "{errors}");
    bench.done("tunable zfs_lua_max_instrlimit=200000000 zfs_lua_max_memlimit=1000000");
    let (errors, status) = run("-t 100000001 -m 1000000 tank -", "");
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    let (errors, _) = run("-m 1000001 tank -", "");
    assert!(errors.contains("Invalid instruction or memory limit."), "{errors}");
}

/// Without the signal, it would run for many minutes.
#[test]
fn a_program_whose_caller_is_gone_ends() {
    let bench = Bench::new(&["a"]);
    bench.done("zpool create -m none tank a");
    let daemon = bench.daemon.as_ref().unwrap().id();
    let is_running = || {
        let threads = fs::read_dir(format!("/proc/{daemon}/task")).unwrap().flatten();
        let mut names = threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
        names.any(|name| name.trim() == "cenote-program")
    };
    // A shell that runs the tests in the background makes them ignore SIGINT.
    for signal in [Signal::TERM, Signal::KILL] {
        let mut command = bench.program();
        command.args(["zfs", "program", "-t", "100000000", "tank", "-"]);
        let mut caller = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        caller.stdin.take().unwrap().write_all(b"while true do zfs.exists('tank') end").unwrap();
        let begun = Instant::now();
        let until = |is_so: &dyn Fn() -> bool, what: &str| {
            while !is_so() {
                assert!(begun.elapsed() < PATIENCE, "{what}");
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        until(&is_running, "it does not begin");
        kill_process(Pid::from_child(&caller), signal).unwrap();
        until(&|| !is_running(), "it does not end");
        assert!(!caller.wait().unwrap().success());
        // Others may change the pool again.
        bench.done("zfs set org.example:x=y tank");
    }
}
