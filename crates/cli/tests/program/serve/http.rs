//! The API and metrics over HTTP, as a small client sees them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::serve::bench::{Bench, PATIENCE};
use crate::serve::nbd::{self, Client};

/// The response to a request.
#[derive(Debug)]
struct Answer {
    status: u16,
    content: Vec<u8>,
}

impl Answer {
    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_slice(&self.content)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.content)))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.content).into_owned()
    }
}

/// Sends a request and reads its response to the end.
fn ask(stream: impl Read + Write, method: &str, target: &str, headers: &[&str], content: &[u8]) -> Answer {
    ask_of(stream, "cenote", method, target, headers, content)
}

/// The same, with this server name.
fn ask_of(
    mut stream: impl Read + Write,
    host: &str,
    method: &str,
    target: &str,
    headers: &[&str],
    content: &[u8],
) -> Answer {
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let length = content.len();
    let head = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    let head = format!("{head}Content-Length: {length}\r\n{headers}\r\n");
    stream.write_all(&[head.as_bytes(), content].concat()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).unwrap().parse().unwrap();
    let mut is_chunked = false;
    loop {
        line.clear();
        reader.read_line(&mut line).unwrap();
        is_chunked |= line.eq_ignore_ascii_case("transfer-encoding: chunked\r\n");
        if line == "\r\n" {
            break;
        }
    }
    let mut content = Vec::new();
    if !is_chunked {
        reader.read_to_end(&mut content).unwrap();
        return Answer { status, content };
    }
    loop {
        line.clear();
        reader.read_line(&mut line).unwrap();
        let length = usize::from_str_radix(line.trim(), 16).unwrap();
        let at = content.len();
        content.resize(at + length + 2, 0);
        reader.read_exact(&mut content[at..]).unwrap();
        content.truncate(at + length);
        if length == 0 {
            return Answer { status, content };
        }
    }
}

/// A daemon with a pool, and HTTP sockets for its owner.
fn bench() -> Bench {
    let mut bench = Bench::new(&["a", "b"]);
    bench.signal(rustix::process::Signal::TERM);
    let door = format!("unix:{}", bench.text("http"));
    let (nbd, proc) = (format!("--nbd=unix:{}", bench.text("nbd")), bench.text("proc"));
    bench.start(&["--http", &door, "--http", "127.0.0.1:0", "--kstat", &proc, &nbd]);
    bench.done("zpool create -O mountpoint=none tank mirror a b");
    bench
}

impl Bench {
    fn post(&self, verb: &str, request: Value) -> Answer {
        self.http("POST", &format!("/v1/{verb}"), &[], request.to_string().as_bytes())
    }

    fn look(&self, target: &str) -> Answer {
        self.http("GET", target, &[], b"")
    }

    fn http(&self, method: &str, target: &str, headers: &[&str], content: &[u8]) -> Answer {
        ask(UnixStream::connect(self.path("http")).unwrap(), method, target, headers, content)
    }
}

#[test]
fn verbs_are_values_over_http() {
    let bench = bench();
    let lz4 = json!([{"property": "compression", "value": "lz4"}]);
    let made = bench.post("zfs/create", json!({"settings": lz4, "name": "tank/fs"}));
    let nothing = json!({"answer": made.json()["answer"], "notes": [], "status": 0});
    assert_eq!((made.status, made.json()), (200, nothing));
    assert_eq!(bench.get("compression", "tank/fs"), "lz4");
    assert!(bench.done("zpool history tank").contains("zfs create {\"name\":\"tank/fs\""), "it is recorded");

    // By GET, by POST, and in a shell.
    let listed = bench.look("/v1/zfs/list?properties=used&properties=compression&names=tank/fs").json();
    let request = json!({"names": ["tank/fs"], "properties": ["used", "compression"]});
    assert_eq!(bench.post("zfs/list", request).json(), listed);
    let [used, compression] = [0, 1].map(|at| &listed["answer"]["datasets"][0]["properties"][at]);
    assert_eq!(used["value"]["number"].to_string(), bench.done("zfs list -Hpo used tank/fs").trim());
    assert_eq!((&compression["word"], &compression["source"]), (&json!("lz4"), &json!("local")));

    // A file's content survives; a name that looks like an option is none.
    let content: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(bench.path("file"), &content).unwrap();
    bench.done(&format!("cp {} tank/fs:/-rf", bench.text("file")));
    let copy = json!({"sources": [{"in_pool": "tank/fs:/-rf"}], "destination": {"in_pool": "tank/fs:/two"}});
    assert_eq!(bench.post("cp", copy).status, 200);
    for targets in [json!(["tank/fs:/"]), json!(["tank/fs:/", {"dataset": "tank/fs", "path": "/"}])] {
        let listed = bench.post("ls", json!({ "targets": targets })).json();
        let parts = listed["parts"].as_array().unwrap();
        assert_eq!(parts.len(), targets.as_array().unwrap().len(), "{listed}");
        let names = [0, 1].map(|at| parts[0]["files"][at]["path"].as_str().unwrap());
        assert_eq!(names, ["-rf", "two"]);
        assert_eq!((&listed["answer"], &listed["status"]), (&Value::Null, &json!(0)));
    }
    let raw = ["Accept: application/octet-stream"];
    let cat = |path: &str| {
        let request = json!({"targets": [format!("tank/fs:/{path}")]}).to_string();
        bench.http("POST", "/v1/cat", &raw, request.as_bytes())
    };
    for path in ["-rf", "two"] {
        let read = cat(path);
        assert!(read.status == 200 && read.content == content, "{}", read.status);
    }
    let read = cat("none");
    assert_eq!(read.status, 409);
    assert!(read.text().contains("none"), "{}", read.text());
    let no_bytes = bench.post("cat", json!({"targets": ["tank/fs:/two"]}));
    assert!(no_bytes.status == 409 && no_bytes.text().contains("ask for application/octet-stream"));

    // The status of a failed verb tells why it failed.
    let refused = bench.post("zfs/create", json!({"name": "tank/fs"}));
    assert!(refused.status == 409 && refused.text().contains("already exists"), "{}", refused.text());
    for (request, why) in [
        (json!({"name": "tank/x", "disks": ["/"]}), "no field 'disks'"),
        (
            json!({"name": "tank/x", "settings": [{"property": "a:b", "value": "", "force": 1}]}),
            "settings.0.force",
        ),
        (json!({"name": 7}), "expected a string"),
        (json!({}), "missing field `name`"),
        (json!([1]), "this is not its request"),
    ] {
        let refused = bench.post("zfs/create", request);
        assert!(refused.status == 400 && refused.text().contains(why), "{}", refused.text());
    }
    for (method, target, status) in [
        ("GET", "/v1/zpool/status?damaged=perhaps", 400),
        ("GET", "/v1/zpool/status?nmae=tank", 400),
        ("GET", "/v1/zfs/destroy?target=tank/fs", 405),
        ("DELETE", "/v1/zfs/list?properties=name", 405),
        ("GET", "/v1/zfs", 404),
        ("GET", "/v1/serve", 404),
        ("GET", "/../etc/passwd", 404),
        ("GET", "/page/../../etc/passwd", 404),
        ("GET", "/page/%2e%2e/secret", 404),
    ] {
        assert_eq!(bench.http(method, target, &[], b"").status, status, "{method} {target}");
    }
}

/// No path of the machine is opened for a client, and a stream comes as the content.
#[test]
fn streams_come_and_go_as_content() {
    let bench = bench();
    bench.done("zfs create tank/fs");
    std::fs::write(bench.path("file"), vec![7; 1 << 20]).unwrap();
    bench.done(&format!("cp {} tank/fs:/file", bench.text("file")));
    bench.done("zfs snapshot tank/fs@a");
    let raw = ["Accept: application/octet-stream"];
    let sent = bench.http("POST", "/v1/zfs/send", &raw, br#"{"target": "tank/fs@a"}"#);
    assert!(sent.status == 200 && sent.content.len() > 1 << 20, "{}", sent.text());
    let stream = ["Content-Type: application/octet-stream"];
    let target = "/v1/zfs/receive?target=tank/copy";
    let received = bench.http("POST", target, &stream, &sent.content);
    assert_eq!(received.status, 200, "{}", received.text());
    let read = bench.http("POST", "/v1/cat", &raw, br#"{"targets": ["tank/copy@a:/file"]}"#);
    assert_eq!(read.content, vec![7; 1 << 20]);
    let path = bench.text("file");
    for source in [json!({"host": {"path": path, "file": {"at": 0}}}), json!({ "host": path })] {
        let copy = json!({"sources": [source], "destination": {"in_pool": "tank/fs:/stolen"}});
        let refused = bench.post("cp", copy);
        assert_eq!(refused.json()["status"], 2, "{}", refused.text());
    }
    assert!(bench.fails("ls tank/fs:/stolen").contains("no such file"));
}

#[test]
fn verbs_that_go_on_send_events_until_the_client_leaves() {
    let bench = bench();
    let events = ["Accept: text/event-stream"];
    let text = bench.http("GET", "/v1/zpool/iostat?pools=tank", &events, b"").text();
    assert!(text.starts_with("event: answer\ndata: [{\"pool\":\"tank\""), "{text}");
    assert!(text.ends_with("event: end\ndata: {\"status\":0}\n\n"), "{text}");
    bench.done("zfs create tank/fs");
    let text = bench.http("POST", "/v1/ls", &events, br#"{"targets": ["tank/fs:/", "tank/none:/"]}"#).text();
    assert!(text.contains("event: part\ndata: {\"target\":0"), "{text}");
    assert!(text.contains("event: note\ndata: {\"status\":1,\"text\":"), "{text}");
    assert!(text.ends_with("event: end\ndata: {\"status\":1}\n\n"), "{text}");

    // A verb that waits ends with its client, whose room is free again.
    let rooms = 64;
    for _ in 0..rooms + 1 {
        let mut stream = UnixStream::connect(bench.path("http")).unwrap();
        let request = "GET /v1/zpool/events?order=await&after=1000000 HTTP/1.1\r\nHost: x\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(bench.look("/v1/zpool/list").status, 200);

    // Even if more requests wait behind it, which nobody reads.
    let clients: Vec<UnixStream> = std::iter::repeat_with(|| {
        let mut stream = UnixStream::connect(bench.path("http")).unwrap();
        let request = "GET /v1/zpool/events?order=await&after=1000000 HTTP/1.1\r\nHost: x\r\n\
            Accept: text/event-stream\r\n\r\n";
        stream.write_all(request.repeat(20).as_bytes()).unwrap();
        stream.read_exact(&mut [0; 15]).unwrap();
        stream
    })
    .take(rooms)
    .collect();
    drop(clients);
    let begun = std::time::Instant::now();
    while bench.look("/v1/zpool/list").status != 200 {
        assert!(begun.elapsed().as_secs() < 60, "the rooms are still taken");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
}

#[test]
fn clients_of_the_network_need_a_token() {
    let mut bench = bench();
    let made = std::fs::read_to_string(bench.path("http-token")).unwrap();
    assert!(made.starts_with("change ") && made.trim().len() == 7 + 64, "{made}");
    bench.signal(rustix::process::Signal::TERM);
    let (look, change) = ("l".repeat(40), "c".repeat(40));
    std::fs::write(bench.path("tokens"), format!("look {look}\nchange {change}\n")).unwrap();
    let refused = bench.fails(&format!(
        "serve --socket {} --http :0 --http-tokens {}",
        bench.text("s2"),
        bench.text("tokens")
    ));
    assert!(refused.contains("others can read it"), "{refused}");
    let refused = bench.fails(&format!("serve --socket {} --http 0.0.0.0:0", bench.text("s2")));
    assert!(refused.contains("--tls") && refused.contains("--insecure"), "{refused}");

    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(bench.path("tokens"), PermissionsExt::from_mode(0o600)).unwrap();
    // A free port; if another test takes it, the daemon reports that.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    bench.start(&["--http", &format!("127.0.0.1:{port}"), "--http-tokens", &bench.text("tokens"), "tank"]);
    let ask = |method: &str, target: &str, token: &str| {
        let header = format!("Authorization: Bearer {token}");
        ask(TcpStream::connect(("127.0.0.1", port)).unwrap(), method, target, &[&header], b"").status
    };
    for target in ["/v1/zfs/list?properties=name", "/metrics"] {
        assert_eq!(
            [ask("GET", target, ""), ask("GET", target, &look), ask("GET", target, &change)],
            [401, 200, 200]
        );
    }
    let target = "/v1/zfs/snapshot?snapshots=tank@a";
    assert_eq!(
        [ask("POST", target, ""), ask("POST", target, &look), ask("POST", target, &change)],
        [401, 403, 200]
    );
    assert_eq!([ask("GET", "/", ""), ask("GET", "/v1/openapi.json", "")], [200, 200]);
    assert!(bench.done("zfs list -H -t snapshot -o name").contains("tank@a"));
}

#[test]
fn a_command_that_only_looks_answers_get_and_a_token_that_may_only_look() {
    let mut bench = bench();
    bench.done("zfs create tank/fs");
    bench.done("zfs snapshot tank/fs@a");
    bench.signal(rustix::process::Signal::TERM);
    let look = "l".repeat(40);
    std::fs::write(bench.path("tokens"), format!("look {look}\nchange {}\n", "c".repeat(40))).unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(bench.path("tokens"), PermissionsExt::from_mode(0o600)).unwrap();
    let door = format!("unix:{}", bench.text("http"));
    bench.start(&["--http", &door, "--http-tokens", &bench.text("tokens"), "tank"]);
    // A browser's request, so that the socket's owner needs a token too.
    let headers = [&*format!("Authorization: Bearer {look}"), "Origin: http://localhost"];
    let ask = |method: &str, target: &str| bench.http(method, target, &headers, b"");
    for target in [
        "zpool/version",
        "zpool/events",
        "zpool/wait?pool=tank",
        "zpool/upgrade",
        "zfs/diff?from=tank/fs@a",
        "zfs/mount",
        "zfs/allow?dataset=tank",
        "tunable",
        "tunable?names=zfs_arc_max",
    ] {
        for method in ["GET", "POST"] {
            let answer = ask(method, &format!("/v1/{target}"));
            assert_eq!(answer.status, 200, "{method} {target}: {}", answer.text());
        }
    }
    for target in [
        "zpool/events?order=clear",
        "zpool/upgrade?pools=[]",
        "zfs/mount?which=all",
        "zfs/mount?which=%7B%22one%22:%22tank/fs%22%7D",
        "zfs/allow?dataset=tank&grants=[]",
        "tunable?settings=%7B%22name%22:%22zfs_arc_max%22,%22value%22:%221%22%7D",
    ] {
        let statuses = ["GET", "POST"].map(|method| ask(method, &format!("/v1/{target}")).status);
        assert_eq!(statuses, [405, 403], "{target}");
        let events = [headers[0], headers[1], "Accept: text/event-stream"];
        assert_eq!(bench.http("POST", &format!("/v1/{target}"), &events, b"").status, 403, "{target}");
    }
}

#[test]
fn a_browser_can_do_nothing_for_a_page_of_another_site() {
    let mut bench = bench();
    bench.signal(rustix::process::Signal::TERM);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    bench.start(&["--http", &format!("127.0.0.1:{port}"), "--http", &format!("unix:{}", bench.text("http"))]);
    let token = std::fs::read_to_string(bench.path("http-token")).unwrap();
    let token = token.split_whitespace().nth(1).unwrap();
    let at_port = |method: &str, target: &str, headers: &[&str]| {
        ask(TcpStream::connect(("127.0.0.1", port)).unwrap(), method, target, headers, b"").status
    };
    let destroy = "/v1/zpool/destroy?pool=tank";
    // A browser sends a form without asking, with any credentials it keeps for the server; here there are
    // none.
    let cookie = format!("Cookie: token={token}; Authorization=Bearer {token}");
    let form = ["Content-Type: text/plain", "Origin: http://elsewhere.example", &cookie];
    assert_eq!(at_port("POST", destroy, &form), 401);
    assert_eq!(at_port("POST", &format!("{destroy}&token={token}"), &form), 401);
    // Before other requests, the browser asks for permission; only the status 200 it waits for would grant
    // it.
    let asks = ["Origin: http://elsewhere.example", "Access-Control-Request-Headers: authorization"];
    assert_eq!(at_port("OPTIONS", destroy, &asks), 401);
    // A host name that resolves to this machine gets no further than any other.
    assert_eq!(at_port("GET", "/v1/zfs/list?properties=name", &["Host: elsewhere.example"]), 401);

    // The owner's programs need no token at the socket; a browser's request through a proxy does.
    let at_socket = |headers: &[&str]| bench.http("GET", "/v1/zfs/list?properties=name", headers, b"").status;
    assert_eq!(at_socket(&[]), 200);
    for of_browser in ["Origin: http://localhost", "Sec-Fetch-Site: none"] {
        assert_eq!(at_socket(&[of_browser]), 401, "{of_browser}");
    }
    let stream = UnixStream::connect(bench.path("http")).unwrap();
    assert_eq!(
        ask_of(stream, "rebound.example", "GET", "/v1/zfs/list?properties=name", &[], b"").status,
        401
    );
}

#[test]
fn who_finds_no_room_is_told_so() {
    let mut bench = bench();
    bench.signal(rustix::process::Signal::TERM);
    let (http, nbd) = (format!("unix:{}", bench.text("http")), format!("unix:{}", bench.text("nbd")));
    bench.start(&["--http", &http, "--nbd", &nbd, "--connections", "1"]);
    let held = [bench.path("http"), bench.path("nbd")].map(|path| UnixStream::connect(path).unwrap());
    let told = bench.look("/v1/zfs/list?properties=name");
    assert!(told.status == 503 && told.text().contains("too many clients"), "{told:?}");

    let mut second = UnixStream::connect(bench.path("nbd")).unwrap();
    second.read_exact(&mut [0; 18]).unwrap();
    let name = [&[0, 0, 0, 3][..], b"x/y", &[0, 0]].concat();
    let go = [&[0, 0, 0, 3][..], b"IHAVEOPT", &[0, 0, 0, 7, 0, 0, 0, name.len() as u8], &name].concat();
    second.write_all(&go).unwrap();
    let mut head = [0; 20];
    second.read_exact(&mut head).unwrap();
    let mut why = vec![0; head[19].into()];
    second.read_exact(&mut why).unwrap();
    assert!(head[12..16] == [0x80, 0, 0, 2] && why.starts_with(b"too many clients"), "{head:?}");

    drop(held);
    while bench.look("/v1/zfs/list?properties=name").status != 200 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn the_daemons_pools_are_judged_by_the_labs_rules() {
    let bench = bench();
    let told = |answer: Value| {
        let advice = answer["answer"]["advice"].as_array().cloned().unwrap_or_default();
        let rules = advice.iter().map(|advice| format!("{} {}", advice["subject"], advice["rule"]));
        rules.map(|rule| rule.replace('"', "")).collect::<Vec<_>>()
    };
    let judged = bench.look("/v1/lab/advise").json();
    assert!(told(judged.clone()).contains(&"tank unscrubbed".into()), "{judged}");
    assert!(judged.to_string().contains("cenote serve --agent"), "a remedy of the kernel's: {judged}");
    assert!(bench.done("lab advise").contains("The pool has never been scrubbed."));
    bench.done("zpool scrub -w tank");
    let judged = bench.look("/v1/lab/advise?pools=tank").json();
    assert!(!told(judged.clone()).contains(&"tank unscrubbed".into()), "{judged}");

    // A client with a read-only token sees no files, starts no watch, queries no disks.
    for target in ["pools=/etc", "smart=/etc", "watch=true", "rules=true", "webhook=http://localhost"] {
        let answer = bench.look(&format!("/v1/lab/advise?{target}"));
        assert!([400, 409].contains(&answer.status), "{target}: {}", answer.text());
    }
}

/// Creates a volume, and is its client: three writes, a flush, two reads.
fn use_volume(bench: &Bench) {
    bench.done("zfs create -V 16M tank/vol");
    let mut client = Client::open(bench, "tank/vol").unwrap();
    for at in [0, 4096, 8192] {
        client.ask(0, nbd::WRITE, at..at + 4, b"data").unwrap();
    }
    client.ask(0, nbd::FLUSH, 0..0, b"").unwrap();
    for _ in 0..2 {
        assert_eq!(client.ask(0, nbd::READ, 4096..4100, b"").unwrap(), b"data");
    }
}

#[test]
fn metrics_and_files_of_counters_have_the_names_that_dashboards_know() {
    let mut bench = bench();
    use_volume(&bench);
    let metrics = bench.look("/metrics").text();
    for line in [
        "node_zfs_zpool_state{state=\"online\",zpool=\"tank\"} 1\n",
        "node_zfs_zpool_state{state=\"faulted\",zpool=\"tank\"} 0\n",
        "# TYPE node_zfs_arc_hits untyped\nnode_zfs_arc_hits ",
        "zfs_pool_health{pool=\"tank\"} 0\n",
        "zfs_pool_readonly{pool=\"tank\"} 0\n",
        "zfs_scrape_collector_success{collector=\"pool\"} 1\n",
        "zfs_scrape_collector_success{collector=\"dataset\"} 1\n",
        "zfs_dataset_volume_size_bytes{name=\"tank/vol\",pool=\"tank\",type=\"volume\"} 16777216\n",
        "# TYPE cenote_vdev_latency_seconds histogram\n",
        "# TYPE zpool_latency_disk_write histogram\n",
        "cenote_dataset_latency_seconds_count{pool=\"tank\",dataset=\"tank/vol\",operation=\"read\"} 2\n",
        "cenote_dataset_latency_seconds_count{pool=\"tank\",dataset=\"tank/vol\",operation=\"write\"} 3\n",
        "cenote_dataset_latency_seconds_count{pool=\"tank\",dataset=\"tank/vol\",operation=\"commit\"} 1\n",
        "cenote_dataset_latency_omitted 0\n",
        "zpool_vdev_queue_sync_w_pend{name=\"tank\",vdev=\"root/mirror-0\"} 0\n",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let size = bench.done("zpool list -Hp -o size").trim().to_owned();
    assert!(metrics.contains(&format!("zfs_pool_size_bytes{{pool=\"tank\"}} {size}\n")), "{size}: {metrics}");

    let accept =
        "Accept: application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
    let protobuf = bench.http("GET", "/metrics", &[accept], b"");
    assert!(protobuf.content.windows(22).any(|found| found == &b"zpool_latency_disk_rea"[..]));
    let lines = bench.look("/metrics/influx").text();
    for begin in
        ["zpool_stats,name=tank,state=ONLINE,vdev=root alloc=", "zpool_latency,le=0.000001,name=tank,"]
    {
        assert!(lines.lines().any(|line| line.starts_with(begin)), "{begin}: {lines}");
    }

    let folder = bench.path("proc/spl/kstat/zfs");
    let begun = std::time::Instant::now();
    while !folder.join("tank/state").exists() {
        assert!(begun.elapsed() < crate::serve::bench::PATIENCE, "no file");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert_eq!(std::fs::read_to_string(folder.join("tank/state")).unwrap(), "ONLINE\n");
    assert!(std::fs::read_to_string(folder.join("arcstats")).unwrap().contains("c_max"));
    let limit = std::fs::read_to_string(bench.path("proc/sys/module/zfs/parameters/zfs_arc_max")).unwrap();
    assert!(limit.trim().parse::<u64>().is_ok(), "{limit}");
    bench.signal(rustix::process::Signal::TERM);
    assert!(
        !bench.path("proc/spl").exists() && !bench.path("proc/sys").exists(),
        "files of a daemon that ended"
    );
}

/// `dist/grafana/cenote.json`, which is part of the package.
#[test]
fn the_agent_keeps_a_copy_and_metrics_have_its_age() {
    let mut bench = Bench::new(&["a", "b"]);
    bench.signal(rustix::process::Signal::TERM);
    let told = bench.path("told");
    let rules = format!(
        "look = \"1 s\"\n[[replicate]]\nsource = \"tank/home\"\ntarget = \"back/home\"\nevery = \"1 s\"\n\
         late = \"4 s\"\nbookmark = true\n[alerts]\nafter = \"1 s\"\n\
         command = [\"sh\", \"-c\", \"echo $0 >> {}\", \"{{subject}}\"]\n",
        told.display()
    );
    std::fs::write(bench.path("rules"), rules).unwrap();
    let door = format!("unix:{}", bench.text("http"));
    bench.start(&["--http", &door, "--agent", &bench.text("rules")]);
    let until_told = |line: &str| {
        let begun = Instant::now();
        while !std::fs::read_to_string(&told).unwrap_or_default().lines().any(|told| told == line) {
            assert!(begun.elapsed() < PATIENCE, "{line}: {:?}", std::fs::read_to_string(&told));
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    for pool in ["tank a", "back b"] {
        bench.done(&format!("zpool create -O mountpoint=none {pool}"));
    }
    bench.done("zfs create tank/home");
    until_told("tank/home is not copied to back/home");

    bench.done("zfs snapshot tank/home@1");
    bench.until("zfs list -H -r -t snapshot -o name back", |list| list.contains("back/home@1"));
    bench.until("zfs list -H -t bookmark -o name", |list| list.contains("tank/home#1"));
    until_told("over: tank/home is not copied to back/home");
    // No newer snapshot is taken.
    until_told("the copy of tank/home at back/home is too old");
    let metrics = bench.look("/metrics").text();
    let labels = "{source=\"tank/home\",target=\"back/home\"}";
    let gauge = |name: &str| -> f64 {
        let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("{name}{labels} ")));
        line.unwrap_or_else(|| panic!("{name}: {metrics}")).parse().unwrap()
    };
    assert_eq!(gauge("cenote_replicate_success"), 1.0);
    assert!(gauge("cenote_replicate_sent_bytes_total") > 1000.0);
    assert!(gauge("cenote_replicate_lag_seconds") > 4.0);
    bench.done("zfs snapshot tank/home@2");
    bench.until("zfs list -H -r -t snapshot -o name back", |list| list.contains("back/home@2"));
    until_told("over: the copy of tank/home at back/home is too old");
}

#[test]
fn the_dashboard_asks_for_what_there_is() {
    fn queries(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("expr").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|value| queries(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| queries(value, found)),
            _ => {}
        }
    }
    let bench = bench();
    bench.done("zfs create tank/fs");
    std::fs::write(bench.path("file"), vec![7; 1 << 20]).unwrap();
    bench.done(&format!("cp {} tank/fs:/file", bench.text("file")));
    bench.done("zpool scrub -w tank");
    use_volume(&bench);
    let metrics = bench.look("/metrics").text();
    let names: Vec<&str> = metrics.lines().map(|line| line.split(['{', ' ']).next().unwrap()).collect();
    let mut all = Vec::new();
    queries(
        &serde_json::from_str(include_str!("../../../../../dist/grafana/cenote.json")).unwrap(),
        &mut all,
    );
    assert!(all.len() > 20);
    for query in all {
        let words = query.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
        let ours =
            |word: &&str| ["node_zfs_", "zfs_", "zpool_", "cenote_"].iter().any(|it| word.starts_with(it));
        for name in words.filter(ours) {
            assert!(names.contains(&name), "{name}: {query}");
        }
    }
}
