//! Names of targets.
//!
//! ```text
//!   tank/vm_1            iqn.2026-11.org.cenote:tank:vm.5f1
//!   tank/vm@monday       iqn.2026-11.org.cenote:tank:vm.40monday
//!   of several volumes   iqn.2026-11.org.cenote:cluster
//! ```
//!
//! `/` becomes a colon; small letters, digits and `-` stay; any other character becomes a full stop and its
//! two-digit hexadecimal code. So names can be decoded, and are unique per machine. Unlike a volume's, a
//! shared target's name has no second colon.

/// Default prefix of target names.
pub const NAME: &str = "iqn.2026-11.org.cenote";
/// The protocol's longest name.
pub(super) const NAME_BYTES_MAX: usize = 223;
/// The longest name set by an administrator.
const OWN_BYTES_MAX: usize = 64;

/// An administrator's name of a shared target: small letters, digits, `-` and full stops.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TargetName(pub(super) String);

impl TargetName {
    pub(super) fn parse(typed: &str) -> Option<TargetName> {
        let is_one = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        let is_sound = (1..=OWN_BYTES_MAX).contains(&typed.len()) && typed.bytes().all(is_one);
        is_sound.then(|| TargetName(typed.into()))
    }
}

/// Target names: this server's prefix and the volume's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names(String);

impl Default for Names {
    fn default() -> Names {
        Names(format!("{NAME}:"))
    }
}

impl Names {
    /// With an administrator's prefix: `iqn.YEAR-MONTH.DOMAIN`, optionally with more after a colon.
    ///
    /// # Errors
    /// Another form; the text names the valid one.
    pub fn parse(typed: &str) -> Result<Names, String> {
        let wrong = || format!("'{typed}' is no iSCSI name: `{NAME}`, or `iqn.YEAR-MONTH.DOMAIN:STORAGE1`");
        let is_one = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.:".contains(&byte);
        let (year, domain) =
            typed.strip_prefix("iqn.").and_then(|rest| rest.split_once('-')).ok_or_else(wrong)?;
        let (month, domain) = domain.split_once('.').ok_or_else(wrong)?;
        let is_number =
            |text: &str, digits| text.len() == digits && text.bytes().all(|it| it.is_ascii_digit());
        let is_sound = is_number(year, 4) && is_number(month, 2) && !domain.is_empty();
        match is_sound && typed.bytes().all(is_one) && typed.len() <= OWN_BYTES_MAX {
            true => Ok(Names(format!("{typed}:"))),
            false => Err(wrong()),
        }
    }

    /// The name of a shared target.
    pub(super) fn of_target(&self, target: &TargetName) -> String {
        format!("{}{}", self.0, target.0)
    }

    pub(super) fn target(&self, name: &str) -> Option<TargetName> {
        TargetName::parse(name.strip_prefix(&self.0)?)
    }

    /// The name of a volume's target.
    pub(super) fn target_of(&self, volume: &str) -> String {
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
    pub(super) fn volume_of(&self, target: &str) -> Option<String> {
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
        for wrong in [
            "",
            "storage1",
            "iqn.2026.com",
            "iqn.2026-11.",
            "iqn.2026-11.Com",
            "iqn.26-11.com",
            "iqn.2026-11.a b",
        ] {
            assert!(Names::parse(wrong).is_err(), "{wrong}");
        }
    }
}
