//! Volumes served by iSCSI: every volume is a target, with the volume as logical unit 0.
//!
//! ```text
//!   tank/vm_1        iqn.2026-11.org.cenote:tank:vm.5f1
//!   tank/vm@monday   iqn.2026-11.org.cenote:tank:vm.40monday
//! ```
//!
//! Names: `/` is a colon; small letters, digits and `-` are themselves; any other character is a full stop
//! and its code in two hexadecimal digits. So names can be read back, and no two volumes of a machine share
//! one.
//!
//! Persistent reservations that are to be kept are a user property of the volume, [`KEPT_PROPERTY`]: they go
//! where the pool goes.

use std::sync::Arc;

use cenote_dataset::{Source, Value};
use cenote_disk::{Ended, Errno, Failure, Limits};
use cenote_fs::FsError;
use cenote_iscsi::{Accounts, Identity, Luns, Portal, Targets, Unit};
use cenote_object::DatasetError;
use cenote_runtime::Runtime;
use cenote_tasks::{Instead, inherit, set_property};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::cancel::Cancel;
use crate::disk::{failure, refused};
use crate::listen::{Place, Visitor};
use crate::pools::Pools;
use crate::volumes::{ServedVolume, list};

/// What names of targets begin with, unless the administrator says otherwise.
pub const NAME: &str = "iqn.2026-11.org.cenote";
/// The user property that keeps persistent reservations.
const KEPT_PROPERTY: &str = "org.cenote:iscsi.reservations";
/// The longest name, as the protocol has it.
const NAME_BYTES_MAX: usize = 223;

/// How volumes are served by iSCSI.
pub struct IscsiServer {
    /// The pools.
    pub pools: Arc<Pools>,
    /// What names of targets are made of.
    pub names: Names,
    /// What clients may take.
    pub limits: Limits,
    /// Who may log in.
    pub accounts: Accounts,
    /// Where clients come in.
    pub places: Vec<Place>,
    /// What the sessions of each volume share.
    pub luns: Luns,
}

impl IscsiServer {
    /// Serves one client to the end of its connection.
    ///
    /// # Errors
    /// It does not speak the protocol, stalls, or has gone without a word.
    pub async fn serve(&self, runtime: &Runtime, visitor: Visitor) -> Result<(), Ended> {
        let cancel = Cancel::default();
        let who = format!("iSCSI {}", visitor.who);
        let (pools, names) = (self.pools.clone(), self.names.clone());
        let served = Served { pools, names, who, cancel: cancel.clone() };
        let portal = self.portal(&visitor.here);
        let stream = visitor.stream;
        let work =
            cenote_iscsi::serve(stream, runtime, &self.limits, &served, &self.accounts, &portal, &self.luns);
        tokio::select! {
            biased;
            () = cancel.cancelled() => Ok(()),
            done = work => done,
        }
    }

    /// The addresses that a client is told: the one that it used, and others that it may reach.
    fn portal(&self, here: &Place) -> Portal {
        let may_reach = |place: &&Place| match place {
            Place::Tcp(address) => !address.ip().is_unspecified() && here.is_local() >= place.is_local(),
            Place::Unix(_) => false,
        };
        let all = self.places.iter().filter(may_reach).map(Place::to_string).collect();
        Portal { here: here.to_string(), all }
    }
}

/// All volumes, for one client.
struct Served {
    pools: Arc<Pools>,
    names: Names,
    who: String,
    cancel: Cancel,
}

impl Targets for Served {
    fn list(&self) -> BoxFuture<'_, Vec<String>> {
        let listed = async {
            let all = list(&self.pools).await.unwrap_or_default();
            let names = all.iter().map(|volume| self.names.target_of(&volume.name));
            names.filter(|name| name.len() <= NAME_BYTES_MAX).collect()
        };
        listed.boxed()
    }

    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Arc<dyn Unit>, Failure>> {
        let opened = async move {
            let unknown = || Failure::new(Errno::Invalid, format!("there is no target '{name}'"));
            let volume = self.names.volume_of(name).ok_or_else(unknown)?;
            let volume = ServedVolume::open(&self.pools, &volume, &self.who, &self.cancel).await;
            Ok(Arc::new(volume.map_err(|error| refused(&error))?) as Arc<dyn Unit>)
        };
        opened.boxed()
    }
}

impl Unit for ServedVolume {
    fn identity(&self) -> Identity {
        let (pool, dataset) = self.guids();
        Identity::new(pool.0, dataset.0, self.name())
    }

    fn kept(&self) -> BoxFuture<'_, Result<Option<String>, Failure>> {
        let kept = async {
            // A snapshot inherits what its volume has.
            let Some((engine, name)) = self.changeable() else { return Ok(None) };
            let found = engine.mos().await?.dataset(name).await?.property(KEPT_PROPERTY).await?;
            let found = found.filter(|property| property.source == Source::Local);
            Ok::<_, DatasetError>(found.map(|property| property.literal()))
        };
        kept.map(|kept| kept.map_err(|error| failure(&error.into()))).boxed()
    }

    fn keep(&self, text: Option<String>) -> BoxFuture<'_, Result<(), Failure>> {
        let keeping = async move {
            let Some((engine, name)) = self.changeable() else {
                return Err(DatasetError::unsuitable(self.name(), "is read-only"));
            };
            match text {
                Some(text) => set_property(engine, name, KEPT_PROPERTY, Value::Text(text)).await,
                None => inherit(engine, name, KEPT_PROPERTY, Instead::Inherited).await,
            }
        };
        keeping.map(|kept| kept.map_err(|error| failure(&FsError::from(error)))).boxed()
    }
}

/// Names of targets: those of volumes after what this server's names begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names(String);

impl Default for Names {
    fn default() -> Names {
        Names(format!("{NAME}:"))
    }
}

impl Names {
    /// After a name of the administrator's: `iqn.YEAR-MONTH.DOMAIN`, perhaps with more after a colon.
    ///
    /// # Errors
    /// It is not one; the text says what is wanted.
    pub fn parse(typed: &str) -> Result<Names, String> {
        let wrong = || format!("'{typed}' is no iSCSI name: `{NAME}`, or `iqn.YEAR-MONTH.DOMAIN:STORAGE1`");
        let is_one = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.:".contains(&byte);
        let (year, domain) = typed.strip_prefix("iqn.").and_then(|rest| rest.split_once('-')).ok_or_else(wrong)?;
        let (month, domain) = domain.split_once('.').ok_or_else(wrong)?;
        let is_number = |text: &str, digits| text.len() == digits && text.bytes().all(|it| it.is_ascii_digit());
        let is_sound = is_number(year, 4) && is_number(month, 2) && !domain.is_empty();
        match is_sound && typed.bytes().all(is_one) && typed.len() <= NAME_BYTES_MAX / 2 {
            true => Ok(Names(format!("{typed}:"))),
            false => Err(wrong()),
        }
    }

    /// The name of a volume's target.
    fn target_of(&self, volume: &str) -> String {
        let mut name = self.0.clone();
        for byte in volume.bytes() {
            match byte {
                b'a'..=b'z' | b'0'..=b'9' | b'-' => name.push(byte.into()),
                b'/' => name.push(':'),
                _ => name += &format!(".{byte:02x}"),
            }
        }
        name
    }

    /// The volume of a target's name.
    fn volume_of(&self, target: &str) -> Option<String> {
        let mut bytes = target.strip_prefix(&self.0)?.bytes();
        let mut name = Vec::new();
        while let Some(byte) = bytes.next() {
            name.push(match byte {
                b'.' => {
                    let mut digit = || char::from(bytes.next()?).to_digit(16);
                    (digit()? << 4 | digit()?) as u8
                }
                b':' => b'/',
                byte => byte,
            });
        }
        String::from_utf8(name).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_targets_are_read_back() {
        let names = Names::default();
        assert_eq!(names.target_of("tank/vm_1@Mon"), format!("{NAME}:tank:vm.5f1.40.4don"));
        for volume in ["tank/a", "t/A.b:c d@x-y", "tank/é"] {
            assert_eq!(names.volume_of(&names.target_of(volume)).as_deref(), Some(volume));
        }
        assert!(names.volume_of("iqn.other:tank").is_none());
        assert!(names.volume_of(&format!("{NAME}:a.4")).is_none());
    }

    #[test]
    fn a_server_has_names_of_its_own() {
        let names = Names::parse("iqn.2026-11.com.example:storage1").unwrap();
        assert_eq!(names.target_of("tank/vm"), "iqn.2026-11.com.example:storage1:tank:vm");
        for wrong in ["", "storage1", "iqn.2026.com", "iqn.2026-11.", "iqn.2026-11.Com", "iqn.26-11.com", "iqn.2026-11.a b"] {
            assert!(Names::parse(wrong).is_err(), "{wrong}");
        }
    }
}
