//! Images of Ceph clusters (RBD).
//!
//! Names are those of the program `rbd`: a pool, perhaps a namespace, an image; never a snapshot. Ceph's keys
//! are found by Ceph's configuration and a user's name, so no address has a secret.

use std::path::{Path, PathBuf};

use super::{PlaceError, RBD, decode, encode, unknown};

/// The folder of images in labels: the kernel's client makes these names.
const IN_LABELS: &str = "/dev/rbd/";
const CONF: &str = "conf";
const ID: &str = "id";
/// Longest name; Ceph's own bounds are lower.
const NAME_BYTES_MAX: usize = 255;

/// An image of a Ceph cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RbdPlace {
    /// Ceph's pool.
    pub pool: String,
    /// Its namespace; `None`: the default one.
    pub namespace: Option<String>,
    /// The image.
    pub image: String,
    /// Ceph's configuration; `None`: `CEPH_CONF`, or `/etc/ceph/ceph.conf`.
    pub conf: Option<PathBuf>,
    /// Ceph's user, without `client.`; `None`: `admin`.
    pub user: Option<String>,
}

impl RbdPlace {
    /// The rest of an address; `None`: it is a path, or an address of another kind.
    pub(super) fn after_scheme(text: &str) -> Option<&str> {
        text.strip_prefix("rbd:").filter(|rest| !rest.starts_with('/'))
    }

    /// `POOL[/NAMESPACE]/IMAGE[?conf=PATH&id=USER]`
    pub(super) fn parse(rest: &str) -> Result<RbdPlace, PlaceError> {
        let (body, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut place = named(body).ok_or(PlaceError::Image)?;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(value);
            match name {
                CONF => {
                    let path = value.map(PathBuf::from).filter(|path| path.is_absolute());
                    let path = path.filter(|_| place.conf.is_none());
                    place.conf = Some(path.ok_or(PlaceError::NoPath { scheme: RBD, name: CONF })?);
                }
                ID => {
                    let user = value.filter(|user| place.user.is_none() && is_user(user));
                    place.user = Some(user.ok_or(PlaceError::RbdUser)?);
                }
                _ => return Err(unknown(RBD, name)),
            }
        }
        Ok(place)
    }

    /// An image by its path in labels, unless the kernel has a block device of that name.
    pub(super) fn of_label(path: &str) -> Option<RbdPlace> {
        let place = named(path.strip_prefix(IN_LABELS)?)?;
        (!Path::new(path).exists()).then_some(place)
    }

    pub(super) fn in_labels(&self) -> PathBuf {
        let mut text = IN_LABELS.to_owned();
        self.put_names(&mut text);
        text.into()
    }

    pub(super) fn shown(&self) -> String {
        let mut text = "rbd:".to_owned();
        self.put_names(&mut text);
        text
    }

    /// `?conf=PATH&id=USER`
    pub(super) fn put_parameters(&self, text: &mut String) {
        let conf = self.conf.as_ref().map(|path| (CONF, path.to_string_lossy()));
        let user = self.user.as_ref().map(|user| (ID, user.into()));
        for (at, (name, value)) in conf.into_iter().chain(user).enumerate() {
            *text += if at == 0 { "?" } else { "&" };
            *text += name;
            text.push('=');
            encode(text, &value, true);
        }
    }

    fn put_names(&self, text: &mut String) {
        encode(text, &self.pool, false);
        for name in self.namespace.iter().chain([&self.image]) {
            text.push('/');
            encode(text, name, false);
        }
    }
}

fn named(body: &str) -> Option<RbdPlace> {
    let names: Vec<String> = body.split('/').map(decode).collect::<Option<_>>()?;
    let is_name = |name: &String| {
        (1..=NAME_BYTES_MAX).contains(&name.len())
            && !name.contains(['/', '@', '\0'])
            && !name.starts_with('.')
    };
    if !names.iter().all(is_name) {
        return None;
    }
    let (pool, namespace, image) = match names.as_slice() {
        [pool, image] => (pool, None, image),
        [pool, namespace, image] => (pool, Some(namespace.clone()), image),
        _ => return None,
    };
    let (pool, image) = (pool.clone(), image.clone());
    Some(RbdPlace { pool, namespace, image, conf: None, user: None })
}

fn is_user(user: &str) -> bool {
    let may_be = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !user.is_empty() && user.len() <= NAME_BYTES_MAX && user.bytes().all(may_be)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;

    #[test]
    fn the_parameters_are_recorded_but_not_shown() {
        let place = Place::parse("rbd:vms/ns/x?id=zfs&conf=/etc/my%20c.conf").unwrap();
        assert_eq!(place.recorded(), PathBuf::from("rbd:vms/ns/x?conf=/etc/my%20c.conf&id=zfs"));
        assert_eq!(place.to_string(), "rbd:vms/ns/x");
        assert_eq!(Place::from(place.recorded()), place);
    }

    #[test]
    fn a_path_with_that_beginning_stays_a_path() {
        for path in ["rbd:/a", "./rbd:a/b", "/dev/rbd/a", "/dev/rbd/.x/y", "/dev/rbd/a/b/c/d", "/dev/rbd0"] {
            assert_eq!(Place::parse(path), Ok(Place::Path(path.into())));
        }
    }
}
