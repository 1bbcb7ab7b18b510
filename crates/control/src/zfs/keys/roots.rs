//! Encryption roots selected by `load-key` and `unload-key`.
//!
//! Source: OpenZFS `libzfs_crypto.c` (`zfs_crypto_attempt_load_keys`, `zfs_crypto_load_key`).

use cenote_pool::FoundPool;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{ControlError, Outcome};
use crate::permissions::{FOR_ADMINS, Permissions};
use crate::session::{KeyDomain, Session, dataset, key_domains, pool_of};
use crate::verb::Answered;

/// Results by key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Keys {
    /// Encryption roots that succeeded.
    pub done: Vec<String>,
    /// Keys tried. None: a single root was named.
    pub tried: Option<u64>,
}

/// Runs work on the key of one encryption root, on those below it too, or on all. A failure does not stop the
/// others.
pub async fn each(
    session: &Session,
    name: Option<&str>,
    recursive: bool,
    verb: &str,
    work: impl AsyncFn(&FoundPool, &KeyDomain) -> Result<(), ControlError>,
) -> Result<Answered<Keys>, ControlError> {
    let found = match name {
        Some(name) => vec![session.find_pool(pool_of(name)).await?],
        None => session.find_pools(&[]).await?,
    };
    let (mut keys, mut tried, mut outcome) = (Keys::default(), 0, Outcome::Done);
    for found in &found {
        let mos = match session.open_without_asking(found).await {
            Ok(mos) => mos,
            Err(error) if name.is_none() => {
                outcome = outcome.and(session.caller().tell(found.name(), &error));
                continue;
            }
            Err(error) => return Err(error),
        };
        let mut domains = key_domains(&mos, name).await?;
        if let Some(name) = name.filter(|_| !recursive) {
            let why = match mos.dataset(name).await?.dir().encryption().await? {
                None => format!("'{name}' is not encrypted."),
                Some(info) if info.root != name => {
                    format!("Keys must be {verb}ed for encryption root of '{name}' ({}).", info.root)
                }
                Some(_) => {
                    domains.retain(|domain| domain.info.root == name);
                    let Some(domain) = domains.first() else {
                        return Ok(Answered { answer: keys, outcome: Outcome::Failed });
                    };
                    work(found, domain).await?;
                    keys.done.push(domain.info.root.clone());
                    return Ok(keys.into());
                }
            };
            return Err(ControlError::Refused(format!("Key {verb} error: {why}")));
        }
        for domain in &domains {
            tried += 1;
            match work(found, domain).await {
                Ok(()) => keys.done.push(domain.info.root.clone()),
                Err(error) => outcome = outcome.and(session.caller().tell(&domain.info.root, &error)),
            }
        }
    }
    keys.tried = Some(tried);
    Ok(Answered { answer: keys, outcome })
}

/// The permissions to load or unload them.
pub async fn permissions(
    session: &Session,
    verb: &str,
    name: Option<&str>,
    recursive: bool,
) -> Result<Permissions, ControlError> {
    let name = name.ok_or_else(|| ControlError::Refused(format!("cannot {verb} keys: {FOR_ADMINS}")))?;
    let mut permissions = Permissions::to(format!("{verb} key for '{name}'"));
    let mos = session.pool_to_ask(name).await?;
    permissions.need(&dataset(&mos, name).await?, &["load-key"]);
    for domain in key_domains(&mos, Some(name)).await?.iter().filter(|_| recursive) {
        permissions.need(&dataset(&mos, &domain.info.root).await?, &["load-key"]);
    }
    Ok(permissions)
}
