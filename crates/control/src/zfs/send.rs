//! `zfs send`: writes streams of snapshots to the caller's standard output.
//!
//! Idea: options become a [`SendRequest`], whose plan lists the streams and their sizes. The stream then goes
//! from the pool's blocks to the caller's descriptor. Messages go to notes, or with `-n` into the answer.
//!
//! In the daemon, a send holds its snapshots as an open file would; other commands go on freeing and
//! destroying. While a live file system is sent from its state on disk, the pool keeps all that this state
//! holds.
//!
//! Source: OpenZFS `zfs_main.c` (`zfs_do_send`), `libzfs_sendrecv.c`, zfs-send(8).

use std::io::{self, IsTerminal};
use std::time::Duration;

use cenote_dataset::mos::RECV_CLONE_NAME;
use cenote_dataset::properties::REDACTED_DATASETS;
use cenote_dataset::{Bookmark, Dataset, Mos};
use cenote_engine::SnapshotHold;
use cenote_format::bytes::Endian;
use cenote_format::nvlist::NvValue;
use cenote_format::stream::StreamFeatures;
use cenote_format::units::Guid;
use cenote_inspect::InspectError;
use cenote_object::DatasetError;
use cenote_stream::send::{
    Extent, Notice, Plan, Progress, Ready, Replica, Resume, SendError, SendFlags, SendRequest, Since, Step,
    redaction_snapshots,
};
use cenote_stream::{StreamError, StreamWriter, token};
use cenote_tasks::{ResumeState, resume_state};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::caller::Note;
use crate::error::ControlError;
use crate::permissions::Permissions;
use crate::pipe::Outlet;
use crate::session::{Session, dataset, pool_of};
use crate::text::{iso_utc, nice_bytes};
use crate::verb::{Answered, Looks, Needs, Verb};
use crate::zfs::permitted::head_of;

const TELL_INTERVAL: Duration = Duration::from_secs(1);

/// Write streams of snapshots to standard output.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Send {
    /// The snapshot, file system or volume; empty with `token`.
    pub target: String,
    /// `-i` or `-I`: the receiver's snapshot or bookmark.
    pub from: Option<String>,
    /// `-I`: all snapshots between.
    pub between: bool,
    /// `-R`.
    pub replicate: bool,
    /// `-s`.
    pub skip_missing: bool,
    /// `-X`.
    pub exclude: Vec<String>,
    /// `-p`.
    pub props: bool,
    /// `-b`.
    pub backup: bool,
    /// `-h`.
    pub holds: bool,
    /// `-L`.
    pub large_blocks: bool,
    /// `-e`.
    pub embedded: bool,
    /// `-c`.
    pub compressed: bool,
    /// `-w`.
    pub raw: bool,
    /// `-U`: send properties of encrypted datasets with blocks in the clear.
    #[serde(default)]
    pub in_clear: bool,
    /// `-t`: resume point of a receive.
    pub token: Option<String>,
    /// `-S`: send a partially received state.
    pub saved: bool,
    /// `--redact`: a redaction bookmark of the snapshot; its blocks are left out.
    pub redact: Option<String>,
    /// `-n`: send nothing.
    pub dry_run: bool,
    /// `-v`, `-P`: report streams and sizes.
    pub verbose: bool,
    /// `-v`: report progress, too.
    pub progress: bool,
    /// `-P`: machine-readable report.
    pub parsable: bool,
}

/// A stream and its size.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Foretold {
    /// Snapshot.
    pub to: String,
    /// The source of an increment, if reported.
    pub from: Option<String>,
    /// Bytes.
    pub bytes: u64,
}

/// The answer to a send.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sent {
    /// The token's content, as OpenZFS prints it.
    pub token: Vec<String>,
    /// The streams, if a report was requested.
    pub streams: Vec<Foretold>,
}

impl Sent {
    /// Bytes of all streams.
    pub fn bytes(&self) -> u64 {
        self.streams.iter().map(|stream| stream.bytes).sum()
    }

    /// The report as OpenZFS prints it.
    pub fn lines(&self, is_parsable: bool) -> Vec<String> {
        let mut lines = self.token.clone();
        lines.extend(self.streams.iter().map(|stream| stream.line(is_parsable)));
        if !self.streams.is_empty() {
            lines.push(match is_parsable {
                true => format!("size\t{}", self.bytes()),
                false => format!("total estimated size is {}", nice_bytes(self.bytes())),
            });
        }
        lines
    }
}

impl Foretold {
    fn line(&self, is_parsable: bool) -> String {
        let Foretold { to, from, bytes } = self;
        match (from, is_parsable) {
            (Some(from), true) => format!("incremental\t{from}\t{to}\t{bytes}"),
            (None, true) => format!("full\t{to}\t{bytes}"),
            (Some(from), false) if from.contains(['@', '#']) => {
                format!("send from {from} to {to} estimated size is {}", nice_bytes(*bytes))
            }
            (Some(from), false) => {
                format!("send from @{from} to {to} estimated size is {}", nice_bytes(*bytes))
            }
            (None, false) => format!("full send of {to} estimated size is {}", nice_bytes(*bytes)),
        }
    }
}

impl Verb for Send {
    const NAME: &'static str = "zfs send";
    const NEEDS: Needs = Needs::Delegated;
    const LOOKS: Looks = Looks::Never;
    type Answer = Sent;

    /// `send` on each dataset sent; `send:raw` is enough for raw streams.
    async fn permissions(&self, session: &Session) -> Result<Permissions, ControlError> {
        let state = self.token.as_deref().map(token::state_of).transpose();
        let state = state.map_err(|error| ControlError::Unresumable(error.to_string()))?;
        let target = match state.filter(|_| !self.saved) {
            Some(state) => String::from_utf8_lossy(&state.to_name).into_owned(),
            None => self.target.clone(),
        };
        let mos = session.pool_to_ask(&target).await?;
        let top = dataset(&mos, head_of(&target)).await?;
        let mut datasets = vec![top.clone()];
        if self.replicate {
            datasets.extend(top.descendants().await?);
        }
        let mut permissions = Permissions::to(format!("send '{target}'"));
        for dataset in datasets.iter().filter(|dataset| !dataset.is_snapshot()) {
            permissions.need_one_of(dataset, if self.raw { &["send", "send:raw"] } else { &["send"] });
        }
        Ok(permissions)
    }

    /// # Errors
    /// Contradictory options; a snapshot missing or not earlier; unreadable data.
    async fn carry_out(mut self, session: &Session) -> Result<Answered<Sent>, ControlError> {
        self.check()?;
        let mut sent = Sent::default();
        let given = self.token.as_deref().map(token::state_of).transpose();
        let given = given.map_err(|error| ControlError::Unresumable(error.to_string()))?;
        let target = match (&given, self.saved) {
            (Some(state), false) => String::from_utf8_lossy(&state.to_name).into_owned(),
            _ => self.target.clone(),
        };
        let found = match &given {
            Some(state) if !self.saved => match self.resumed(session, state, &target).await {
                Err(error) => return Err(self.unresumed(session, state, error)),
                found => found,
            },
            _ => self.begun(session, &target, given.as_ref()).await,
        };
        let (mos, request) = found?;
        // With a token, messages name the token's snapshot.
        self.target = target;
        if let Some(state) = given.as_ref().filter(|_| self.verbose) {
            sent.token = token_lines(state);
        }
        let name = request.dataset.name().to_owned();
        let plan = Plan::of(request).await.map_err(|error| self.failed(&name, error))?;
        let mut has_failed = false;
        for notice in &plan.notices {
            has_failed |= notice.is_failure();
            if self.verbose || !matches!(notice, Notice::Younger { .. }) {
                session.caller().note_bare(notice.to_string());
            }
        }
        let holds = hold(session, &plan).await?;
        let mut ready = plan.ready().await.map_err(|error| self.failed(&name, error))?;
        if self.verbose {
            let foretold = |step: &Step| Foretold {
                to: step.dataset.name().to_owned(),
                from: self.told_source(step),
                bytes: 0,
            };
            sent.streams = plan.steps().iter().map(foretold).collect();
        }
        if holds.is_some() {
            // The plan and its pool state pin all freed blocks.
            drop((plan, mos));
            ready = ready.not_keeping();
        }
        for (stream, told) in ready.streams().iter().zip(&mut sent.streams) {
            told.bytes = stream.estimate().await.map_err(|error| self.failed(&name, error))?;
        }
        if !self.dry_run {
            self.write(session, &ready, &mut sent).await?;
        }
        match has_failed {
            true => Err(refused(format!("cannot send '{name}': not all of it could be sent"))),
            false => Ok(sent.into()),
        }
    }
}

/// In the daemon, keeps the plan's snapshots from being destroyed.
async fn hold(session: &Session, plan: &Plan) -> Result<Option<Vec<SnapshotHold>>, ControlError> {
    let mut holds = Vec::new();
    for step in plan.steps().iter().filter(|step| step.dataset.is_snapshot()) {
        let name = step.dataset.name();
        let Some(pool) = session.held_by_name(pool_of(name)) else { return Ok(None) };
        let (_, snapshot) = pool.engine.snapshot(name).await?;
        let gone = || ControlError::NotFound(format!("cannot open '{name}': dataset does not exist"));
        holds.push(snapshot.hold().ok_or_else(gone)?);
    }
    Ok(session.pools().map(|_| holds))
}

impl Send {
    /// Rejects contradictory options.
    fn check(&self) -> Result<(), ControlError> {
        let usage = |text: &str| Err(ControlError::Usage(text.into()));
        let is_package = self.replicate || self.props || self.backup || self.holds;
        let is_redacted = self.redact.is_some();
        if self.token.is_some() && !self.saved && (self.from.is_some() || is_package || is_redacted) {
            return usage("invalid flags combined with -t");
        }
        let has_manner = self.large_blocks || self.embedded || self.compressed || self.raw;
        if self.saved && (self.from.is_some() || is_package || has_manner || is_redacted) {
            return usage("incompatible flags combined with saved send flag");
        }
        if self.saved && self.target.contains('@') {
            return usage("saved send must specify the dataset with partially-received state");
        }
        if self.raw && is_redacted {
            return Err(refused("Error: raw sends may not be redacted."));
        }
        if self.skip_missing && !self.replicate {
            return usage("skip-missing flag can only be used in conjunction with replicate");
        }
        if !self.exclude.is_empty() && !self.replicate {
            return Err(refused("Cannot specify dataset exclusion (-X) on a non-recursive send."));
        }
        if !self.replicate && !self.between {
            return Ok(());
        }
        if self.from.as_ref().is_some_and(|from| from.contains('#')) {
            return Err(refused("Error: multiple snapshots cannot be sent from a bookmark."));
        }
        if is_redacted {
            return Err(refused("Error: multiple snapshots cannot be sent redacted."));
        }
        if !self.target.contains('@') {
            return Err(refused("Error: Unsupported flag with filesystem or bookmark."));
        }
        Ok(())
    }

    /// The pool, and what a token resumes.
    async fn resumed(
        &self,
        session: &Session,
        state: &ResumeState,
        target: &str,
    ) -> Result<(Mos, SendRequest), ControlError> {
        let mos = match session.open_pool(pool_of(target)).await {
            Err(ControlError::NoPool { .. }) => {
                let why = format!("'{target}' used in the initial send no longer exists");
                return Err(ControlError::Unresumable(why));
            }
            opened => opened?,
        };
        let request = resumed(&mos, state, self.flags()).await?;
        let dataset = &request.dataset;
        let pool = session.pools().and_then(|pools| pools.get(pool_of(target)));
        if !dataset.is_snapshot() && pool.is_some_and(|pool| pool.mounts.mounted_on(dataset.id()).is_some()) {
            let why = format!("'{}' is mounted, and may have changed since", dataset.name());
            return Err(ControlError::Unresumable(why));
        }
        Ok((mos, request))
    }

    /// The pool, and what is sent from the beginning, or as far as it was received.
    async fn begun(
        &self,
        session: &Session,
        target: &str,
        given: Option<&ResumeState>,
    ) -> Result<(Mos, SendRequest), ControlError> {
        let mos = session.open_pool(pool_of(target)).await?;
        let request = match self.saved {
            true => saved(&mos, target, given).await?,
            false => self.request(&mos, session).await?,
        };
        Ok((mos, request))
    }

    /// With `-v`, a token is shown even if nothing here can be resumed: programs read tokens so.
    fn unresumed(&self, session: &Session, state: &ResumeState, error: ControlError) -> ControlError {
        for line in token_lines(state).into_iter().filter(|_| self.verbose) {
            match self.dry_run {
                true => session.caller().console.note(Note::Line(line)),
                false => session.caller().note_bare(line),
            }
        }
        error
    }

    async fn request(&self, mos: &Mos, session: &Session) -> Result<SendRequest, ControlError> {
        let dataset = dataset(mos, &self.target).await?;
        let extent = match self.replicate || self.between {
            true => self.many(mos, &dataset).await?,
            false => Extent::One(self.since(mos, &dataset, session).await?),
        };
        let redact = match &self.redact {
            Some(mark) => Some(self.redaction(&dataset, mark).await?),
            None => None,
        };
        let bare = bare(dataset, extent, self.flags());
        let (props, backup, holds) = (self.props, self.backup, self.holds);
        Ok(SendRequest { props, backup, holds, in_clear: self.in_clear, redact, ..bare })
    }

    /// Resolves the argument of `--redact`: a bookmark of the snapshot's dataset, by its own name.
    async fn redaction(&self, snapshot: &Dataset, mark: &str) -> Result<Bookmark, ControlError> {
        let failed = |why: &str| refused(format!("warning: cannot send '{}': {why}", self.target));
        if !snapshot.is_snapshot() {
            return Err(failed("cannot do a redacted send to a filesystem"));
        }
        let own = mark.rsplit('#').next().unwrap_or(mark);
        let name = format!("{}#{own}", snapshot.dir().name());
        let marks = snapshot.dir().head().await?.bookmarks().await?;
        let found = marks.into_iter().find(|mark| mark.name == name);
        let missing = || ControlError::NotFound(format!("cannot open '{name}': bookmark does not exist"));
        let found = found.ok_or_else(missing)?;
        match found.phys.redaction_list.0 {
            0 => Err(failed("not a redaction bookmark")),
            _ => Ok(found),
        }
    }

    fn flags(&self) -> SendFlags {
        SendFlags {
            large_blocks: self.large_blocks || self.raw,
            embedded: self.embedded || self.raw,
            compressed: self.compressed || self.raw,
            raw: self.raw,
        }
    }

    /// Resolves the argument of `-i`.
    async fn since(&self, mos: &Mos, to: &Dataset, session: &Session) -> Result<Since, ControlError> {
        let Some(from) = &self.from else { return Ok(Since::Nothing) };
        let mut from = from.clone();
        if !from.contains(['@', '#']) {
            session.caller().note_bare(
                "Warning: incremental source didn't specify type, assuming snapshot. Use '@' or '#' prefix \
                 to avoid ambiguity.",
            );
            from.insert(0, '@');
        }
        if from.starts_with(['@', '#']) {
            from.insert_str(0, to.dir().name());
        }
        let Some((marked, _)) = from.split_once('#') else {
            return dataset(mos, &from).await.map(Since::Snapshot);
        };
        let marks = dataset(mos, marked).await?.bookmarks().await?;
        let mark = marks.into_iter().find(|mark| mark.name == from);
        mark.map(Since::Bookmark)
            .ok_or_else(|| ControlError::NotFound(format!("cannot open '{from}': bookmark does not exist")))
    }

    /// The extent selected by `-R` and `-I`.
    async fn many(&self, mos: &Mos, to: &Dataset) -> Result<Extent, ControlError> {
        let head = to.dir().head().await?;
        let origin = head.origin().await?;
        let mut from = self.from.clone();
        if origin.is_some_and(|origin| Some(origin.name()) == from.as_deref()) {
            from = None;
        } else if let Some(named) = &from {
            let (of, short) = named.split_once('@').unwrap_or(("", named));
            if !of.is_empty() && of != head.name() {
                return Err(ControlError::Usage("incremental source must be in same filesystem".into()));
            }
            if short.contains(['@', '/']) {
                return Err(ControlError::Usage("invalid incremental source".into()));
            }
            dataset(mos, &format!("{}@{short}", head.name())).await?;
            from = Some(short.to_owned());
        }
        let (between, skip_missing) = (self.between, self.skip_missing);
        Ok(match self.replicate {
            true => Extent::Replica(Replica { from, between, skip_missing, exclude: self.exclude.clone() }),
            false => Extent::All(from),
        })
    }

    /// A stream's source as reported: in a package, only if it belongs to the same file system.
    fn told_source(&self, step: &Step) -> Option<String> {
        let is_many = self.replicate || self.between;
        match &step.since {
            Since::Nothing => None,
            Since::Snapshot(from) if is_many => {
                let is_own = from.dir().id() == step.dataset.dir().id();
                from.snapshot_name().filter(|_| is_own).map(str::to_owned)
            }
            Since::Snapshot(from) => Some(from.name().to_owned()),
            Since::Bookmark(mark) => Some(mark.name.clone()),
        }
    }

    async fn write(&self, session: &Session, ready: &Ready, sent: &mut Sent) -> Result<(), ControlError> {
        let caller = session.caller();
        let output = caller.console.output().map_err(ControlError::io("standard output"))?;
        if output.is_terminal() {
            return Err(refused(
                "Error: Stream can not be written to a terminal.\nYou must redirect standard output.",
            ));
        }
        let told = std::mem::take(sent);
        if self.verbose {
            told.lines(self.parsable).into_iter().for_each(|line| caller.note_bare(line));
        }
        let progress = Progress::default();
        let outlet = Outlet::new(output).map_err(|error| self.unwritten(error))?;
        let mut writer = StreamWriter::new(Box::new(outlet), Endian::NATIVE);
        let mut work = std::pin::pin!(ready.send(&mut writer, &progress));
        if self.progress && !self.parsable {
            caller.note_bare(format!("TIME        SENT   SNAPSHOT {}", self.target));
        }
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done.map_err(|error| self.failed(&self.target, error)),
                () = session.runtime().sleep(TELL_INTERVAL) => {}
            }
            if self.progress {
                let now = iso_utc((session.runtime().unix_time_ns() / 1_000_000_000) as i64);
                let clock = now.get(11..19).unwrap_or_default();
                let (bytes, target) = (progress.bytes(), &self.target);
                caller.note_bare(match self.parsable {
                    true => format!("{clock}\t{bytes}\t{target}"),
                    false => format!("{clock}   {:>5}   {target}", nice_bytes(bytes)),
                });
            }
        }
    }

    /// A closed output leaves the stream incomplete, so it is a failure.
    fn unwritten(&self, error: io::Error) -> ControlError {
        match error.kind() {
            io::ErrorKind::BrokenPipe => {
                refused(format!("warning: cannot send '{}': Broken pipe", self.target))
            }
            _ => InspectError::io("standard output")(error).into(),
        }
    }

    /// Maps a send error to OpenZFS's wording where it has one.
    fn failed(&self, name: &str, error: SendError) -> ControlError {
        match error {
            SendError::Dataset(DatasetError::KeyMissing { .. }) => {
                refused(format!("warning: cannot send '{name}': dataset key must be loaded"))
            }
            SendError::Dataset(error) => error.into(),
            SendError::Pool(error) => error.into(),
            SendError::Block { source, .. } if !source.is_damage() => source.into(),
            SendError::Stream(StreamError::Write(source)) => self.unwritten(source),
            error @ (SendError::NoRedaction { .. } | SendError::IncompleteRedaction) => {
                refused(format!("warning: cannot send '{name}': {error}"))
            }
            error => refused(error.to_string()),
        }
    }
}

fn bare(dataset: Dataset, extent: Extent, flags: SendFlags) -> SendRequest {
    let [props, backup, holds, in_clear, saved] = [false; 5];
    let (resume, redact) = (Resume::default(), None);
    SendRequest { dataset, extent, flags, props, backup, holds, in_clear, resume, saved, redact }
}

/// The request that resumes a stream.
async fn resumed(mos: &Mos, state: &ResumeState, flags: SendFlags) -> Result<SendRequest, ControlError> {
    let name = &*String::from_utf8_lossy(&state.to_name);
    let found = match name.strip_suffix("@--head--") {
        Some(live) => mos.dataset(live).await.ok().filter(|head| head.guid() == state.to_guid),
        None => by_guid(mos, name, state.to_guid).await?,
    };
    let Some(dataset) = found else {
        return Err(ControlError::Unresumable(match mos.dataset(name).await {
            Ok(_) => format!("'{name}' is no longer the same snapshot used in the initial send"),
            Err(_) => format!("'{name}' used in the initial send no longer exists"),
        }));
    };
    let since = match &state.redacted.from {
        Some(guids) => redacted_source_of(&dataset, state.from_guid, guids).await?,
        None => source_of(&dataset, state.from_guid).await?,
    };
    let redact = match &state.redacted.snapshots {
        // A redacted snapshot is sent as it is.
        Some(guids) if dataset.field(REDACTED_DATASETS).await?.is_none() => {
            let marks = dataset.dir().head().await?.bookmarks().await?;
            let own = marks.into_iter().filter(|mark| mark.phys.guid == dataset.guid());
            Some(redacted_for(&dataset, own.collect(), guids).await?)
        }
        _ => None,
    };
    let resume = Resume { object: state.progress.object, offset: state.progress.offset };
    let bare = bare(dataset, Extent::One(since), flags.and(flags_of(state)));
    Ok(SendRequest { resume, redact, ..bare })
}

/// The redaction bookmark, or redacted snapshot, with that guid and these redaction snapshots.
async fn redacted_source_of(to: &Dataset, guid: Guid, guids: &[u64]) -> Result<Since, ControlError> {
    if let found @ Since::Snapshot(from) = &source_of(to, guid).await?
        && from.field(REDACTED_DATASETS).await?.is_some()
    {
        return Ok(found.clone());
    }
    let marks = to.dir().head().await?.bookmarks().await?;
    let own = marks.into_iter().filter(|mark| mark.phys.guid == guid);
    Ok(Since::Bookmark(redacted_for(to, own.collect(), guids).await?))
}

/// The redaction bookmark for these snapshots.
async fn redacted_for(to: &Dataset, marks: Vec<Bookmark>, guids: &[u64]) -> Result<Bookmark, ControlError> {
    for mark in marks.into_iter().filter(|mark| mark.phys.redaction_list.0 != 0) {
        let own = redaction_snapshots(to.mos(), &mark).await;
        let own = own.map_err(|error| ControlError::Unresumable(error.to_string()))?;
        if own.len() == guids.len() && own.iter().all(|guid| guids.contains(guid)) {
            return Ok(mark);
        }
    }
    Err(ControlError::Unresumable("no appropriate redaction bookmark exists".into()))
}

/// The request that sends a partially received state.
async fn saved(mos: &Mos, target: &str, given: Option<&ResumeState>) -> Result<SendRequest, ControlError> {
    let failed = |why: &str| refused(format!("saved send failed: {why}"));
    let mut head = dataset(mos, target).await?;
    let to = head.clone();
    // An increment is received beside the old state.
    if let Some(beside) = head.dir().child(RECV_CLONE_NAME).await? {
        head = beside.head().await?;
    }
    let state = resume_state(&head).await?.ok_or_else(|| failed("nothing was received in part"))?;
    let mut resume = Resume::default();
    if let Some(given) = given {
        if given.to_guid != state.to_guid {
            return Err(failed("provided resume token does not match dataset"));
        }
        resume = Resume { object: given.progress.object, offset: given.progress.offset };
    }
    let since = source_of(&to, state.from_guid).await?;
    Ok(SendRequest { resume, saved: true, ..bare(head, Extent::One(since), flags_of(&state)) })
}

fn flags_of(state: &ResumeState) -> SendFlags {
    let has = |feature| state.features.has(feature);
    SendFlags {
        large_blocks: has(StreamFeatures::LARGE_BLOCKS),
        embedded: has(StreamFeatures::EMBED_DATA),
        compressed: has(StreamFeatures::COMPRESSED),
        raw: has(StreamFeatures::RAW),
    }
}

/// A token's content as OpenZFS prints it.
fn token_lines(state: &ResumeState) -> Vec<String> {
    let mut lines = vec!["resume token contents:".to_owned(), "nvlist version: 0".to_owned()];
    for (name, value) in token::list_of(state).iter() {
        let value = match value {
            NvValue::Uint64(number) => format!("{number:#x}"),
            NvValue::String(text) => String::from_utf8_lossy(text).into_owned(),
            _ => "1".to_owned(),
        };
        lines.push(format!("\t{name} = {value}"));
    }
    lines
}

/// The snapshot or bookmark with that guid, as the source of an increment.
async fn source_of(to: &Dataset, guid: Guid) -> Result<Since, ControlError> {
    if guid.0 == 0 {
        return Ok(Since::Nothing);
    }
    let mut head = Some(to.dir().head().await?);
    while let Some(here) = head {
        if let Some(found) = here.snapshots().await?.into_iter().find(|snapshot| snapshot.guid() == guid) {
            return Ok(Since::Snapshot(found));
        }
        if let Some(mark) = here.bookmarks().await?.into_iter().find(|mark| mark.phys.guid == guid) {
            return Ok(Since::Bookmark(mark));
        }
        head = match here.origin().await? {
            Some(origin) => Some(origin.dir().head().await?),
            None => None,
        };
    }
    Err(ControlError::Unresumable(format!("incremental source {:#x} no longer exists", guid.0)))
}

/// The snapshot with that guid: first by name, then any of its file system.
async fn by_guid(mos: &Mos, name: &str, guid: Guid) -> Result<Option<Dataset>, ControlError> {
    let Some((head, _)) = name.split_once('@') else { return Ok(None) };
    match mos.dataset(head).await {
        Ok(head) => Ok(head.snapshots().await?.into_iter().find(|snapshot| snapshot.guid() == guid)),
        Err(_) => Ok(None),
    }
}

fn refused(text: impl Into<String>) -> ControlError {
    ControlError::Refused(text.into())
}
