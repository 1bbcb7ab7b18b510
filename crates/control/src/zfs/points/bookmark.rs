//! `zfs bookmark`: keeps a snapshot's point in time, so that the snapshot can be destroyed.

use cenote_dataset::{Dataset, Mos};
use cenote_object::DatasetError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tagged::snapshots_or_none;
use crate::error::ControlError;
use crate::permissions::Permissions;
use crate::refusal::cannot;
use crate::session::{Session, dataset, pool_of};
use crate::verb::{Answered, Looks, Needs, Verb};
use crate::zfs::permitted::head_of;

/// Bookmark a snapshot, to send changes since then even after it is destroyed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bookmark {
    /// Full name of a snapshot or bookmark.
    pub source: String,
    /// New bookmark, `DATASET#NAME`.
    pub bookmark: String,
    /// Also bookmark the snapshots of the same name in all datasets below; those without one are left out.
    #[serde(default)]
    pub recursive: bool,
}

impl Verb for Bookmark {
    const NAME: &'static str = "zfs bookmark";
    const NEEDS: Needs = Needs::Delegated;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    async fn permissions(&self, session: &Session) -> Result<Permissions, ControlError> {
        let mut permissions = Permissions::to(format!("create bookmark '{}'", self.bookmark));
        let mos = session.pool_to_ask(&self.bookmark).await?;
        for (_, bookmark) in self.marks(&mos).await? {
            permissions.need(&dataset(&mos, head_of(&bookmark)).await?, &["bookmark"]);
        }
        Ok(permissions)
    }

    /// # Errors
    /// The source is missing; the bookmark exists, or belongs to another dataset.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let Bookmark { source, bookmark, .. } = &self;
        if pool_of(source) != pool_of(bookmark) {
            let why = "bookmark is in a different pool";
            return Err(ControlError::Refused(format!("cannot create bookmark '{bookmark}': {why}")));
        }
        let made = session.change_pool(pool_of(bookmark), async |engine| {
            let marks = self.marks(&engine.mos().await?).await?;
            cenote_tasks::bookmark_all(engine, marks).await.map_err(|error| match &error {
                DatasetError::DatasetExists { name } => {
                    cannot(format!("create bookmark '{name}'"))(error.clone())
                }
                _ => cannot(format!("create bookmark '{bookmark}'"))(error),
            })
        });
        Ok(made.await.map_err(|error| error.of_dataset(source))?.into())
    }
}

impl Bookmark {
    /// Sources and bookmarks.
    async fn marks(&self, mos: &Mos) -> Result<Vec<(String, String)>, ControlError> {
        if !self.recursive {
            open_source(mos, &self.source).await?;
            return Ok(vec![(self.source.clone(), self.bookmark.clone())]);
        }
        let (true, Some((_, mark))) = (self.source.contains('@'), self.bookmark.split_once('#')) else {
            let why = "recursive bookmarks (-r) can only be created from a snapshot source";
            return Err(ControlError::Usage(why.into()));
        };
        // The source itself must exist.
        dataset(mos, &self.source).await?;
        let sources = snapshots_or_none(mos, &self.source, true).await?;
        let marked = |source: Dataset| (source.name().into(), format!("{}#{mark}", head_of(source.name())));
        Ok(sources.into_iter().map(marked).collect())
    }
}

/// A missing source goes before an existing bookmark: programs tell the two apart.
async fn open_source(mos: &Mos, source: &str) -> Result<(), ControlError> {
    let Some((marked, _)) = source.split_once('#') else {
        return dataset(mos, source).await.map(drop);
    };
    let marks = dataset(mos, marked).await?.bookmarks().await?;
    match marks.iter().any(|mark| mark.name == source) {
        true => Ok(()),
        false => Err(ControlError::NotFound(format!("cannot open '{source}': dataset does not exist"))),
    }
}
