//! Properties that a receive sets or excludes, against the stream: `-o` and `-x`.
//!
//! ```text
//!              new dataset                 existing one
//!   -o  top    set when it is made         set after the stream
//!   -o  below  inherited from the top      inherited from the top
//!   -x         inherited, though received; one that can't be inherited is not received
//! ```
//!
//! Source: OpenZFS `libzfs_sendrecv.c` (`zfs_setup_cmdline_props`, `zfs_receive_checkprops`).

use cenote_dataset::{Dataset, Source, Value};
use cenote_engine::Engine;
use cenote_format::props::{AppliesTo, Prop};
use cenote_tasks::{Instead, Settings, inherit, set_property};

use crate::receive::error::{RECEIVE, ReceiveError, Result};
use crate::receive::host::Host;
use crate::receive::{Order, Received};

/// Properties of a dataset's own keys: `zfs_prop_encryption_key_param`, and the cipher.
const OF_KEYS: [&str; 4] = ["encryption", "keyformat", "pbkdf2iters", "pbkdf2salt"];

/// The dataset of a stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) name: &'a str,
    pub(super) is_volume: bool,
    pub(super) is_top: bool,
    /// The stream is full, or a clone's.
    pub(super) is_new: bool,
    pub(super) is_recursive: bool,
    pub(super) is_raw: bool,
}

/// The changes for one dataset.
#[derive(Debug, Default)]
pub(super) struct Overrides {
    /// Set, afterwards or when the dataset is made.
    pub(super) set: Settings,
    /// Inherited, though received.
    inherited: Vec<String>,
    /// Not received at all.
    left_out: Vec<String>,
}

/// Refuses properties that can't be set.
pub(super) fn check(order: &Order) -> Result<()> {
    let names = order.settings.iter().map(|(name, _)| name).chain(&order.excluded);
    for name in names.filter(|name| !OF_KEYS.contains(&name.as_str())) {
        let is_wrong = match Prop::zfs(name) {
            Some(prop) => {
                prop.is_read_only() || prop.is_one_time() || ["version", "volsize"].contains(&prop.name)
            }
            None => !name.contains(':'),
        };
        if is_wrong {
            let why = format!("{RECEIVE}: invalid property '{name}'");
            return Err(ReceiveError::refused(RECEIVE, why));
        }
    }
    Ok(())
}

impl Overrides {
    pub(super) async fn of(
        order: &Order,
        what: &'static str,
        target: Target<'_>,
        found: Option<&Dataset>,
        host: &dyn Host,
    ) -> Result<Overrides> {
        let mut overrides = Overrides::default();
        let kind = if target.is_volume { AppliesTo::VOL } else { AppliesTo::FS };
        let applies = |name: &str| Prop::zfs(name).is_none_or(|prop| prop.applies.overlaps(kind));
        for name in &order.excluded {
            if is_of_keys(what, target, name, false)? {
                // By default, a dataset inherits its parent's encryption.
                continue;
            }
            if !applies(name) {
                let why = "does not apply to datasets of this type";
                host.warn(format!("Warning: {}: property '{name}' {why}", target.name));
                continue;
            }
            let own = match found {
                Some(found) => found.property(name).await?,
                None => None,
            };
            if own.is_some_and(|own| own.source == Source::Local) {
                continue;
            }
            match Prop::zfs(name).is_none_or(Prop::is_inheritable) {
                true => overrides.inherited.push(name.clone()),
                false => overrides.left_out.push(name.clone()),
            }
        }
        for (name, value) in &order.settings {
            if is_of_keys(what, target, name, true)? && !(target.is_new && target.is_top) {
                continue;
            }
            match (applies(name), target.is_top) {
                (true, true) => overrides.set.push((name.clone(), value.clone())),
                (true, false) => overrides.inherited.push(name.clone()),
                (false, _) if target.is_recursive => {}
                (false, _) => {
                    let why = format!("property '{name}' does not apply to datasets of this type");
                    return Err(ReceiveError::refused(what, why));
                }
            }
        }
        Ok(overrides)
    }

    /// The remaining properties of a stream.
    pub(super) fn received(&self, mut received: Settings) -> Settings {
        received.retain(|(name, _)| !self.left_out.contains(name));
        received
    }

    /// A dataset whose properties were sent in the clear is not encrypted, unless the options say so.
    pub(super) fn decrypt(&mut self, order: &Order) {
        let is_meant = |name: &String| name == "encryption";
        let off = Prop::zfs("encryption").and_then(|prop| prop.index_number("off"));
        if order.excluded.iter().chain(order.settings.iter().map(|(name, _)| name)).any(is_meant) {
            return;
        }
        self.set.extend(off.map(|off| ("encryption".to_owned(), Value::Number(off))));
    }

    /// Applies the changes that follow the stream.
    pub(super) async fn follow(
        self,
        engine: &Engine,
        name: &str,
        is_made: bool,
        received: &mut Received,
    ) -> Result<()> {
        let mut refused = |property: String, done: cenote_object::Result<()>| match done {
            Err(error) if error.is_refusal() => {
                received.refused.push((name.to_owned(), property, error.to_string()));
                Ok(())
            }
            done => done,
        };
        for (property, value) in self.set.into_iter().filter(|_| !is_made) {
            let done = set_property(engine, name, &property, value).await;
            refused(property, done)?;
        }
        for property in self.inherited {
            let done = inherit(engine, name, &property, Instead::Inherited).await;
            refused(property, done)?;
        }
        Ok(())
    }
}

/// Whether a property is about keys; if so, whether it may be given.
fn is_of_keys(what: &'static str, target: Target<'_>, name: &str, is_set: bool) -> Result<bool> {
    if !OF_KEYS.contains(&name) {
        return Ok(false);
    }
    let refuse = |why: &str| {
        Err(ReceiveError::refused(what, format!("encryption property '{name}' cannot be {why} streams.")))
    };
    match () {
        () if target.is_raw => refuse("set or excluded for raw"),
        () if is_set && !target.is_new && !target.is_recursive => refuse("set for incremental"),
        () => Ok(true),
    }
}
