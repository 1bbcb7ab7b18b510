#![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]
//! Parses the recorded output of the real programs.

use super::*;

fn folder(pool: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/zfs").join(pool)
}

fn recorded(pool: &str) -> Pool {
    Zpool::recorded(&folder(pool)).unwrap().pool(pool).unwrap()
}

fn shapes(pool: &Pool) -> Vec<(Class, String)> {
    pool.vdevs.iter().map(|vdev| (vdev.class, vdev.shape())).collect()
}

#[test]
fn layout_space_and_properties_match_the_pool() {
    let zpool = Zpool::recorded(&folder("healthy")).unwrap();
    assert_eq!((zpool.userland(), zpool.kernel()), ("2.3.2-2~bpo12+2", "2.3.2-2~bpo12+2"));
    assert_eq!(zpool.names().unwrap(), ["healthy"]);
    let pool = zpool.pool("healthy").unwrap();
    let mirror = || "mirror of 2".to_owned();
    let expected = [
        (Class::Normal, mirror()),
        (Class::Special, mirror()),
        (Class::Log, mirror()),
        (Class::Cache, "disk".into()),
    ];
    assert_eq!(shapes(&pool), expected);
    assert_eq!(pool.size_bytes, Some(754_974_720));
    assert_eq!(pool.vdevs[0].size_bytes, Some(503_316_480));
    assert_eq!(pool.vdevs[0].ashift, Some(12));
    assert_eq!(pool.vdevs[3].path.as_deref(), Some("/dev/loop6"));
    let scan = pool.scan.unwrap();
    assert_eq!((scan.function.as_str(), scan.state.as_str(), scan.errors), ("SCRUB", "FINISHED", 0));
    let db = pool.datasets.iter().find(|dataset| dataset.name == "healthy/db").unwrap();
    assert_eq!((db.kind, db.logbias.as_str()), (DatasetKind::Filesystem(16384), "latency"));
    assert_eq!(db.properties["primarycache"], "all");
}

#[test]
fn faults_of_a_pool_are_seen() {
    let pool = recorded("degraded");
    assert_eq!((pool.state.as_str(), pool.scan.as_ref()), ("DEGRADED", None), "never scrubbed");
    assert!(pool.capacity_percent().unwrap() > 90.0, "{:?}", pool.capacity_percent());
    assert!(pool.status.unwrap().contains("unrecoverable error"));
    let [mirror, raidz] = &pool.vdevs[..] else { panic!("two vdevs") };
    assert_eq!((mirror.kind, raidz.kind), (VdevKind::Mirror, VdevKind::Raidz(1)));
    assert_eq!(mirror.children[1].state, "OFFLINE");
    assert!(raidz.children[0].errors[2] > 0, "a damaged disk has checksum errors");
    let full = recorded("fragmented");
    assert!(full.capacity_percent().unwrap() > 80.0 && full.fragmentation_percent.unwrap() > 10);
    assert_eq!(full.vdevs[0].ashift, Some(9));
    assert_eq!(recorded("wide").vdevs[0].shape(), "raidz2 of 8");
}

#[test]
fn text_output_of_older_programs_gives_the_same_pools() {
    for name in ["healthy", "fragmented", "thin", "degraded", "wide"] {
        let zpool = Zpool::recorded(&folder(name)).unwrap();
        let json = zpool.pool(name).unwrap();
        let text = Zpool { speaks_json: false, ..zpool }.pool(name).unwrap();
        assert_eq!((&text.name, &text.state, text.guid), (&json.name, &json.state, json.guid));
        assert_eq!((&text.status, &text.action), (&json.status, &json.action));
        assert_eq!((text.data_errors, text.size_bytes), (json.data_errors, json.size_bytes));
        let ended = |pool: &Pool| pool.scan.clone().map(|scan| (scan.function, scan.state, scan.end_unix_s));
        assert_eq!(ended(&text), ended(&json), "{name}");
        same(&text.vdevs, &json.vdevs);
    }
}

fn same(text: &[Vdev], json: &[Vdev]) {
    assert_eq!(text.len(), json.len());
    for (text, json) in text.iter().zip(json) {
        let what = |vdev: &Vdev| {
            let space = vdev.size_bytes.zip(vdev.allocated_bytes).filter(|_| vdev.class != Class::Cache);
            (
                vdev.name.clone(),
                vdev.path.clone(),
                vdev.kind,
                vdev.class,
                vdev.state.clone(),
                vdev.errors,
                vdev.ashift,
                space,
            )
        };
        assert_eq!(what(text), what(json));
        same(&text.children, &json.children);
    }
}

#[test]
fn spares_replacements_and_damage_are_read_from_text() {
    let status = "  pool: tank
 state: DEGRADED
status: One or more devices is currently being resilvered.  The pool will
\tcontinue to function, possibly in a degraded state.
action: Wait for the resilver to complete.
  scan: resilver in progress since Sat Nov 21 10:00:00 2026
\t1.2T / 4T scanned at 500M/s, 600G / 4T issued at 300M/s
\t600G resilvered, 15.00% done, 03:12:00 to go
config:

\tNAME                STATE     READ WRITE CKSUM
\ttank                DEGRADED     0     0     0
\t  raidz2-0          DEGRADED     0     0     0
\t    /dev/sda1       ONLINE       0     0     0
\t    replacing-1     DEGRADED     0     0     0
\t      /dev/sdb1     UNAVAIL     12     3     0  cannot open
\t      /dev/sdq1     ONLINE       0     0     0  (resilvering)
\t    /dev/sdc1       ONLINE       0     0     7
\tlogs\t
\t  /dev/nvme0n1p4    ONLINE       0     0     0
\tspares
\t  /dev/sdz1         AVAIL

errors: Permanent errors have been detected in the following files:

        tank/vm:<0x1>
        /tank/photos/a b.jpg
";
    let pool = Pool::from_status("tank", &status::from_text(status, ""));
    let raidz = &pool.vdevs[0];
    assert_eq!((raidz.kind, raidz.children.len()), (VdevKind::Raidz(2), 3));
    let replacing = raidz.children.iter().find(|vdev| vdev.kind == VdevKind::Replacing).unwrap();
    let gone = replacing.children.iter().find(|vdev| vdev.name == "sdb1").unwrap();
    assert_eq!((gone.state.as_str(), gone.errors), ("UNAVAIL", [12, 3, 0]));
    assert_eq!(pool.class(Class::Spare).next().unwrap().state, "AVAIL");
    assert_eq!(pool.class(Class::Log).next().unwrap().path.as_deref(), Some("/dev/nvme0n1p4"));
    let scan = pool.scan.unwrap();
    assert_eq!((scan.state.as_str(), scan.start_unix_s, scan.end_unix_s), ("SCANNING", 1_795_255_200, 0));
    assert_eq!(pool.data_errors, 2);
}

#[test]
fn an_incomplete_recording_names_the_missing_part() {
    let dir = tempfile::tempdir().unwrap();
    assert!(Zpool::recorded(dir.path()).unwrap_err().to_string().contains("version.txt"));
    fs::write(dir.path().join("version.txt"), "zfs-2.1.5-1\nzfs-kmod-2.1.5-1\n").unwrap();
    let zpool = Zpool::recorded(dir.path()).unwrap();
    assert!(!zpool.speaks_json);
    assert!(zpool.pool("tank").unwrap_err().to_string().contains("status.txt"));
}
