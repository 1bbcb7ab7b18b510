//! Reservations: access control for a disk that several hosts share.
//!
//! ```text
//!   register a key --> reserve with a type --> release, or preemption by another registrant with the key
//! ```
//!
//! Idea: registrations and the one persistent reservation form a value that commands replace as a whole. It
//! is stored with the disk if a registrant asked for that (APTPL). The SPC-2 reservation (RESERVE) is one
//! more field: it ends with its session and never coexists with registrations.
//!
//! Source: SPC-4, section 5.13; SPC-2 for RESERVE and RELEASE.

use super::cdb::{Access, Cdb, op};
use crate::login::Initiator;

/// Registrations per disk. Stored ones have to fit into a property.
pub const REGISTRATIONS_MAX: usize = 64;
/// Longest text of stored registrations.
pub const TEXT_BYTES_MAX: usize = 8000;

/// A registered initiator port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// The port.
    pub initiator: Initiator,
    /// Reservation key.
    pub key: u64,
}

/// Types of persistent reservations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)] // names of SPC-4
pub enum Kind {
    WriteExclusive = 1,
    ExclusiveAccess = 3,
    WriteExclusiveRegistrants = 5,
    ExclusiveAccessRegistrants = 6,
    WriteExclusiveAll = 7,
    ExclusiveAccessAll = 8,
}

impl Kind {
    /// Parses a type code.
    pub fn of(number: u8) -> Option<Kind> {
        Some(match number {
            1 => Kind::WriteExclusive,
            3 => Kind::ExclusiveAccess,
            5 => Kind::WriteExclusiveRegistrants,
            6 => Kind::ExclusiveAccessRegistrants,
            7 => Kind::WriteExclusiveAll,
            8 => Kind::ExclusiveAccessAll,
            _ => return None,
        })
    }

    /// Whether all registrants hold the reservation together.
    pub fn is_of_all(self) -> bool {
        matches!(self, Kind::WriteExclusiveAll | Kind::ExclusiveAccessAll)
    }

    /// Whether all registrants have access.
    pub fn is_of_registrants(self) -> bool {
        !matches!(self, Kind::WriteExclusive | Kind::ExclusiveAccess)
    }

    fn excludes(self, access: Access) -> bool {
        match self {
            Kind::WriteExclusive | Kind::WriteExclusiveRegistrants | Kind::WriteExclusiveAll => {
                access == Access::Write
            }
            _ => matches!(access, Access::Read | Access::Write),
        }
    }
}

/// A persistent reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Reserving port. For all-registrants types, every registrant counts as holder.
    pub holder: Initiator,
    /// Type.
    pub kind: Kind,
}

/// All reservations of a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reservations {
    /// Changes so far (PRGENERATION).
    pub generation: u32,
    /// Registered ports.
    pub registrations: Vec<Registration>,
    /// Persistent reservation.
    pub held: Option<Held>,
    /// Whether they survive restarts (APTPL).
    pub is_kept: bool,
    /// Holder of the SPC-2 reservation.
    pub old_holder: Option<Initiator>,
}

impl Reservations {
    /// Whether anything exists that could conflict.
    pub fn is_any(&self) -> bool {
        self.held.is_some() || self.old_holder.is_some() || !self.registrations.is_empty()
    }

    /// Key of a registered initiator.
    pub fn key_of(&self, initiator: &Initiator) -> Option<u64> {
        let found = self.registrations.iter().find(|registration| registration.initiator == *initiator);
        found.map(|registration| registration.key)
    }

    /// Whether an initiator holds the reservation.
    pub fn is_holder(&self, initiator: &Initiator) -> bool {
        self.held.as_ref().is_some_and(|held| match held.kind.is_of_all() {
            true => self.key_of(initiator).is_some(),
            false => held.holder == *initiator,
        })
    }

    /// Whether a command conflicts.
    pub fn is_in_conflict(&self, initiator: &Initiator, access: Access, cdb: &Cdb) -> bool {
        // Allowing medium removal is always permitted.
        if cdb.opcode() == op::PREVENT_ALLOW && cdb.byte(4) & 3 == 0 {
            return false;
        }
        if self.old_holder.as_ref().is_some_and(|holder| holder != initiator) {
            let is_persistent =
                matches!(cdb.opcode(), op::PERSISTENT_RESERVE_IN | op::PERSISTENT_RESERVE_OUT);
            return access != Access::Free || is_persistent || cdb.opcode() == op::RESERVE_6;
        }
        let Some(held) = &self.held else { return false };
        let is_registered = self.key_of(initiator).is_some();
        let may = self.is_holder(initiator) || held.kind.is_of_registrants() && is_registered;
        !may && held.kind.excludes(access)
    }

    /// Ends a session: drops its SPC-2 reservation.
    pub fn leave(&mut self, initiator: &Initiator) {
        self.old_holder.take_if(|holder| holder == initiator);
    }

    /// LOGICAL UNIT RESET: drops the SPC-2 reservation.
    pub fn reset(&mut self) {
        self.old_holder = None;
    }

    /// Removes registrations. Returns whether the reservation ended with them.
    pub fn remove(&mut self, gone: impl Fn(&Registration) -> bool) -> bool {
        self.registrations.retain(|registration| !gone(registration));
        let (registrations, held) = (&self.registrations, &mut self.held);
        let is_left = |holder: &Initiator| registrations.iter().any(|it| it.initiator == *holder);
        let went = held.take_if(|held| match held.kind.is_of_all() {
            true => registrations.is_empty(),
            false => !is_left(&held.holder),
        });
        went.is_some()
    }

    /// Formats reservations for storage.
    ///
    /// ```text
    ///   v2 CRC32C of the rest
    ///   TYPE, or 0 for none
    ///   KEY ISID HOLDS NAME      a line for each registration
    /// ```
    ///
    /// Names contain neither spaces nor newlines: see [`Initiator::name_of`].
    pub fn text(&self) -> String {
        let mut text = format!("{}", self.held.as_ref().map_or(0, |held| held.kind as u8));
        for Registration { initiator, key } in &self.registrations {
            let isid: String = initiator.isid.iter().map(|byte| format!("{byte:02x}")).collect();
            let holds = self.held.as_ref().is_some_and(|held| held.holder == *initiator);
            text += &format!("\n{key:x} {isid} {} {}", u8::from(holds), initiator.name);
        }
        format!("v2 {:08x}\n{text}", crc32c::crc32c(text.as_bytes()))
    }

    /// Parses stored text, all or nothing. Also reads version 1, which has no checksum.
    pub fn parse(text: &str) -> Option<Reservations> {
        let text = match text.strip_prefix("v2 ") {
            Some(rest) => {
                let (sum, text) = rest.split_once('\n')?;
                let is_whole = u32::from_str_radix(sum, 16).ok()? == crc32c::crc32c(text.as_bytes());
                is_whole.then_some(text)?
            }
            None => text.strip_prefix("v1 ")?,
        };
        if text.lines().count() > REGISTRATIONS_MAX + 1 {
            return None;
        }
        let mut lines = text.lines();
        let kind = Kind::of(lines.next()?.parse().ok()?);
        let mut all = Reservations { is_kept: true, ..Reservations::default() };
        for line in lines {
            let mut words = line.splitn(4, ' ');
            let key = u64::from_str_radix(words.next()?, 16).ok()?;
            let isid = u64::from_str_radix(words.next()?, 16).ok()?.to_be_bytes();
            let (holds, name) = (words.next()? == "1", Initiator::name_of(words.next()?)?);
            let isid = [isid[2], isid[3], isid[4], isid[5], isid[6], isid[7]];
            let initiator = Initiator { name, isid };
            if let (Some(kind), true) = (kind, holds) {
                all.held = Some(Held { holder: initiator.clone(), kind });
            }
            all.registrations.push(Registration { initiator, key });
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_again() {
        let port = |name: &str| Initiator { name: name.into(), isid: [0, 2, 0x3d, 0, 0, 9] };
        let registration = |name: &str, key| Registration { initiator: port(name), key };
        let all = Reservations {
            registrations: vec![registration("iqn.a", 1), registration("iqn.b", u64::MAX)],
            held: Some(Held { holder: port("iqn.b"), kind: Kind::WriteExclusiveRegistrants }),
            is_kept: true,
            ..Reservations::default()
        };
        assert_eq!(Reservations::parse(&all.text()).as_ref(), Some(&all));
        assert_eq!(Reservations::parse("v1 0"), Some(Reservations { is_kept: true, ..Default::default() }));
        assert_eq!(Reservations::parse("v3 x"), None);
        let forged = all.text().replace("iqn.a", "iqn.c");
        assert_eq!(Reservations::parse(&forged), None, "not what was kept");
        assert_eq!(Reservations::parse("v1 5\n1 00023d000009 1 iqn.a\nv1 0"), None, "not a registration");
        assert!(Reservations::parse("v1 5\n1 00023d000009 1 iqn.a").is_some_and(|all| all.held.is_some()));
    }
}
