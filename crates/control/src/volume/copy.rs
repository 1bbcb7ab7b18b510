//! `volume cp`: copies a volume or its snapshot to a file, device or stream, or one of these into a volume.
//!
//! Idea: the caller opens files and devices ([`crate::files::host`]); streams are its standard input and
//! output.

use std::fs::File;

use cenote_format::text_or_bytes;
use cenote_inspect::copy::{Copier, CopyOptions, Folder, Reason, VolumeSink};
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::files::copy::losses::{Losses, Summary};
use crate::files::host;
use crate::progress::telling;
use crate::remote::Failure;
use crate::session::{Session, dataset, pool_of};
use crate::verb::{Answered, Looks, Needs, Verb};

/// Copy a volume's content out or in, preserving holes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Copy {
    /// The volume, or when copying out, a snapshot of one.
    pub volume: String,
    /// The other side, as the caller named it.
    pub other: String,
    /// Direction.
    pub way: Way,
    /// Overwrite a file, or a volume that is not empty.
    #[serde(default)]
    pub replace: bool,
    /// Out of a pool: replace unreadable blocks by zeros.
    #[serde(default)]
    pub partial: bool,
}

/// The direction of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Out of the volume.
    Out(Sink),
    /// Into the volume.
    Into(Feed),
}

/// The destination of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sink {
    /// A new file in a folder opened by the caller.
    File {
        /// Index of the folder in the request's files.
        folder: usize,
        /// The file's name.
        #[serde(with = "text_or_bytes")]
        #[schemars(with = "text_or_bytes::TextOrBytes")]
        name: Vec<u8>,
    },
    /// A block device, by index in the request's files.
    Device(usize),
    /// Standard output.
    Stream,
    /// It can't be opened.
    Not(Failure),
}

/// The source of a volume's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Feed {
    /// A file or device, by index in the request's files.
    File(usize),
    /// Standard input.
    Stream,
}

impl Verb for Copy {
    const NAME: &'static str = "volume cp";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    const SEES_ALL: bool = true;
    type Answer = Summary;

    /// # Errors
    /// One side can't be opened, read or written, or is too small; an interrupt.
    async fn carry_out(self, session: &Session) -> Result<Answered<Summary>, ControlError> {
        match &self.way {
            Way::Out(sink) => self.out(session, sink).await,
            Way::Into(feed) => self.put(session, feed).await,
        }
    }
}

impl Copy {
    async fn out(&self, session: &Session, sink: &Sink) -> Result<Answered<Summary>, ControlError> {
        let mos = session.open_pool(pool_of(&self.volume)).await?;
        let volume = session.volume(&dataset(&mos, &self.volume).await?).await?;
        let is_device = matches!(sink, Sink::Device(_));
        let sink = self.sink(session, sink, volume.size_bytes())?;
        let options = CopyOptions {
            replace: self.replace,
            metadata: false,
            partial: self.partial,
            ..CopyOptions::default()
        };
        let losses = Losses::default();
        let told = losses.clone();
        let copier = Copier::new(session.runtime(), options, move |loss| told.add(loss));
        let work = async {
            let copied = copier.copy_volume(&volume, self.volume.as_bytes(), sink);
            let now = || (String::new(), copier.copied().bytes, volume.size_bytes());
            telling(session, copied, now).await.map_err(|reason| self.failure(reason))
        };
        // A file gets its name only once complete.
        let left = || match is_device {
            true => format!("{} is partly overwritten", self.other),
            false => "nothing was left behind".into(),
        };
        match session.caller().unless_interrupted(work, left).await {
            // The reader of a stream has seen enough.
            Err(error) if error.is_broken_pipe() => {
                return Ok(losses.summary(copier.copied()).into());
            }
            done => done?,
        }
        losses.tell(session.caller());
        Ok(Answered { answer: losses.summary(copier.copied()), outcome: losses.outcome() })
    }

    fn sink(&self, session: &Session, sink: &Sink, size_bytes: u64) -> Result<VolumeSink, ControlError> {
        let caller = session.caller();
        match sink {
            Sink::Stream => {
                let output = caller.console.output().map_err(ControlError::io("standard output"))?;
                Ok(VolumeSink::Stream(Box::new(output)))
            }
            Sink::Device(at) => {
                let file = File::from(caller.file(*at)?);
                VolumeSink::device(file, size_bytes).map_err(ControlError::io(self.other.clone()))
            }
            Sink::File { folder, name } => {
                let folder = Folder::of(caller.file(*folder)?)
                    .map_err(|errno| ControlError::io(self.other.clone())(errno.into()))?;
                Ok(VolumeSink::File(folder, host::name(name)?))
            }
            Sink::Not(failure) => Err(failure.clone().into()),
        }
    }

    fn failure(&self, reason: Reason) -> ControlError {
        let other = &self.other;
        match reason {
            Reason::Pool(error) => error.into(),
            Reason::System(Errno::EXIST) => {
                ControlError::Usage(format!("{other} exists already; -f replaces it"))
            }
            Reason::System(errno) => ControlError::io(other.clone())(errno.into()),
            Reason::Because(why) => ControlError::NotFound(format!("{other}: {why}")),
        }
    }
}
