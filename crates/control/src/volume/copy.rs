//! `volume cp`: a volume, or a snapshot of one, goes to a file, a device or a stream; or one of them becomes
//! the content of a volume.
//!
//! Idea: files and devices are opened by the caller ([`crate::files::host`]); streams are its standard input
//! and output.

use std::fs::File;

use cenote_format::text_or_bytes;
use cenote_inspect::copy::{Copier, CopyOptions, Folder, Reason, VolumeSink};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::files::copy::losses::{Losses, Summary};
use crate::files::host;
use crate::progress::telling;
use crate::remote::Failure;
use crate::session::{Session, dataset, pool_of};
use crate::verb::{Answered, Looks, Needs, Verb};

/// A copy of a volume, or into one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copy {
    /// The volume; out of a pool, it may be a snapshot of one.
    pub volume: String,
    /// The other side, as the caller named it.
    pub other: String,
    /// Which way.
    pub way: Way,
    /// What is there is replaced: a file, or a volume that is not empty.
    #[serde(default)]
    pub replace: bool,
    /// Out of a pool: blocks that can't be read are zeros in the copy.
    #[serde(default)]
    pub partial: bool,
}

/// The direction of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Out of the volume.
    Out(Sink),
    /// Into the volume.
    Into(Feed),
}

/// The destination of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sink {
    /// To a new file in a folder that the caller has opened.
    File {
        /// The folder's place among the files of the request.
        folder: usize,
        /// The file's name.
        #[serde(with = "text_or_bytes")]
        name: Vec<u8>,
    },
    /// To a block device with this place among the files of the request.
    Device(usize),
    /// To standard output.
    Stream,
    /// It can't be opened.
    Not(Failure),
}

/// The source of a volume's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Feed {
    /// From the file or device with this place among the files of the request.
    File(usize),
    /// From standard input.
    Stream,
}

impl Verb for Copy {
    const NAME: &'static str = "volume cp";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    const SEES_ALL: bool = true;
    type Answer = Summary;

    /// # Errors
    /// One side can't be opened, read or written, or holds less than the other; it was interrupted.
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
        // A file gets its name only once it is complete.
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
