//! The daemon as it ships, without its doors: sessions come as values, streams, and queues in memory.

use std::fs::File;
use std::io;
use std::sync::Arc;

use cenote_cache::CacheOptions;
use cenote_control::caller::{Console, Input, Note, Progress};
use cenote_control::error::ControlError;
use cenote_control::session::GivenKeys;
use cenote_control::{Answered, Caller, Options, Rights, Session, Verb};
use cenote_dataset::Credentials;
use cenote_device::Rack;
use cenote_disk::Limits;
use cenote_fuse::SessionOptions;
use cenote_fuse::simulated::SimulatedKernel;
use cenote_host::cancel::Cancel;
use cenote_host::pools::Pools;
use cenote_host::tuning::Tuning;
use cenote_iscsi::{Accounts, Luns};
use cenote_runtime::{Rng, Runtime};
use cenote_serve::iscsi::{IscsiServer, LunMap, Names};
use cenote_serve::listen::{Place, Visitor};
use cenote_serve::nbd::NbdServer;
use cenote_serve::raw::RawExports;
use cenote_serve::vhost::VhostServer;
use parking_lot::Mutex;
use tokio::io::DuplexStream;
use vm_memory::GuestMemoryMmap;

use super::kernel::Kernel;
use super::volume::Protocol;
use super::volume::vhost::Plug;
use super::{Machine, RACK};
use crate::hosts;

/// All caches together.
const CACHE_BYTES: usize = 64 << 20;
/// All clients of volumes together.
const CLIENTS_BYTES: u64 = 256 << 20;
/// Bytes on their way in a connection.
const PIPE_BYTES: usize = 64 << 10;

/// The daemon's pools and doors, for one life.
pub struct Daemon {
    runtime: Runtime,
    /// Its open pools.
    pub pools: Arc<Pools>,
    /// The kernel that it serves.
    pub kernel: Arc<Kernel>,
    nbd: Arc<NbdServer>,
    iscsi: Arc<IscsiServer>,
    vhost: VhostServer,
    /// Its messages while it opened pools.
    said: Vec<String>,
}

impl Daemon {
    /// Starts it on a machine with a kernel, as one of the hosts that share it, and opens the pools that the
    /// host's last daemon had open, but none that another host has by now.
    ///
    /// # Errors
    /// A pool does not open; a tunable is unknown.
    pub async fn start(
        runtime: &Runtime,
        machine: &Machine,
        host: u64,
        kernel: Kernel,
        tunables: &[(&str, &str)],
    ) -> Result<Daemon, String> {
        let kernel = Arc::new(kernel);
        runtime.equip(Arc::new(hosts::host(host)));
        runtime.equip(Arc::new(SimulatedKernel(kernel.clone())));
        machine.on.lock().extend(runtime.part::<Rack>().map(|rack| (rack, kernel.clone())));
        let cache = CacheOptions { data: true, ..CacheOptions::metadata(CACHE_BYTES) };
        let tuning = Tuning::new(runtime, cache);
        for (name, value) in tunables {
            tuning.set(name, value).map_err(|error| error.to_string())?;
        }
        let search = vec![cenote_device::Place::Path(RACK.into())];
        let (options, say) = (SessionOptions::default(), |_: &str| {});
        let pools = Arc::new(Pools::new(runtime, search, options, tuning, machine.record(host), say));
        runtime.spawn(pools.clone().keep_noting(runtime.clone())).detach();
        let limits = || Limits::new(runtime, CLIENTS_BYTES, 16);
        let raw = RawExports::default();
        let nbd = Arc::new(NbdServer { pools: pools.clone(), raw, limits: limits(), tls: None });
        let iscsi = Arc::new(IscsiServer {
            pools: pools.clone(),
            names: Names::default(),
            map: Arc::new(LunMap::default()),
            limits: limits(),
            accounts: Accounts::default(),
            places: Vec::new(),
            luns: Luns::default(),
        });
        let (dir, tell) = ("/run/vhost".into(), Box::new(|_: String| {}));
        let vhost = VhostServer { pools: pools.clone(), dir, limits: limits(), tell };
        let said = Vec::new();
        let mut daemon = Daemon { runtime: runtime.clone(), pools, kernel, nbd, iscsi, vhost, said };
        for noted in daemon.pools.noted().pools.clone() {
            let console = Arc::new(Said::default());
            let session = daemon.session("serve", &console);
            let opened = async {
                let found = session.find_noted(&noted).await?;
                let is_ours = found.config.hostid == Some(hosts::host(host).id);
                match session.check_unused_or(&found, "-f") {
                    Err(_) if !is_ours => return Ok(()),
                    done => done?,
                }
                let open = session.hold(&found, None).await?;
                session.load_keys(&open, None).await?;
                session.mount_all(&open).await.map(drop)
            };
            let opened = opened.await;
            opened.map_err(|error| format!("pool '{}' does not open: {error}", noted.name))?;
            daemon.said.extend(console.text());
        }
        Ok(daemon)
    }

    /// Its messages while it opened pools.
    pub fn said(&self) -> &[String] {
        &self.said
    }

    fn session(&self, command: &str, console: &Arc<Said>) -> Session {
        let who = Credentials { uid: 0, gids: Vec::new() };
        let (console, cancel) = (console.clone(), Cancel::default());
        let caller = Caller::client(who, Rights::All, console, "/".into(), Vec::new(), cancel);
        let options = Options::in_daemon(GivenKeys::default(), command.into(), false);
        Session::in_daemon(&self.runtime, caller, options, &self.pools)
    }

    /// Runs a verb as root. Returns its messages, too.
    ///
    /// # Errors
    /// It refuses, or fails.
    pub async fn run<V: Verb>(&self, verb: V) -> (Result<Answered<V::Answer>, ControlError>, String) {
        self.run_with(verb, None).await
    }

    /// The same with a file as standard input and output.
    ///
    /// # Errors
    /// As [`Daemon::run`].
    pub async fn run_with<V: Verb>(
        &self,
        verb: V,
        stream: Option<&File>,
    ) -> (Result<Answered<V::Answer>, ControlError>, String) {
        let stream = stream.and_then(|stream| stream.try_clone().ok());
        let console = Arc::new(Said { stream, ..Said::default() });
        let done = self.session(V::NAME, &console).run(verb).await;
        (done, console.text().unwrap_or_default())
    }

    /// Its runtime.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Random choices of its clients.
    pub fn rng(&self) -> Rng {
        self.runtime.rng()
    }

    /// Limits of virtual machines.
    pub fn limits(&self) -> &Limits {
        &self.vhost.limits
    }

    /// Connects a client of volumes by a protocol that has connections.
    pub fn connect(&self, by: Protocol) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let (nbd, iscsi, runtime) = (self.nbd.clone(), self.iscsi.clone(), self.runtime.clone());
        let visitor = Visitor {
            stream: Box::new(theirs),
            who: "a client".into(),
            stranger: None,
            here: Place::Unix("/world".into()),
        };
        let serving = async move {
            match by {
                Protocol::Iscsi => _ = iscsi.serve(&runtime, visitor).await,
                Protocol::Nbd | Protocol::Vhost => _ = nbd.serve(&runtime, visitor).await,
            }
        };
        self.runtime.spawn(serving).detach();
        ours
    }

    /// Gives a virtual machine's memory to a volume's device; `None`: the volume is not served.
    pub async fn plug(
        &self,
        volume: &str,
        memory: GuestMemoryMmap,
        has_event_indexes: bool,
    ) -> Option<Arc<Plug>> {
        let cancel = Cancel::default();
        let (disk, _serial) = self.vhost.disk(volume, &cancel).await.ok()?;
        Some(Plug::new(disk, memory, has_event_indexes, self, cancel))
    }
}

/// Collects a verb's messages.
#[derive(Default)]
struct Said {
    said: Mutex<Vec<String>>,
    /// Standard input and output.
    stream: Option<File>,
}

impl Said {
    fn text(&self) -> Option<String> {
        let said = self.said.lock();
        (!said.is_empty()).then(|| said.join("; "))
    }
}

impl Console for Said {
    fn note(&self, note: Note) {
        let (Note::Said(text) | Note::Bare(text) | Note::Line(text) | Note::Failed { text, .. }) = note;
        self.said.lock().push(text);
    }

    fn progress(&self, _now: Option<Progress<'_>>) {}

    fn output(&self) -> io::Result<File> {
        self.stream()
    }

    fn stream(&self) -> io::Result<File> {
        self.stream.as_ref().ok_or(io::ErrorKind::Unsupported)?.try_clone()
    }

    fn input(&self) -> Input<'_> {
        Input::None
    }

    fn prompt(&self, _text: &str) -> Option<String> {
        None
    }
}
