//! The daemon's socket, spoken to directly: `docs/protocol.md`.

use std::fs;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::fs::inotify;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::thread::set_thread_uid;
use serde_json::{Value, json};

use crate::serve::bench::{Bench, can_mount};

const NOBODY: u32 = 65534;
const STATUS: u8 = 0;
const REFUSED: u8 = 3;
const TOLD: u8 = 4;
const ANSWER: u8 = 5;
const FAILED: u8 = 6;
const PART: u8 = 7;

/// Answers by kind; consecutive contents of one kind are joined.
type Answers = Vec<(u8, Vec<u8>)>;

/// Sends a request as a user, with two descriptors of /dev/null.
fn speak(socket: &Path, uid: u32, request: &Value) -> Answers {
    speak_on(socket, uid, request, b"")
}

/// The same, followed by more bytes.
fn speak_on(socket: &Path, uid: u32, request: &Value, more: &[u8]) -> Answers {
    let said = || {
        set_thread_uid(rustix::process::Uid::from_raw(uid)).unwrap();
        let mut stream = UnixStream::connect(socket).unwrap();
        let null = fs::File::options().read(true).write(true).open("/dev/null").unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let streams = [null.as_fd(); 2];
        ancillary.push(SendAncillaryMessage::ScmRights(&streams));
        let body = request.to_string();
        let length = (body.len() as u32).to_le_bytes();
        sendmsg(&stream, &[IoSlice::new(&length)], &mut ancillary, SendFlags::NOSIGNAL).unwrap();
        // The daemon stops reading after a refusal; its answer arrives first.
        stream.write_all(&[body.as_bytes(), more].concat()).ok();
        let mut answers = Vec::new();
        match stream.read_to_end(&mut answers) {
            Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => panic!("{error}"),
            _ => answers,
        }
    };
    // Only this thread becomes that user, then it ends.
    let bytes = std::thread::scope(|scope| scope.spawn(said).join().unwrap());
    let (mut rest, mut answers): (_, Answers) = (&bytes[..], Vec::new());
    while let [kind, a, b, c, d, more @ ..] = rest {
        let (content, after) = more.split_at(u32::from_le_bytes([*a, *b, *c, *d]) as usize);
        match answers.last_mut() {
            Some((last, all)) if last == kind => all.extend(content),
            _ => answers.push((*kind, content.to_vec())),
        }
        rest = after;
    }
    answers
}

fn asking(verb: &str, request: &Value) -> Value {
    let asking = json!({"verb": verb, "request": request, "command": "a test", "keys": {}});
    json!({"version": 5, "asking": asking, "here": {"cwd": [47], "env": [], "has_screen": false}})
}

/// `zfs list` or `zfs get` of some names.
fn shown(names: &Value) -> Value {
    let types = json!({"filesystems": true, "volumes": true, "snapshots": true, "bookmarks": true});
    json!({"names": names, "properties": ["name", "used"], "scope": {"types": types, "depth": null}})
}

fn content(answers: &Answers, kind: u8) -> Option<Value> {
    let (_, content) = answers.iter().find(|(other, _)| *other == kind)?;
    Some(serde_json::from_slice(content).unwrap())
}

fn bench() -> Bench {
    let bench = Bench::new(&["a"]);
    fs::set_permissions(bench.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    bench.done("zpool create -m none tank a");
    bench.done("zfs create tank/home");
    bench
}

#[test]
fn answers_are_values_and_failures_say_why() {
    if !can_mount() {
        return;
    }
    let bench = bench();
    let socket = bench.path("sock");
    let answers = speak(&socket, NOBODY, &asking("zfs list", &shown(&json!(["tank"]))));
    let listed = content(&answers, ANSWER).unwrap();
    let names: Vec<&Value> = listed["datasets"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["tank", "tank/home"]);
    assert!(listed["datasets"][0]["properties"][1]["value"]["number"].as_u64().unwrap() > 0, "{listed}");
    assert_eq!(answers.last().unwrap(), &(STATUS, vec![0]));

    // One of two names is missing: the other is answered.
    let answers = speak(&socket, 0, &asking("zfs get", &shown(&json!(["tank/home", "tank/none"]))));
    let note = content(&answers, TOLD).unwrap();
    assert!(note["Note"]["Failed"]["text"].as_str().unwrap().contains("tank/none"), "{note}");
    assert_eq!(content(&answers, ANSWER).unwrap()["datasets"][0]["name"], "tank/home");
    assert_eq!(answers.last().unwrap(), &(STATUS, vec![1]));

    let failures = [
        (asking("zfs list", &shown(&json!(["none"]))), "cannot open 'none': dataset does not exist\n", 1),
        (
            asking("zfs get", &shown(&json!(["none/a@b"]))),
            "cannot open 'none/a@b': dataset does not exist\n",
            1,
        ),
        (asking("zpool get", &json!({"names": ["none"]})), "cannot open 'none': no such pool\n", 1),
        (asking("zfs list", &json!({"nothing": "of it"})), "this is not its request", 2),
        (asking("zfs explode", &json!({})), "no verb 'zfs explode'", 2),
        (asking("zpool list", &json!({"poolz": []})), "no field 'poolz'", 2),
    ];
    for (request, why, status) in failures {
        let answers = speak(&socket, 0, &request);
        let failed = content(&answers, FAILED).unwrap();
        assert!(failed["text"].as_str().unwrap().contains(why), "{failed}");
        assert_eq!((failed["status"].as_u64(), content(&answers, ANSWER)), (Some(status), None));
        assert_eq!(answers.last().unwrap(), &(STATUS, vec![status as u8]));
    }
    let mut old = asking("zfs list", &shown(&json!([])));
    old["version"] = json!(2);
    let answers = speak(&socket, 0, &old);
    assert_eq!(answers, [(REFUSED, b"the client is of another version".to_vec())]);
}

/// Requests of verbs that change something, or show content, about this dataset.
fn changes(name: &str) -> Vec<Value> {
    let at = format!("{name}@a");
    let user = json!({"to": {"user": NOBODY}, "reach": "local"});
    let grant = json!({"grantee": user, "permissions": ["destroy"]});
    let setting = json!([{"property": "a:b", "value": "c"}]);
    let secret = json!({"kind": "disk", "devices": ["/etc/shadow"]});
    let file = json!({"dataset": name, "path": "/etc/shadow"});
    let host = json!({"host": {"path": "/etc/shadow", "file": {"at": 0}}});
    let verbs = [
        ("cat", json!({"targets": [file], "start_bytes": u64::MAX, "length_bytes": u64::MAX})),
        ("ls", json!({"targets": [file], "depth": {"all": {"links": true}}})),
        ("stat", json!({"targets": [file], "blocks": true})),
        ("du", json!({"targets": [file], "depth": u32::MAX})),
        ("find", json!({"targets": [file], "size_bytes": {"at_least": u64::MAX}})),
        ("mkdir", json!({"targets": [file], "parents": true})),
        ("rm", json!({"targets": [file], "recursive": true})),
        ("cp", json!({"sources": [host], "destination": {"in_pool": file}})),
        ("cp", json!({"sources": [{"in_pool": file}], "destination": {"host": {"folder": 0}}})),
        ("volume cp", json!({"volume": name, "other": "/etc/shadow", "way": {"into": {"file": 0}}})),
        ("volume cp", json!({"volume": name, "other": "/etc/shadow", "way": {"out": {"device": 0}}})),
        ("volume clients", json!({})),
        ("zfs create", json!({"name": format!("{name}/x")})),
        ("zfs destroy", json!({"target": name, "recursive": true})),
        ("zfs destroy", json!({"target": name, "recursive": true, "dry_run": true})),
        ("zfs snapshot", json!({"snapshots": [format!("{name}@b")]})),
        ("zfs bookmark", json!({"source": at, "bookmark": format!("{name}#a")})),
        ("zfs hold", json!({"tag": "x", "snapshots": [at]})),
        ("zfs release", json!({"tag": "x", "snapshots": [at]})),
        ("zfs rollback", json!({"snapshot": at})),
        ("zfs clone", json!({"snapshot": at, "name": format!("{name}/y")})),
        ("zfs promote", json!({"clone": name})),
        ("zfs rename", json!({"from": name, "to": format!("{name}s")})),
        ("zfs set", json!({"names": [name], "settings": setting})),
        ("zfs set", json!({"names": [name], "settings": []})),
        ("zfs set", json!({"names": [], "settings": setting})),
        ("zfs inherit", json!({"names": [name], "property": "a:b"})),
        ("zfs inherit", json!({"names": [], "property": "a:b"})),
        ("zfs allow", json!({"dataset": name, "grants": [grant]})),
        ("zfs unallow", json!({"dataset": name, "grantees": [user]})),
        ("zfs load-key", json!({"name": name, "place": {"read": [1]}})),
        ("zfs unload-key", json!({"name": null})),
        ("zfs change-key", json!({"name": name, "inherit": true})),
        ("zfs mount", json!({"which": {"one": name}})),
        ("zfs unmount", json!({"name": name})),
        ("zfs userspace", json!({"dataset": name})),
        ("zfs groupspace", json!({"dataset": name, "all": true})),
        ("zfs projectspace", json!({"dataset": name})),
        ("zpool scrub", json!({"pools": [name]})),
        ("zpool trim", json!({"pool": name, "order": "cancel"})),
        ("zpool offline", json!({"pool": name, "devices": ["a"], "how": "faulted"})),
        ("zpool clear", json!({"pool": name})),
        ("zpool checkpoint", json!({"pool": name})),
        ("zpool export", json!({"force": true})),
        ("zpool destroy", json!({"pool": name, "force": true})),
        ("zpool reguid", json!({"pool": name})),
        ("zpool create", json!({"pool": "new", "layout": {"groups": [secret]}})),
        ("zpool add", json!({"pool": name, "layout": {"groups": [secret]}})),
        ("zpool attach", json!({"pool": name, "device": "a", "new_device": "/etc/shadow"})),
        ("zpool replace", json!({"pool": name, "device": "a", "new_device": "/etc/shadow"})),
        ("zpool evacuate", json!({"pool": name, "device": "a", "new_device": "/etc/shadow"})),
        ("zpool split", json!({"pool": name, "new_pool": "half"})),
        ("zpool events", json!({"order": "clear"})),
        ("zpool history", json!({})),
        ("zpool prefetch", json!({"pool": name})),
        ("zpool wait", json!({"pool": name})),
        ("zpool import", json!({"pool": name, "purpose": "open", "disks": [name], "force": true})),
        ("zpool import", json!({"disks": [name]})),
        ("zfs diff", json!({"from": at})),
        (
            "inject",
            json!({"target": {"dataset": name}, "device": "a", "order": {"add": {"effects": ["corrupt"]}}}),
        ),
        ("inject", json!({"order": "list"})),
        ("scan", json!({"targets": [{"dataset": name}], "format": "jsonl", "output": name})),
        ("trace record", json!({"pool": name, "file": name})),
        ("tunable", json!({"settings": [{"name": "zfs_arc_max", "value": "67108864"}]})),
        ("verify", json!({"pool": name, "most_findings": 1})),
    ];
    verbs.into_iter().map(|(verb, request)| asking(verb, &request)).collect()
}

#[test]
fn a_user_who_was_given_nothing_changes_nothing() {
    if !can_mount() {
        return;
    }
    let bench = bench();
    bench.done("zfs snapshot -r tank@a");
    let looks = ["zfs list -t all -o name,guid,userrefs", "zpool status", "zfs allow tank/home"];
    let seen = || looks.map(|line| bench.done(line));
    let before = seen();
    for name in ["tank/home", "tank"] {
        for request in changes(name) {
            let answers = speak(&bench.path("sock"), NOBODY, &request);
            let failed = content(&answers, FAILED).unwrap_or_else(|| panic!("{request}: {answers:?}"));
            let text = failed["text"].as_str().unwrap();
            assert!(text.contains("permission denied"), "{request}: {text}");
            assert_eq!(content(&answers, ANSWER), None, "{request}");
        }
    }
    assert_eq!(seen(), before);
    // The requests are valid: root's are accepted.
    let done = changes("tank/home").into_iter().filter(|request| {
        let verb = request["asking"]["verb"].as_str().unwrap();
        ["zfs snapshot", "zfs hold", "zfs allow"].contains(&verb)
    });
    for request in done {
        let answers = speak(&bench.path("sock"), 0, &request);
        assert_eq!(answers.last().unwrap(), &(STATUS, vec![0]), "{request}: {answers:?}");
    }
    assert_ne!(seen(), before);
    let nothing = asking("zfs set", &json!({"names": ["tank/home"], "settings": []}));
    let failed = content(&speak(&bench.path("sock"), 0, &nothing), FAILED).unwrap();
    assert!(failed["text"].as_str().unwrap().contains("missing property=value"), "{failed}");
}

#[test]
fn absurd_numbers_in_requests_are_bounded_or_refused() {
    if !can_mount() {
        return;
    }
    let bench = bench();
    let ask = |verb: &str, request: Value| {
        let answers = speak(&bench.path("sock"), 0, &asking(verb, &request));
        (answers.last().unwrap().1[0], content(&answers, FAILED), content(&answers, ANSWER))
    };
    let add = |faults: Value| json!({"target": {"dataset": "tank"}, "device": "a", "order": {"add": faults}});
    let many = vec!["corrupt"; 101];
    for faults in [
        json!({"effects": ["corrupt"], "chance": 7.5}),
        json!({"effects": ["corrupt"], "sectors": -1}),
        json!({"effects": ["corrupt"], "bytes": {"start": 9, "end": 3}}),
        json!({"effects": many}),
    ] {
        let (status, failed, _) = ask("inject", add(faults.clone()));
        assert!(status == 2 && failed.is_some(), "{faults}: {failed:?}");
    }
    let (status, _, answer) = ask("inject", json!({"order": "list"}));
    assert_eq!((status, answer), (0, Some(json!([]))));
    let huge = u64::MAX;
    let (status, failed, _) = ask("verify", json!({"pool": "tank", "most_findings": huge}));
    assert_eq!(status, 0, "{failed:?}");
    let scan = json!({"targets": [{"dataset": "tank"}], "format": {"summary": {"depth": u32::MAX}}});
    let (status, failed, answer) = ask("scan", scan);
    assert_eq!((status, failed), (0, None));
    assert_eq!(answer.unwrap()["summary"]["all"]["files"], 1);
    // No descriptor of a file came with it.
    let scan = json!({"targets": [{"dataset": "tank"}], "format": "jsonl", "output": "/etc/x"});
    assert_eq!(ask("scan", scan).0, 2);
    assert_eq!(ask("trace record", json!({"pool": "tank", "file": "/etc/x", "seconds": huge})).0, 2);
    let (status, failed, _) = ask("kstat", json!({"name": "tank/objset-0xffffffffffffffffff"}));
    assert!(status == 1 && failed.is_some());
}

#[test]
fn the_daemon_opens_no_file_that_a_user_names_in_a_request() {
    if !can_mount() {
        return;
    }
    let bench = bench();
    let (socket, bait) = (bench.path("sock"), bench.path("bait"));
    fs::create_dir(&bait).unwrap();
    fs::write(bait.join("secret"), "0123456789abcdef0123456789abcdef").unwrap();
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    let events = inotify::WatchFlags::OPEN | inotify::WatchFlags::CREATE | inotify::WatchFlags::MODIFY;
    inotify::add_watch(&watch, &bait, events).unwrap();
    let is_seen = || rustix::io::read(&watch, &mut [0; 4096][..]).is_ok();
    let names = [bait.join("secret"), bait.join("new"), bait.clone()];
    for name in names.iter().flat_map(|path| {
        let path = path.to_str().unwrap();
        ["", ".", "file://", "tank", "tank/home/../../..", "tank:"].map(|before| format!("{before}{path}"))
    }) {
        for verb in ["zfs list", "zfs get"] {
            speak(&socket, NOBODY, &asking(verb, &shown(&json!([name]))));
            let mut request = shown(&json!([]));
            request["properties"] = json!([name]);
            speak(&socket, NOBODY, &asking(verb, &request));
        }
        speak(&socket, NOBODY, &asking("zfs wait", &json!({"filesystem": name})));
        for request in changes(&name) {
            speak(&socket, NOBODY, &request);
        }
        let mut request = asking(&name, &json!(name));
        request["asking"]["command"] = json!(name);
        request["asking"]["keys"] = json!({ &name: [[name.as_bytes(), null]] });
        request["here"]["cwd"] = json!(bait.to_str().unwrap().as_bytes());
        request["here"]["env"] = json!([[name, name.as_bytes()]]);
        speak(&socket, NOBODY, &request);
        assert!(!is_seen(), "{name}");
    }
    drop(fs::File::open(bait.join("secret")).unwrap());
    assert!(is_seen(), "the watch works");
}

#[test]
fn files_come_in_parts_and_go_by_descriptors_only() {
    if !can_mount() {
        return;
    }
    let bench = bench();
    let socket = bench.path("sock");
    bench.done("mkdir tank/home:/a");
    bench.done("mkdir tank/home:/b");
    let home = json!({"dataset": "tank/home"});
    let ls = asking("ls", &json!({"targets": [home]}));
    let answers = speak(&socket, 0, &ls);
    let part = content(&answers, PART).unwrap();
    let names: Vec<&Value> = part["files"].as_array().unwrap().iter().map(|file| &file["path"]).collect();
    assert_eq!((names, &part["place"]), (vec![&json!("a"), &json!("b")], &json!("tank/home:/")));
    assert_eq!(answers.last().unwrap(), &(STATUS, vec![0]));

    let with = |files: u64| {
        let mut request = ls.clone();
        request["files"] = json!(files);
        request
    };
    let refusals = [(NOBODY, 1, "only root"), (0, 1, "did not come"), (0, 65_537, "at most")];
    for (uid, files, why) in refusals {
        let answers = speak_on(&socket, uid, &with(files), b"x");
        let [(REFUSED, text)] = &answers[..] else { panic!("{answers:?}") };
        assert!(String::from_utf8_lossy(text).contains(why), "{answers:?}");
    }
    // Invalid places and names.
    let out = |folder: &Value| json!({"sources": [{"in_pool": home}], "destination": {"host": folder}});
    let host = json!({"host": {"path": "/etc/passwd", "file": {"at": 9}}});
    let volume = json!({"volume": "tank/home", "other": "x", "way": {"into": {"file": usize::MAX}}});
    let failures = [
        ("cp", out(&json!({"folder": 0})), "without its file 0"),
        ("cp", out(&json!({"folder": u64::MAX, "name": "../x"})), "without its file"),
        ("cp", out(&json!({"folder": -1})), "not its request"),
        ("cp", json!({"sources": [host], "destination": {"in_pool": home}}), "without its file 9"),
        ("volume cp", volume, "without its file"),
    ];
    for (verb, request, why) in failures {
        let answers = speak(&socket, 0, &asking(verb, &request));
        // A copy that has begun reports in its answer why it ended.
        let ended = || content(&answers, ANSWER).map(|answer| answer["ended"].clone());
        let failed = content(&answers, FAILED).or_else(ended).unwrap_or_default();
        let text = failed["text"].as_str().unwrap_or_else(|| panic!("{request}: {answers:?}"));
        assert!(text.contains(why), "{request}: {text}");
    }
}
