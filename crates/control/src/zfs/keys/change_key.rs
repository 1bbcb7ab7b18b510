//! `zfs change-key`: changes the key of an encrypted dataset.
//!
//! Source: OpenZFS `zfs_main.c` (`zfs_do_change_key`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ControlError;
use crate::permissions::Permissions;
use crate::refusal::cannot;
use crate::session::{Session, dataset, pool_of};
use crate::verb::{Answered, Looks, Needs, Verb};
use crate::zfs::permitted::to_set;
use crate::zfs::properties::settings::{Setting, read_all};

const OF_KEYS: [&str; 3] = ["keyformat", "keylocation", "pbkdf2iters"];

/// Change the key of an encrypted dataset. The new key is the dataset's second in the request, or is prompted
/// for or piped in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangeKey {
    /// An encryption root, or a dataset that becomes one.
    pub name: String,
    /// Inherit the parent's key: the dataset is then no longer an encryption root.
    #[serde(default)]
    pub inherit: bool,
    /// Load the current key first, as the daemon needs it; without a daemon it is always requested.
    #[serde(default)]
    pub load: bool,
    /// `keyformat`, `keylocation`, `pbkdf2iters`, and user properties.
    #[serde(default)]
    pub settings: Vec<Setting>,
}

impl Verb for ChangeKey {
    const NAME: &'static str = "zfs change-key";
    const NEEDS: Needs = Needs::Delegated;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    async fn permissions(&self, session: &Session) -> Result<Permissions, ControlError> {
        let name = &self.name;
        let mut permissions = Permissions::to(format!("change key of '{name}'"));
        let head = dataset(&session.pool_to_ask(name).await?, name).await?;
        permissions.need(&head, if self.load { &["change-key", "load-key"] } else { &["change-key"] });
        if to_set(&self.settings)?.contains(&"userprop".to_owned()) {
            permissions.need(&head, &["userprop"]);
        }
        Ok(permissions)
    }

    /// # Errors
    /// The dataset is not encrypted; its key is not loaded; the new key is unavailable.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let (name, what) = (&self.name, format!("change key of '{}'", self.name));
        let refused = |why: String| ControlError::Refused(format!("cannot {what}: {why}"));
        let settings = read_all(&self.settings, None).map_err(refused)?;
        let (own, settings): (Vec<_>, Vec<_>) =
            settings.into_iter().partition(|(name, _)| name.contains(':'));
        if let Some((name, _)) = settings.iter().find(|(name, _)| !OF_KEYS.contains(&name.as_str())) {
            return Err(refused(format!("'{name}' is not a key property")));
        }
        if let Some(pool) = session.held_by_name(pool_of(name)).filter(|_| self.load) {
            let info = session.mos_as_checked(&pool).await?.dataset(name).await?.dir().encryption().await?;
            session.load_keys(&pool, info.as_ref().map(|info| info.root.as_str())).await?;
        }
        let changed = session.change_pool(pool_of(name), async |engine| {
            let changed = match self.inherit {
                true => cenote_tasks::inherit_key(engine, name).await,
                false => cenote_tasks::change_key(engine, name, settings).await,
            };
            changed.map_err(cannot(&what))?;
            for (property, value) in own {
                let set = cenote_tasks::set_property(engine, name, &property, value).await;
                set.map_err(cannot(&what))?;
            }
            Ok(())
        });
        Ok(changed.await?.into())
    }
}
