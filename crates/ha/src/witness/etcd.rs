//! A witness in an etcd cluster: a key for each register, swapped by a transaction on its revision.
//!
//! Idea: two calls of etcd's JSON gateway, which every member has at the port of its clients since 3.3; so no
//! gRPC is needed. Members are asked in turn, beginning with the one that answered last. A range request is
//! linearizable by default: it shows every swap that was answered before.
//!
//! A user of the cluster is named by `CENOTE_ETCD_USER` and `CENOTE_ETCD_PASSWORD` in the environment.
//! `etcds://` uses TLS, with the system-independent list of authorities, or those of `CENOTE_ETCD_CA`, a file
//! in PEM.
//!
//! Source: etcd's `api/etcdserverpb/rpc.proto` (`Range`, `Txn`, `Compare`, `AuthenticateRequest`), and its
//! guide to the gRPC gateway (bytes are base64, numbers are strings).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use cenote_runtime::Runtime;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use ureq::Agent;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider};

use super::{Asking, Seen, Tag, Witness, WitnessError, Written, file_of};

const PORT: u16 = 2379;
const PREFIX: &str = "cenote";
/// Longest answer read.
const ANSWER_BYTES_MAX: u64 = 4 << 20;
/// HTTP statuses of a missing or expired token (gRPC's codes 16 and 3, as the gateway maps them).
const NO_TOKEN: [u16; 2] = [401, 400];

/// Registers in an etcd cluster.
pub struct EtcdWitness {
    shared: Arc<Shared>,
    runtime: Runtime,
}

struct Shared {
    agent: Agent,
    /// `http://HOST:PORT` of each member.
    members: Vec<String>,
    /// The member that answered last.
    last: AtomicUsize,
    prefix: String,
    user: Option<(String, String)>,
    token: Mutex<Option<String>>,
}

impl EtcdWitness {
    /// `rest`: `HOST[:PORT][,HOST[:PORT]...][/PREFIX]`; `answer`: time for the answer of one member.
    ///
    /// # Errors
    /// A malformed address, or unusable authorities.
    pub fn new(
        scheme: &str,
        rest: &str,
        answer: Duration,
        runtime: &Runtime,
    ) -> Result<EtcdWitness, WitnessError> {
        let bad = || WitnessError(format!("'{rest}' is no HOST:PORT[,HOST:PORT...]/PREFIX of etcd"));
        let (hosts, prefix) = rest.split_once('/').unwrap_or((rest, PREFIX));
        let prefix = if prefix.is_empty() { PREFIX } else { prefix };
        let is_fine = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
        let mut members = Vec::new();
        for host in hosts.split(',') {
            if host.is_empty() || !host.chars().all(is_fine) {
                return Err(bad());
            }
            let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            let is_bare_ipv6 = host.starts_with('[') && host.ends_with(']');
            members.push(match has_port && !is_bare_ipv6 {
                true => format!("{scheme}://{host}"),
                false => format!("{scheme}://{host}:{PORT}"),
            });
        }
        let user = match (std::env::var("CENOTE_ETCD_USER"), std::env::var("CENOTE_ETCD_PASSWORD")) {
            (Ok(user), Ok(password)) => Some((user, password)),
            _ => None,
        };
        let shared = Shared {
            agent: agent(answer)?,
            members,
            last: AtomicUsize::new(0),
            prefix: prefix.trim_end_matches('/').to_owned(),
            user,
            token: Mutex::new(None),
        };
        Ok(EtcdWitness { shared: Arc::new(shared), runtime: runtime.clone() })
    }

    fn on_thread<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Shared) -> Result<T, WitnessError> + Send + 'static,
    ) -> Asking<T> {
        let (shared, runtime) = (self.shared.clone(), self.runtime.clone());
        Box::pin(async move { runtime.blocking(move || call(&shared)).await })
    }
}

fn agent(answer: Duration) -> Result<Agent, WitnessError> {
    let crypto = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls =
        TlsConfig::builder().provider(TlsProvider::Rustls).unversioned_rustls_crypto_provider(crypto);
    if let Some(path) = std::env::var_os("CENOTE_ETCD_CA") {
        let failed = |why: String| WitnessError(format!("{}: {why}", path.display()));
        let pem = std::fs::read(&path).map_err(|error| failed(error.to_string()))?;
        let mut roots: Vec<Certificate<'static>> = Vec::new();
        for item in ureq::tls::parse_pem(&pem) {
            if let PemItem::Certificate(root) = item.map_err(|error| failed(error.to_string()))? {
                roots.push(root);
            }
        }
        tls = tls.root_certs(RootCerts::from(roots));
    }
    let config = Agent::config_builder()
        .tls_config(tls.build())
        .timeout_global(Some(answer))
        .http_status_as_error(false)
        .max_redirects(0);
    Ok(config.build().into())
}

impl Shared {
    fn key(&self, name: &str) -> String {
        STANDARD.encode(format!("{}/{}", self.prefix, file_of(name)))
    }

    /// Asks the members in turn until one answers.
    fn ask(&self, path: &str, body: &Value) -> Result<Value, WitnessError> {
        let first = self.last.load(Ordering::Relaxed);
        let mut why = WitnessError("no member is named".into());
        for index in 0..self.members.len() {
            let member = (first + index) % self.members.len();
            match self.ask_one(&self.members[member], path, body) {
                Ok(answer) => {
                    self.last.store(member, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    fn ask_one(&self, member: &str, path: &str, body: &Value) -> Result<Value, WitnessError> {
        if self.user.is_some() && self.token.lock().is_none() {
            self.authenticate(member)?;
        }
        let (status, answer) = self.post(member, path, body)?;
        if self.user.is_some() && NO_TOKEN.contains(&status) {
            self.authenticate(member)?;
            let (status, answer) = self.post(member, path, body)?;
            return whole(member, status, answer);
        }
        whole(member, status, answer)
    }

    fn post(&self, member: &str, path: &str, body: &Value) -> Result<(u16, Value), WitnessError> {
        let failed = |why: String| WitnessError(format!("{member}: {why}"));
        let mut request = self.agent.post(format!("{member}{path}"));
        if let Some(token) = self.token.lock().as_ref() {
            request = request.header("Authorization", token);
        }
        let request = request.header("Content-Type", "application/json");
        let mut answer = request.send(body.to_string()).map_err(|error| failed(error.to_string()))?;
        let status = answer.status().as_u16();
        let text = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        let text = text.map_err(|error| failed(error.to_string()))?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }

    fn authenticate(&self, member: &str) -> Result<(), WitnessError> {
        let Some((name, password)) = &self.user else { return Ok(()) };
        *self.token.lock() = None;
        let body = json!({ "name": name, "password": password });
        let (status, answer) = self.post(member, "/v3/auth/authenticate", &body)?;
        let answer = whole(member, status, answer)?;
        let token = answer["token"].as_str().map(str::to_owned);
        *self.token.lock() = token;
        Ok(())
    }
}

fn whole(member: &str, status: u16, answer: Value) -> Result<Value, WitnessError> {
    if status == 200 {
        return Ok(answer);
    }
    let why = answer["message"].as_str().or(answer["error"].as_str()).or(answer.as_str()).unwrap_or_default();
    Err(WitnessError(format!("{member}: answered {status}: {why}")))
}

#[derive(Deserialize)]
struct Ranged {
    #[serde(default)]
    kvs: Vec<KeyValue>,
}

#[derive(Deserialize)]
struct KeyValue {
    mod_revision: String,
    #[serde(default)]
    value: String,
}

#[derive(Deserialize)]
struct Swapped {
    #[serde(default)]
    succeeded: bool,
    header: Header,
}

#[derive(Deserialize)]
struct Header {
    revision: String,
}

fn malformed(error: impl std::fmt::Display) -> WitnessError {
    WitnessError(format!("etcd's answer is malformed: {error}"))
}

impl Witness for EtcdWitness {
    fn check(&self) -> Asking<()> {
        Box::pin({
            let reading = self.read("");
            async move { reading.await.map(drop) }
        })
    }

    fn read(&self, name: &str) -> Asking<Option<Seen>> {
        let name = name.to_owned();
        self.on_thread(move |shared| {
            let answer = shared.ask("/v3/kv/range", &json!({ "key": shared.key(&name) }))?;
            seen(answer)
        })
    }

    fn write(&self, name: &str, before: Option<&Tag>, bytes: Bytes) -> Asking<Written> {
        let (name, before) = (name.to_owned(), before.cloned());
        self.on_thread(move |shared| {
            let key = shared.key(&name);
            // A key that does not exist has the revision 0.
            let revision = before.map_or_else(|| "0".to_owned(), |tag| tag.0.to_string());
            let answer = shared.ask(
                "/v3/kv/txn",
                &json!({
                    "compare": [{
                        "key": key, "target": "MOD", "result": "EQUAL", "mod_revision": revision,
                    }],
                    "success": [{ "request_put": { "key": key, "value": STANDARD.encode(&bytes) } }],
                }),
            )?;
            let swapped: Swapped = serde_json::from_value(answer).map_err(malformed)?;
            match swapped.succeeded {
                true => Ok(Written::Done(tag(&swapped.header.revision)?)),
                false => Ok(Written::Changed),
            }
        })
    }
}

fn seen(answer: Value) -> Result<Option<Seen>, WitnessError> {
    let ranged: Ranged = serde_json::from_value(answer).map_err(malformed)?;
    let Some(found) = ranged.kvs.into_iter().next() else { return Ok(None) };
    let bytes = STANDARD.decode(&found.value).map_err(malformed)?;
    Ok(Some(Seen { bytes: bytes.into(), tag: tag(&found.mod_revision)? }))
}

fn tag(revision: &str) -> Result<Tag, WitnessError> {
    let number: u64 = revision.parse().map_err(malformed)?;
    Ok(Tag(number.to_string().into()))
}
