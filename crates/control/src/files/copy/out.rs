//! `cp` out of a pool, into a folder opened by the caller.

use cenote_fs::LastLink;
use cenote_inspect::copy::{Copier, CopyOptions, CopySource, Folder, Name};

use super::below::{self, Below};
use super::losses::{Losses, Summary};
use super::total::Total;
use super::{Cp, Source, own_name, progress};
use crate::error::{ControlError, Outcome};
use crate::files::host;
use crate::files::place::Places;
use crate::progress::telling;
use crate::remote::Failure;
use crate::session::Session;
use crate::text::counted_as;
use crate::verb::Answered;

/// A source, and its copy's path below the destination. With an empty path its contents go directly into that
/// folder.
struct Job {
    source: CopySource,
    names: Vec<Name>,
}

impl Cp {
    /// Copies into a folder, or to a name in it.
    pub(super) async fn out(
        &self,
        session: &Session,
        folder: usize,
        name: Option<&[u8]>,
    ) -> Result<Answered<Summary>, ControlError> {
        let folder = Folder::of(session.caller().file(folder)?).map_err(|errno| {
            ControlError::Usage(format!("the destination is no folder that can be used: {errno}"))
        })?;
        let name = name.map(host::name).transpose()?;
        if name.is_some() && self.sources.len() > 1 {
            return Err(ControlError::Usage("several sources need a folder that exists".into()));
        }
        let (jobs, found) = self.jobs(session, name).await?;
        let options = CopyOptions {
            replace: self.replace,
            metadata: !self.no_metadata,
            partial: self.partial,
            ..CopyOptions::default()
        };
        let losses = Losses::default();
        let told = losses.clone();
        let copier = Copier::new(session.runtime(), options, move |loss| told.add(loss));
        let work = async {
            for Job { source, names } in &jobs {
                if names.is_empty() {
                    copier.copy_into(source, &folder).await;
                    continue;
                }
                let (folder, name) = below::place(&folder, names)?;
                copier.copy(source, &folder, name).await;
            }
            Ok::<(), ControlError>(())
        };
        let total = match self.count {
            true => Total::of_pool(session.runtime(), jobs.iter().map(|job| job.source.clone()).collect()),
            false => Total::default(),
        };
        let work = async {
            tokio::select! {
                biased; // handle interrupts before the first file is made
                () = session.caller().interrupted() => Ok(Some("interrupted")),
                () = losses.full() => Ok(Some("the destination is full")),
                done = work => done.map(|()| None),
            }
        };
        let stopped = telling(session, work, || progress(copier.copied(), total.bytes())).await?;
        let copied = copier.copied();
        losses.tell(session.caller());
        let (mut answer, mut outcome) = (losses.summary(copied), losses.outcome().and(found));
        if let Some(why) = stopped {
            let error = ControlError::Stopped(format!(
                "{why}; {} copied, each complete; folders may lack their modes and times",
                counted_as(copied.files, "file is", "files are")
            ));
            outcome = error.outcome();
            answer.ended = Some(Failure::from(&error));
        }
        Ok(Answered { answer, outcome })
    }

    /// Finds the sources and reports skipped ones. `name`: the name of a single copy, if the destination is
    /// not an existing folder.
    async fn jobs(&self, session: &Session, name: Option<Name>) -> Result<(Vec<Job>, Outcome), ControlError> {
        // Follows a named link unless copying whole trees.
        let last = if self.recursive { LastLink::Keep } else { LastLink::Follow };
        let mut places = Places::new(session);
        let (mut jobs, mut outcome) = (Vec::new(), Outcome::Done);
        for source in &self.sources {
            let Source::InPool(target) = source else {
                return Err(ControlError::Usage("one of source and destination is to lie in a pool".into()));
            };
            let place = places.find(target, last).await?;
            if place.attr.is_dir() && !self.recursive {
                return Err(ControlError::Usage(format!("{target} is a folder: copy it with -r")));
            }
            let path = target.path_in(&place.filesystem).await;
            let contents = path.ends_with(b"/.") && name.is_none();
            let own_name = || {
                let name = Name::new(own_name(&target.dataset, path));
                let why =
                    || ControlError::Usage(format!("{target}: give the copy a name at the destination"));
                name.ok_or_else(why)
            };
            let name = match (&name, contents) {
                (Some(name), _) => Some(name.clone()),
                (None, true) => None,
                (None, false) => Some(own_name()?),
            };
            if self.datasets {
                let (found, how) = below::find(session, &place).await?;
                outcome = outcome.and(how);
                jobs.extend(found.into_iter().map(|Below { source, names }| Job {
                    source,
                    names: name.iter().cloned().chain(names).collect(),
                }));
            } else if self.recursive {
                let is_root = place.object == place.filesystem.root();
                below::tell_left_out(session, &place.dataset, is_root).await;
            }
            let source = CopySource { filesystem: place.filesystem, object: place.object, path: place.shown };
            jobs.push(Job { source, names: name.into_iter().collect() });
        }
        Ok((jobs, outcome))
    }
}
