//! Changes of an incremental package (`-R -i`) besides its streams: file systems and snapshots that the
//! sender has destroyed, renamed or promoted since.
//!
//! Idea: a snapshot's guid identifies it everywhere, so local datasets are compared with the package's list.
//! Names may collide, and a rename may need a parent that only the streams create. So passes repeat while one
//! makes progress and leaves work; a dataset whose name is taken gets a temporary one, `recv-PID-N`.
//!
//! Source: OpenZFS `libzfs_sendrecv.c` (`recv_incremental_replication`, `recv_rename`, `recv_destroy`,
//! `created_before`).

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};

use cenote_boxed::boxed;
use cenote_dataset::Mos;
use cenote_engine::Engine;
use cenote_format::units::{Guid, Txg};
use cenote_object::DatasetError;
use cenote_tasks::{InUse, destroy_dataset, destroy_snapshots, promote, receive_properties, rename};

use crate::receive::Order;
use crate::receive::error::Result;
use crate::receive::host::{Host, Work};
use crate::receive::name::Placing;
use crate::receive::package::Package;

/// More than enough: each pass makes progress, and a few settle all names.
const PASSES_MAX: usize = 1 << 10;

struct Local {
    name: String,
    /// Guid and name of each snapshot, oldest first.
    snapshots: Vec<(Guid, String)>,
    /// Its parent's snapshot with the name of the package's first.
    parent_from: Guid,
    origin: Guid,
}

/// Makes the datasets at and below `to` match the package.
pub(super) struct Replication<'a> {
    pub(super) engine: &'a Engine,
    pub(super) host: &'a dyn Host,
    pub(super) order: &'a Order,
    pub(super) package: &'a Package,
    /// The package's first snapshot.
    pub(super) from: &'a str,
    pub(super) to: &'a str,
}

#[derive(Default)]
struct Pass {
    is_unfinished: bool,
    has_progressed: bool,
}

impl Pass {
    fn note(&mut self, is_done: bool) {
        self.has_progressed |= is_done;
        self.is_unfinished |= !is_done;
    }
}

impl Replication<'_> {
    /// Runs the passes; returns whether no work remains.
    #[boxed]
    pub(super) async fn run(&self) -> Result<bool> {
        for _ in 0..PASSES_MAX {
            let pass = self.pass().await?;
            if !pass.is_unfinished || !pass.has_progressed {
                return Ok(!pass.is_unfinished);
            }
            self.host.line("another pass:".into());
        }
        Ok(false)
    }

    async fn pass(&self) -> Result<Pass> {
        let (mut pass, mut deleted) = (Pass::default(), HashSet::new());
        let locals = self.locals().await?;
        for local in &locals {
            let known = |guid: &Guid| self.package.owner(*guid);
            let sent = local.snapshots.iter().find_map(|(guid, _)| known(guid)).map(|(sent, _)| sent);
            if let Some(sent) = sent.filter(|sent| sent.origin != local.origin) {
                if self.should_be_promoted(&locals, local.origin, sent.origin).await? {
                    self.host.line(format!("promoting {}", local.name));
                    let work = Box::pin(promote(self.engine, &local.name));
                    pass.has_progressed |= self.host.moving(&local.name, work).await.is_ok();
                }
                // Its list of snapshots is wrong until it has the right origin.
                pass.is_unfinished = true;
                continue;
            }
            let mut has_from = false;
            let mut owner = sent;
            for (guid, own) in &local.snapshots {
                let full = format!("{}@{own}", local.name);
                let Some((sent, name)) = known(guid) else {
                    if self.order.is_forced {
                        pass.note(self.destroy(&full, local.name.len() + 1).await);
                        deleted.insert(*guid);
                    }
                    continue;
                };
                owner = Some(sent);
                if let Some(props) = sent.snapshot_props.get(name) {
                    // Best effort: other properties stay.
                    receive_properties(self.engine, &full, props.clone()).await.ok();
                }
                if own != name {
                    let to = format!("{}@{name}", local.name);
                    pass.note(self.rename(&full, Some(&to), local.name.len() + 1).await);
                }
                has_from |= name == self.from;
            }
            let Some(sent) = owner else {
                if self.order.is_forced {
                    pass.note(self.destroy(&local.name, self.to.len() + 1).await);
                    deleted.insert(local.parent_from);
                }
                continue;
            };
            if !has_from {
                let (name, from) = (&local.name, self.from);
                self.host.line(format!(
                    "local fs {name} does not have fromsnap ({from} in stream); must have been deleted \
                     locally; ignoring"
                ));
                continue;
            }
            let unknown = Guid(0);
            let is_elsewhere = sent.parent_from != unknown
                && local.parent_from != unknown
                && sent.parent_from != local.parent_from;
            if is_elsewhere && deleted.contains(&local.parent_from) {
                // The rename would go below a removed dataset.
                return Ok(Pass { is_unfinished: true, has_progressed: true });
            }
            let is_named = self.order.placing == Placing::Exact && local.name == self.to;
            let last = |name: &str| name.rsplit_once('/').map(|(_, last)| last.to_owned());
            let (here, there) = (last(&local.name), last(&sent.name));
            let has_other_name = !is_named && here.is_some() && there.is_some() && here != there;
            if is_elsewhere || has_other_name {
                let has_parent =
                    |local: &&Local| local.snapshots.iter().any(|(it, _)| *it == sent.parent_from);
                let parent = locals.iter().find(has_parent);
                if parent.is_none() {
                    self.host.line(format!("local fs {} new parent not found", local.name));
                }
                let to = parent.zip(there).map(|(parent, last)| format!("{}/{last}", parent.name));
                pass.note(self.rename(&local.name, to.as_deref(), self.to.len() + 1).await);
            }
        }
        Ok(pass)
    }

    /// Whether a dataset's intended origin is later than its current one.
    async fn should_be_promoted(&self, locals: &[Local], origin: Guid, wanted: Guid) -> Result<bool> {
        if origin == Guid(0) {
            return Ok(false);
        }
        if wanted == Guid(0) {
            return Ok(true);
        }
        let mos = self.engine.mos().await?;
        Ok(match (born(&mos, locals, wanted).await?, born(&mos, locals, origin).await?) {
            (Some(wanted), Some(origin)) => wanted > origin,
            _ => false,
        })
    }

    /// Destroys a dataset or snapshot, or gives it a temporary name.
    async fn destroy(&self, name: &str, kept: usize) -> bool {
        self.host.line(format!("attempting destroy {name}"));
        let work: Work<'_> = Box::pin(async move {
            match name.contains('@') {
                true => destroy_snapshots(self.engine, &[name.to_owned()], InUse::Defer).await,
                false => destroy_dataset(self.engine, name).await,
            }
        });
        let done = self.host.moving(name, work).await;
        if done.is_ok() {
            self.host.line("success".into());
        }
        // After a deferred destroy it still exists.
        let is_gone = match self.engine.mos().await {
            Ok(mos) => matches!(mos.dataset(name).await, Err(DatasetError::NoDataset { .. })),
            Err(_) => false,
        };
        match done.is_ok() && is_gone {
            true => true,
            false => self.rename(name, None, kept).await,
        }
    }

    /// Renames a dataset or snapshot to `to`, or to a temporary name. Returns whether it has the right one.
    async fn rename(&self, name: &str, to: Option<&str>, kept: usize) -> bool {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        if let Some(to) = to {
            self.host.line(format!("attempting rename {name} to {to}"));
            let work = Box::pin(rename(self.engine, name, to));
            if self.host.moving(name, work).await.is_ok() {
                self.host.line("success".into());
                return true;
            }
        }
        let (before, own) = name.split_at_checked(kept).unwrap_or((name, ""));
        if own.starts_with("recv-") {
            return false;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let meanwhile = format!("{before}recv-{}-{number}", std::process::id());
        self.host.line(format!("failed - trying rename {name} to {meanwhile}"));
        let work = Box::pin(rename(self.engine, name, &meanwhile));
        if self.host.moving(name, work).await.is_err() {
            self.host.line("failed - will try again on next pass".into());
        }
        false
    }

    async fn locals(&self) -> Result<Vec<Local>> {
        let mos = self.engine.mos().await?;
        let top = match mos.dataset(self.to).await {
            Err(DatasetError::NoDataset { .. }) => return Ok(Vec::new()),
            top => top?,
        };
        let mut datasets = vec![top.clone()];
        datasets.extend(top.descendants().await?.into_iter().filter(|dataset| !dataset.is_snapshot()));
        let (mut locals, mut firsts): (Vec<Local>, BTreeMap<String, Guid>) = Default::default();
        for dataset in datasets {
            let name = dataset.name().to_owned();
            let (mut snapshots, mut first) = (Vec::new(), Guid(0));
            for snapshot in dataset.snapshots().await? {
                let own = snapshot.snapshot_name().unwrap_or_default().to_owned();
                if own == self.from {
                    first = snapshot.guid();
                }
                snapshots.push((snapshot.guid(), own));
            }
            let above = name.rsplit_once('/').map_or("", |(above, _)| above);
            let parent_from = firsts.get(above).copied().unwrap_or(Guid(0));
            let origin = dataset.origin().await?.map_or(Guid(0), |origin| origin.guid());
            firsts.insert(name.clone(), first);
            locals.push(Local { name, snapshots, parent_from, origin });
        }
        Ok(locals)
    }
}

/// The creation txg of a local snapshot.
async fn born(mos: &Mos, locals: &[Local], guid: Guid) -> Result<Option<Txg>> {
    for local in locals {
        if let Some((_, own)) = local.snapshots.iter().find(|(other, _)| *other == guid) {
            return Ok(Some(mos.dataset(&format!("{}@{own}", local.name)).await?.creation_txg()));
        }
    }
    Ok(None)
}
