//! `volume cp` into a pool: a file, a device or standard input becomes the content of a volume.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;

use cenote_engine::Engine;
use cenote_fs::VolumeWriter;
use cenote_inspect::put::{VolumePutter, VolumeSource};
use serde::Serialize;

use super::VolumeCp;
use crate::outcome::{CliError, Outcome, Printed};
use crate::render::nice_bytes;
use crate::session::{Progress, Session, Target, dataset, interrupted, print_json, watch};
use crate::streams::{local, streams};

/// The JSON summary.
#[derive(Serialize)]
struct Summary {
    bytes: u64,
}

impl VolumeCp {
    /// Copies the source into the destination volume.
    pub(super) async fn put(&self, session: &Session) -> Result<Outcome, CliError> {
        let shown = self.destination.display().to_string();
        let target: Target = shown.parse().map_err(CliError::Usage)?;
        if target.path.is_some() || target.dataset.contains('@') {
            return Err(CliError::Usage(format!("{shown} is not a writable volume")));
        }
        let source = self.source()?;
        let work = async |engine: &Engine| {
            let putter = self.open(engine, &target.dataset, &source).await?;
            let total = match &source {
                VolumeSource::File(_, size_bytes) => *size_bytes,
                VolumeSource::Stream(_) => putter.volume().size_bytes(),
            };
            let progress = Progress::bytes(total, false);
            let work = putter.put(source, &self.source);
            let mut work =
                std::pin::pin!(watch(session.runtime(), work, |_| progress.set(putter.copied_bytes())));
            let done = tokio::select! {
                biased;
                () = interrupted() => {
                    putter.stop();
                    work.await
                }
                done = work.as_mut() => done,
            };
            progress.finish();
            if !done? {
                return Err(CliError::Stopped(format!("interrupted; {shown} is partly overwritten")));
            }
            match session.json() {
                true => Ok(Outcome::Done.printed(print_json(&Summary { bytes: putter.copied_bytes() }))),
                false => Ok(Outcome::Done),
            }
        };
        session.change_pool(target.pool(), work).await
    }

    fn source(&self) -> Result<VolumeSource, CliError> {
        if self.source == "-" {
            return Ok(VolumeSource::Stream(Box::new(streams().stdin.clone())));
        }
        let path = local(Path::new(&self.source));
        let opened = File::open(&path).and_then(|mut file| {
            let kind = file.metadata()?;
            let size_bytes = if kind.is_dir() { 0 } else { file.seek(SeekFrom::End(0))? };
            Ok((file, size_bytes, kind.is_dir()))
        });
        match opened.map_err(CliError::io(self.source.clone()))? {
            (_, _, true) => Err(CliError::Usage(format!("{} is a folder: name a file", self.source))),
            (file, size_bytes, false) => Ok(VolumeSource::File(file, size_bytes)),
        }
    }

    /// The volume, if it may be overwritten and is large enough.
    async fn open(
        &self,
        engine: &Engine,
        name: &str,
        source: &VolumeSource,
    ) -> Result<VolumePutter, CliError> {
        let found = dataset(&engine.mos().await?, name).await?;
        if found.property("readonly").await?.is_some_and(|property| property.number() == Some(1)) {
            return Err(CliError::Usage(format!("{name} has the property readonly=on")));
        }
        let putter = VolumePutter::new(engine, VolumeWriter::shared(engine, name).await?);
        let volume = putter.volume();
        match source {
            VolumeSource::File(_, size_bytes) if *size_bytes > volume.size_bytes() => {
                let (has, holds) = (nice_bytes(*size_bytes), nice_bytes(volume.size_bytes()));
                let wanted = size_bytes.next_multiple_of(volume.block_bytes());
                return Err(CliError::Usage(format!(
                    "{} has {has}, {name} holds {holds}; `cenote zfs set volsize={wanted} {name}` grows it",
                    self.source
                )));
            }
            _ => {}
        }
        if !self.force && volume.view().await?.next_data(0).await?.is_some() {
            return Err(CliError::Usage(format!("{name} is not empty; -f overwrites it")));
        }
        Ok(putter)
    }
}
