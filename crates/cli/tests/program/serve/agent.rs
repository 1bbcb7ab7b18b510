//! The agent, with rules as an administrator writes them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use rustix::process::Signal;

use crate::serve::bench::{Bench, PATIENCE};

#[test]
fn pools_are_scrubbed_and_administrators_told() {
    let mut bench = Bench::new(&["a", "b"]);
    bench.signal(Signal::TERM);
    let script = |name: &str, text: &str| {
        fs::write(bench.path(name), format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(bench.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    };
    let told = bench.path("told");
    script("mail", &format!("echo \"$1\" >> {}", told.display()));
    // A disk with bad sectors.
    let table = r#"{"table": [{"id": 197, "name": "Current_Pending_Sector", "raw": {"value": 8}}]}"#;
    let said = format!(r#"{{"smartctl": {{"exit_status": 0}}, "ata_smart_attributes": {table}}}"#);
    script("smartctl", &format!("cat <<'END'\n{said}\nEND"));
    let rules = format!(
        "look = \"1 s\"\n[[scrub]]\nevery = \"30 days\"\n\
         [alerts]\ncommand = [\"{0}/mail\", \"{{subject}}\"]\nafter = \"2 s\"\n\
         [smart]\nsmartctl = \"{0}/smartctl\"\nrecord = \"{0}/smart\"\n",
        bench.folder.path().display()
    );
    fs::write(bench.path("rules"), rules.replace("every", "evry")).unwrap();
    let refused =
        bench.fails(&format!("serve --socket {} --agent {}", bench.text("s2"), bench.text("rules")));
    assert!(refused.contains("evry") && refused.contains("line 3"), "{refused}");
    fs::write(bench.path("rules"), rules).unwrap();
    bench.start(&["--agent", &bench.text("rules")]);
    bench.done("zpool create -O mountpoint=none tank mirror a b");

    // Never scrubbed, so due at once, but only once.
    bench.until("zpool status tank", |text| text.contains("scrub repaired"));
    let is_told = |line: &str| {
        let begun = Instant::now();
        while !fs::read_to_string(&told).unwrap_or_default().lines().any(|told| told == line) {
            assert!(begun.elapsed() < PATIENCE, "{line}: {}", fs::read_to_string(&told).unwrap_or_default());
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    };
    is_told(&format!("disk {} may fail soon", bench.path("d/a").canonicalize().unwrap().display()));
    assert_eq!(bench.path("smart").read_dir().unwrap().count(), 1, "the record of today");

    bench.done("zpool offline -f tank b");
    is_told("pool tank is DEGRADED");
    bench.done("zpool clear tank");
    bench.until("zpool status -x", |text| text.contains("healthy"));
    is_told("over: pool tank is DEGRADED");
    let told = fs::read_to_string(&told).unwrap();
    assert_eq!(told.lines().filter(|line| *line == "pool tank is DEGRADED").count(), 1, "{told}");
    let history = bench.done("zpool history tank");
    assert_eq!(history.matches("zpool scrub").count(), 1, "{history}");
}

/// A name with a space is one name: its rule does not apply to the pool named by its first word.
#[test]
fn a_pool_whose_name_has_a_space_is_scrubbed_and_no_other() {
    let mut bench = Bench::new(&["a", "b"]);
    bench.signal(Signal::TERM);
    let rules = "look = \"1 s\"\n[[scrub]]\npools = [\"my tank\"]\nevery = \"30 days\"\n";
    fs::write(bench.path("rules"), rules).unwrap();
    bench.start(&["--agent", &bench.text("rules")]);
    bench.done("zpool create -O mountpoint=none my a");
    let disk = bench.text("d/b");
    let create = ["zpool", "create", "-O", "mountpoint=none", "my tank", &disk];
    let created = bench.program().args(create).output().unwrap();
    assert!(created.status.success(), "{created:?}");
    bench.until("zpool status", |text| text.contains("scrub repaired"));
    assert!(!bench.done("zpool status my").contains("scrub"), "nobody asked for that one");
}
