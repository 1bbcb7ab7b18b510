//! `volume cp` into a pool: fills a volume from a file, device or standard input.

use std::fs::File;
use std::io::{Seek, SeekFrom};

use cenote_engine::Engine;
use cenote_fs::VolumeWriter;
use cenote_inspect::copy::Copied;
use cenote_inspect::put::{VolumePutter, VolumeSource};

use super::copy::{Copy, Feed};
use crate::error::{ControlError, Outcome};
use crate::files::copy::losses::{Losses, Summary};
use crate::progress::telling;
use crate::session::{Session, dataset, pool_of};
use crate::text::nice_bytes;
use crate::verb::Answered;

impl Copy {
    pub(super) async fn put(
        &self,
        session: &Session,
        feed: &Feed,
    ) -> Result<Answered<Summary>, ControlError> {
        let source = self.source(session, feed)?;
        let mut copied = Copied::default();
        let work = async |engine: &Engine| {
            let putter = self.open(engine, &source).await?;
            let total_bytes = match &source {
                VolumeSource::File(_, size_bytes) => *size_bytes,
                VolumeSource::Stream(_) => putter.volume().size_bytes(),
            };
            let now = || (String::new(), putter.copied_bytes(), total_bytes);
            let mut work = std::pin::pin!(telling(session, putter.put(source, &self.other), now));
            let done = tokio::select! {
                biased;
                () = session.caller().interrupted() => {
                    putter.stop();
                    work.await
                }
                done = work.as_mut() => done,
            };
            if !done? {
                let volume = &self.volume;
                return Err(ControlError::Stopped(format!("interrupted; {volume} is partly overwritten")));
            }
            copied.bytes = putter.copied_bytes();
            Ok(Outcome::Done)
        };
        let outcome = session.change_pool(pool_of(&self.volume), work).await?;
        Ok(Answered { answer: Losses::default().summary(copied), outcome })
    }

    fn source(&self, session: &Session, feed: &Feed) -> Result<VolumeSource, ControlError> {
        match feed {
            Feed::Stream => {
                let input = session.caller().console.stream().map_err(ControlError::io("standard input"))?;
                Ok(VolumeSource::Stream(Box::new(input)))
            }
            Feed::File(at) => {
                let mut file = File::from(session.caller().file(*at)?);
                let size_bytes = file.seek(SeekFrom::End(0)).map_err(ControlError::io(self.other.clone()))?;
                Ok(VolumeSource::File(file, size_bytes))
            }
        }
    }

    /// The volume, if it may be overwritten and is large enough.
    async fn open(&self, engine: &Engine, source: &VolumeSource) -> Result<VolumePutter, ControlError> {
        let name = &self.volume;
        let found = dataset(&engine.mos().await?, name).await?;
        if found.property("readonly").await?.is_some_and(|property| property.number() == Some(1)) {
            return Err(ControlError::Usage(format!("{name} has the property readonly=on")));
        }
        let putter = VolumePutter::new(engine, VolumeWriter::shared(engine, name).await?);
        let volume = putter.volume();
        match source {
            VolumeSource::File(_, size_bytes) if *size_bytes > volume.size_bytes() => {
                let (has, holds) = (nice_bytes(*size_bytes), nice_bytes(volume.size_bytes()));
                let wanted = size_bytes.next_multiple_of(volume.block_bytes());
                return Err(ControlError::Usage(format!(
                    "{} has {has}, {name} holds {holds}; `cenote zfs set volsize={wanted} {name}` grows it",
                    self.other
                )));
            }
            _ => {}
        }
        if !self.replace && volume.view().await?.next_data(0).await?.is_some() {
            return Err(ControlError::Usage(format!("{name} is not empty; -f overwrites it")));
        }
        Ok(putter)
    }
}
