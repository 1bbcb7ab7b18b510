//! One dataset and its copy: resume, send, verify, bookmark, hold.

use std::process::Command;
use std::sync::Arc;

use cenote_stream::Content;

use super::Replicate;
use super::place::Side;
use super::plan::{COLUMNS, Listed, Plan, Point, Stream, parse, plan};
use super::report::{Report, State};
use super::transfer::{Failed, Meter, content, output, pipe};
use crate::error::ControlError;
use crate::session::Session;

/// Shared by all datasets of a run.
pub(super) struct Copying<'a> {
    pub(super) options: &'a Replicate,
    pub(super) session: &'a Session,
    pub(super) source: Side,
    pub(super) target: Side,
    pub(super) meter: Arc<Meter>,
}

impl Copying<'_> {
    /// The copy's name.
    pub fn copy_name(&self, source: &str) -> String {
        let below = source.strip_prefix(self.source.place.dataset.as_str()).unwrap_or_default();
        format!("{}{below}", self.target.place.dataset)
    }

    /// Brings a copy up to date.
    pub async fn bring(
        &self,
        source: Listed,
        copy: Option<Listed>,
        copy_name: String,
    ) -> Result<Report, ControlError> {
        let mut copy = copy;
        let mut report = Report::of(&source.name, &copy_name);
        let wishes = &self.options.wishes;
        let mut next = plan(&source, copy.as_ref(), wishes).map_err(ControlError::Refused)?;
        if let Plan::Resume { token } = &next {
            if self.options.dry_run {
                report.bytes = self.estimate(&["-t", token]).await?;
                report.state = State::Planned;
                report.is_resumed = true;
                return Ok(report);
            }
            report.is_resumed = self.resume(token, &copy_name, &mut report).await?;
            copy = self.list_one(&self.target, &copy_name).await?;
            next = plan(&source, copy.as_ref(), wishes).map_err(ControlError::Refused)?;
        }
        match next {
            Plan::Resume { .. } => {
                let why =
                    format!("'{copy_name}' still has an interrupted receive; `zfs receive -A` discards it");
                return Err(ControlError::Refused(why));
            }
            Plan::UpToDate { goal } => report.snapshot = goal,
            Plan::Send(streams) => {
                report.snapshot = streams.last().map_or_else(String::new, |last| last.to.clone());
                let mut expected = Vec::new();
                for stream in &streams {
                    expected.push(self.estimate(&words_of(stream)).await?);
                }
                report.streams = streams;
                if self.options.dry_run {
                    report.bytes = expected.iter().sum();
                    report.state = State::Planned;
                    return Ok(report);
                }
                self.meter.expect(expected.iter().sum());
                for stream in &report.streams {
                    let brought = source.snapshots().find(|point| point.name == stream.to);
                    if let Some(point) = brought.filter(|_| self.options.bookmark) {
                        // If the run ends before it can be made, and the snapshot is destroyed, nothing
                        // would be in common.
                        self.bookmark(&source, point).await?;
                    }
                    report.bytes += self.send(&words_of(stream), &copy_name).await.map_err(refused)?;
                }
            }
        }
        let goal = source.snapshots().find(|point| point.name == report.snapshot);
        report.snapshot_created_s = goal.map_or(0, |point| point.created_s);
        if report.bytes > 0 {
            report.state = State::Sent;
        }
        if !self.options.dry_run {
            self.afterwards(&source, &mut report).await?;
        }
        Ok(report)
    }

    /// Continues an interrupted receive. A state that can't be continued is discarded.
    async fn resume(&self, token: &str, copy: &str, report: &mut Report) -> Result<bool, ControlError> {
        if !self.options.no_resume {
            let words = ["-t", token];
            match self.estimate(&words).await {
                Ok(expected) => {
                    self.meter.expect(expected);
                    report.bytes += self.send(&words, copy).await.map_err(refused)?;
                    return Ok(true);
                }
                Err(error) => {
                    let text = format!("{copy}: the interrupted receive can't be resumed: {error}");
                    self.session.caller().note(text);
                }
            }
        }
        self.output(&self.target, &["receive", "-A", copy]).await.map_err(refused)?;
        Ok(false)
    }

    /// Verifies, bookmarks and holds the snapshot that both sides have now.
    async fn afterwards(&self, before: &Listed, report: &mut Report) -> Result<(), ControlError> {
        let Replicate { verify, bookmark, hold, .. } = self.options;
        if !(*verify || *bookmark || hold.is_some()) {
            return Ok(());
        }
        let source = self.list_one(&self.source, &before.name).await?.unwrap_or_default();
        let copy = self.list_one(&self.target, &report.target).await?.unwrap_or_default();
        let missing = |name: &str| ControlError::Refused(format!("snapshot '{name}' is gone"));
        let goal = source.snapshots().find(|point| point.name == report.snapshot);
        let goal = goal.ok_or_else(|| missing(&report.snapshot))?;
        let there = copy.snapshot_of(&goal.guid);
        if *verify {
            report.is_verified = Some(self.is_same(&source, &copy, report).await?);
        }
        let there = there.ok_or_else(|| missing(&self.copy_name(&report.snapshot)))?;
        if *bookmark {
            self.bookmark(&source, goal).await?;
        }
        if let Some(tag) = hold {
            self.hold(&self.source, &source, goal, tag).await?;
            self.hold(&self.target, &copy, there, tag).await?;
        }
        Ok(())
    }

    /// Whether the copy has the sent snapshots, and the same content in them.
    async fn is_same(&self, source: &Listed, copy: &Listed, report: &Report) -> Result<bool, ControlError> {
        let mut is_same = true;
        let mut differs = |text: String| {
            self.session.caller().note(format!("{}: {text}", report.target));
            is_same = false;
        };
        for point in expected(source, report) {
            if copy.snapshot_of(&point.guid).is_none() {
                differs(format!("has no snapshot with the guid of '{}'", point.name));
            }
        }
        let from = report.streams.first().and_then(|first| first.from.as_ref());
        let guid_of = |name: &String| {
            let named = source.points.iter().find(|point| point.name == *name);
            named.map(|point| point.guid.clone())
        };
        let from = from.and_then(guid_of);
        let to = guid_of(&report.snapshot);
        let words = |side: &Listed| {
            let from = from.as_ref().map(|guid| side.points.iter().find(|point| point.guid == *guid));
            let to = side.snapshot_of(to.as_deref()?)?;
            // A side that lost the base sends everything, which would differ.
            let from = match from {
                None => None,
                Some(found) => Some(found?.name.clone()),
            };
            let mut words = vec!["send".to_owned(), if self.options.raw { "-w" } else { "-L" }.into()];
            words.extend(from.into_iter().flat_map(|from| ["-i".to_owned(), from]));
            words.push(to.name.clone());
            Some(words)
        };
        let (Some(here), Some(there)) = (words(source), words(copy)) else {
            return Ok(false);
        };
        let (here, there) =
            futures::try_join!(self.content(&self.source, here), self.content(&self.target, there))?;
        if here != there {
            differs(format!("the content of '{}' differs", report.snapshot));
        }
        Ok(is_same)
    }

    async fn content(&self, side: &Side, words: Vec<String>) -> Result<Content, ControlError> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (command, meter) = (side.command(&words), self.meter.clone());
        self.session.runtime().blocking(move || content(command, &meter)).await.map_err(refused)
    }

    async fn bookmark(&self, source: &Listed, goal: &Point) -> Result<(), ControlError> {
        let name = format!("{}#{}", source.name, goal.own());
        match source.points.iter().find(|point| point.name == name) {
            Some(there) if there.guid == goal.guid => Ok(()),
            Some(_) => Err(ControlError::Refused(format!("'{name}' is a bookmark of another snapshot"))),
            None => {
                let made = self.output(&self.source, &["bookmark", &goal.name, &name]).await;
                made.map(drop).map_err(refused)
            }
        }
    }

    /// Holds a snapshot, then releases the others of its dataset.
    async fn hold(&self, side: &Side, listed: &Listed, goal: &Point, tag: &str) -> Result<(), ControlError> {
        let held: Vec<&str> =
            listed.snapshots().filter(|point| point.is_held).map(|point| point.name.as_str()).collect();
        let mut tagged = Vec::new();
        if !held.is_empty() {
            let words: Vec<&str> = ["holds", "-H"].into_iter().chain(held).collect();
            let holds = self.output(side, &words).await.map_err(refused)?;
            for line in holds.lines() {
                let mut columns = line.split('\t');
                if let (Some(name), Some(of)) = (columns.next(), columns.next())
                    && of == tag
                {
                    tagged.push(name.to_owned());
                }
            }
        }
        if !tagged.contains(&goal.name) {
            self.output(side, &["hold", tag, &goal.name]).await.map_err(refused)?;
        }
        for name in tagged.iter().filter(|name| **name != goal.name) {
            self.output(side, &["release", tag, name]).await.map_err(refused)?;
        }
        Ok(())
    }

    async fn list_one(&self, side: &Side, name: &str) -> Result<Option<Listed>, ControlError> {
        let types = "filesystem,volume,snapshot,bookmark";
        let words = ["list", "-H", "-p", "-t", types, "-o", COLUMNS, "-d", "1", name];
        let listed = match self.output(side, &words).await {
            Ok(listed) => listed,
            Err(failed) if failed.text.contains("does not exist") => return Ok(None),
            Err(failed) => return Err(refused(failed)),
        };
        let all = parse(&listed).map_err(ControlError::Refused)?;
        Ok(all.into_iter().find(|listed| listed.name == name))
    }

    /// The length of a stream.
    async fn estimate(&self, words: &[&str]) -> Result<u64, ControlError> {
        let all: Vec<&str> = ["send", "-n", "-P"].into_iter().chain(self.flags(words)).collect();
        let told = self.output(&self.source, &all).await.map_err(refused)?;
        let mut size = told.lines().filter_map(|line| line.strip_prefix("size\t")?.parse::<u64>().ok());
        Ok(size.next_back().unwrap_or(0))
    }

    async fn send(&self, words: &[&str], copy: &str) -> Result<u64, Failed> {
        let send: Vec<&str> = ["send"].into_iter().chain(self.flags(words)).collect();
        let mut receive = vec!["receive", "-u"];
        receive.extend((!self.options.no_resume).then_some("-s"));
        receive.extend(self.options.wishes.force.then_some("-F"));
        receive.push(copy);
        let (send, receive) = (self.source.command(&send), self.target.command(&receive));
        let meter = self.meter.clone();
        self.session.runtime().blocking(move || pipe(send, receive, &meter)).await
    }

    /// The options of a send, before the words that name its stream. A token has its own.
    fn flags<'w>(&self, words: &'w [&'w str]) -> impl Iterator<Item = &'w str> {
        let is_token = words.first() == Some(&"-t");
        let blocks: &[&str] = match (is_token, self.options.raw) {
            (true, _) => &[],
            (false, true) => &["-w"],
            (false, false) => &["-L", "-e", "-c"],
        };
        let props = (self.options.props && !is_token).then_some("-p");
        blocks.iter().copied().chain(props).chain(words.iter().copied())
    }

    async fn output(&self, side: &Side, words: &[&str]) -> Result<String, Failed> {
        let command: Command = side.command(words);
        self.session.runtime().blocking(move || output(command)).await
    }
}

/// The source's snapshots that the copy must have: those sent, or the goal.
fn expected<'a>(source: &'a Listed, report: &'a Report) -> impl Iterator<Item = &'a Point> {
    let all_between = report.streams.iter().any(|stream| stream.between);
    let first = report.streams.first();
    let place =
        |name: &String| source.points.iter().find(|point| point.name == *name).map(|point| point.createtxg);
    let from = first.and_then(|first| first.from.as_ref().or(Some(&first.to))).and_then(place);
    let to = place(&report.snapshot);
    source.snapshots().filter(move |point| {
        let is_within = from <= Some(point.createtxg) && Some(point.createtxg) <= to;
        point.name == report.snapshot || all_between && is_within
    })
}

/// The words that name a stream to `zfs send`.
fn words_of(stream: &Stream) -> Vec<&str> {
    let mut words = Vec::new();
    if let Some(from) = &stream.from {
        words.extend([if stream.between { "-I" } else { "-i" }, from]);
    }
    words.push(stream.to.as_str());
    words
}

fn refused(failed: Failed) -> ControlError {
    ControlError::Refused(failed.text)
}
