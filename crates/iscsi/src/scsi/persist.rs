//! Commands for reservations: PERSISTENT RESERVE IN and OUT, RESERVE and RELEASE.
//!
//! A command changes a copy of the reservations, which is stored with the disk if needed before it takes
//! effect. So a change confirmed to a host survives a restart.

use bytes::{BufMut, Bytes};

use super::reservations::{Held, Kind, REGISTRATIONS_MAX, Registration, Reservations, TEXT_BYTES_MAX};
use super::{Outcome, Request, Sense, Trouble, status, written};
use crate::login::Initiator;
use crate::lun::attention;

/// Bytes of the parameter list.
const LIST_BYTES: usize = 24;
const CONFLICT: Trouble = Trouble::Status(status::RESERVATION_CONFLICT);

/// Unit attentions that a change causes.
type News = Vec<(Initiator, u16)>;

impl Request<'_> {
    /// SPC-2 RESERVE.
    pub(super) fn reserve_unit(&self) -> Outcome {
        self.lun().reserve(|all| {
            let is_others = all.old_holder.as_ref().is_some_and(|holder| holder != self.guest.initiator());
            // Not allowed beside registrations.
            if is_others || !all.registrations.is_empty() {
                return Err(CONFLICT);
            }
            all.old_holder = Some(self.guest.initiator().clone());
            Ok(Bytes::new())
        })
    }

    /// SPC-2 RELEASE. Succeeds without effect if the initiator holds no reservation.
    pub(super) fn release_unit(&self) -> Outcome {
        self.lun().reserve(|all| match all.registrations.is_empty() {
            true => {
                all.leave(self.guest.initiator());
                Ok(Bytes::new())
            }
            false => Err(CONFLICT),
        })
    }

    pub(super) fn persistent_reserve_in(&self) -> Outcome {
        let all = self.lun().reserve(|all| all.clone());
        let mut list = Vec::new();
        match self.cdb.action() {
            0 => all.registrations.iter().for_each(|registration| list.put_u64(registration.key)),
            1 => {
                if let Some(held) = &all.held {
                    list.put_u64(if held.kind.is_of_all() {
                        0
                    } else {
                        all.key_of(&held.holder).unwrap_or(0)
                    });
                    list.extend([0, 0, 0, 0, 0, held.kind as u8, 0, 0]);
                }
            }
            2 => return Ok(self.cdb.cut(capabilities(all.is_kept))),
            _ => all.registrations.iter().for_each(|registration| full_status(&all, registration, &mut list)),
        }
        let mut answer = Vec::with_capacity(8 + list.len());
        answer.put_u32(all.generation);
        answer.put_u32(list.len() as u32);
        answer.extend(list);
        Ok(self.cdb.cut(answer))
    }

    pub(super) async fn persistent_reserve_out(&self) -> Outcome {
        const SPEC_I_PT: u8 = 0x08;
        const APTPL: u8 = 0x01;
        let action = self.cdb.action();
        if self.cdb.list_bytes() as usize != LIST_BYTES || self.data.len() != LIST_BYTES {
            return Err(Sense::LIST_LENGTH.into());
        }
        if self.data[20] & SPEC_I_PT != 0 {
            return Err(Sense::INVALID_PARAMETER.into());
        }
        let number = |at: usize| self.data[at..at + 8].iter().fold(0, |n, &byte| n << 8 | u64::from(byte));
        let (key, action_key) = (number(0), number(8));
        let _keeping = self.lun().keeping.lock().await;
        let before = self.lun().reserve(|all| all.clone());
        if before.old_holder.is_some() {
            return Err(CONFLICT);
        }
        let mut all = before.clone();
        let mut news = News::new();
        let mut gone = Vec::new();
        match action {
            0 | 6 => {
                self.register(&mut all, key, action_key, action == 6, &mut news)?;
                all.is_kept = self.data[20] & APTPL != 0;
            }
            _ if all.key_of(self.guest.initiator()) != Some(key) => return Err(CONFLICT),
            1 => self.hold(&mut all)?,
            2 => self.release(&mut all, &mut news)?,
            3 => {
                self.tell_others(&all, attention::RESERVATIONS_PREEMPTED, &mut news);
                (all.held, all.registrations) = (None, Vec::new());
                all.generation = all.generation.wrapping_add(1);
            }
            _ => {
                self.preempt(&mut all, action_key, &mut news)?;
                let left = |it: &Registration| all.key_of(&it.initiator).is_none();
                gone = before
                    .registrations
                    .iter()
                    .filter(|it| left(it))
                    .map(|it| it.initiator.clone())
                    .collect();
            }
        }
        self.keep(&before, &all).await?;
        self.lun()
            .reserve(|current| *current = Reservations { old_holder: current.old_holder.take(), ..all });
        let guests = self.lun().guests();
        for (whom, what) in news {
            guests.iter().filter(|guest| *guest.initiator() == whom).for_each(|guest| guest.attend(what));
        }
        if action == 5 {
            for guest in guests.iter().filter(|guest| gone.contains(guest.initiator())) {
                guest.abort(self.guest.initiator()).await;
            }
        }
        Ok(Bytes::new())
    }

    /// Stores reservations with the disk, or deletes those stored.
    async fn keep(&self, before: &Reservations, after: &Reservations) -> Outcome<()> {
        let text = |all: &Reservations| (all.is_kept && !all.registrations.is_empty()).then(|| all.text());
        let (before, after) = (text(before), text(after));
        if before == after {
            return Ok(());
        }
        if after.as_ref().is_some_and(|text| text.len() > TEXT_BYTES_MAX) {
            return Err(Sense::NO_REGISTRATIONS_LEFT.into());
        }
        written(self.unit().keep(after).await)
    }

    fn tell_others(&self, all: &Reservations, what: u16, news: &mut News) {
        let others = all.registrations.iter().filter(|it| it.initiator != *self.guest.initiator());
        news.extend(others.map(|it| (it.initiator.clone(), what)));
    }

    fn register(
        &self,
        all: &mut Reservations,
        key: u64,
        new: u64,
        ignores: bool,
        news: &mut News,
    ) -> Outcome<()> {
        let me = self.guest.initiator();
        match all.key_of(me) {
            Some(is) if !ignores && is != key => return Err(CONFLICT),
            None if !ignores && key != 0 => return Err(CONFLICT),
            Some(_) if new == 0 => {
                let kind = all.held.as_ref().map(|held| held.kind);
                if all.remove(|it| it.initiator == *me) && kind.is_some_and(Kind::is_of_registrants) {
                    self.tell_others(all, attention::RESERVATIONS_RELEASED, news);
                }
            }
            None if new == 0 => return Ok(()),
            Some(_) => {
                all.registrations.iter_mut().filter(|it| it.initiator == *me).for_each(|it| it.key = new);
            }
            None if all.registrations.len() >= REGISTRATIONS_MAX => {
                return Err(Sense::NO_REGISTRATIONS_LEFT.into());
            }
            None => all.registrations.push(Registration { initiator: me.clone(), key: new }),
        }
        all.generation = all.generation.wrapping_add(1);
        Ok(())
    }

    /// Reservation type in the CDB.
    fn kind(&self) -> Outcome<Kind> {
        let kind = Kind::of(self.cdb.byte(2) & 15).filter(|_| self.cdb.byte(2) >> 4 == 0);
        kind.ok_or(Sense::INVALID_FIELD.into())
    }

    fn hold(&self, all: &mut Reservations) -> Outcome<()> {
        let kind = self.kind()?;
        let me = self.guest.initiator();
        match &all.held {
            None => all.held = Some(Held { holder: me.clone(), kind }),
            Some(held) if held.kind == kind && all.is_holder(me) => {}
            Some(_) => return Err(CONFLICT),
        }
        Ok(())
    }

    fn release(&self, all: &mut Reservations, news: &mut News) -> Outcome<()> {
        if !all.is_holder(self.guest.initiator()) {
            return Ok(());
        }
        let Some(held) = all.held.take() else { return Ok(()) };
        if self.kind().ok() != Some(held.kind) {
            return Err(Sense::INVALID_RELEASE.into());
        }
        if held.kind.is_of_registrants() {
            self.tell_others(all, attention::RESERVATIONS_RELEASED, news);
        }
        Ok(())
    }

    fn preempt(&self, all: &mut Reservations, victims: u64, news: &mut News) -> Outcome<()> {
        let me = self.guest.initiator();
        let is_mine = |it: &Registration| it.initiator == *me;
        let takes_all = all.held.as_ref().is_some_and(|held| held.kind.is_of_all()) && victims == 0;
        let takes_held = takes_all
            || all
                .held
                .as_ref()
                .is_some_and(|held| !held.kind.is_of_all() && all.key_of(&held.holder) == Some(victims));
        if victims == 0 && !takes_all {
            return Err(Sense::INVALID_PARAMETER.into());
        }
        let is_victim = |it: &Registration| !is_mine(it) && (takes_all || it.key == victims);
        let is_any = all.registrations.iter().any(|it| takes_all || it.key == victims);
        if !takes_held && !is_any {
            return Err(CONFLICT);
        }
        let kind = if takes_held { Some(self.kind()?) } else { None };
        let gone: Vec<Initiator> =
            all.registrations.iter().filter(|it| is_victim(it)).map(|it| it.initiator.clone()).collect();
        let before = all.held.as_ref().map(|held| held.kind);
        let went = all.remove(|it| gone.contains(&it.initiator));
        if let Some(kind) = kind {
            all.held = Some(Held { holder: me.clone(), kind });
        }
        let has_changed = kind.is_some() && before != kind || kind.is_none() && went;
        if has_changed && before.is_some_and(Kind::is_of_registrants) {
            self.tell_others(all, attention::RESERVATIONS_RELEASED, news);
        }
        news.extend(gone.into_iter().map(|initiator| (initiator, attention::REGISTRATIONS_PREEMPTED)));
        all.generation = all.generation.wrapping_add(1);
        Ok(())
    }
}

fn capabilities(is_kept: bool) -> Vec<u8> {
    // ATP_C, PTPL_C; TMV, PTPL_A; types: WE_AR, EA_RO, WE_RO, EA, WE; EA_AR.
    vec![0, 8, 0x04 | 0x01, 0x80 | u8::from(is_kept), 0xea, 0x01, 0, 0]
}

/// Encodes a full status descriptor.
fn full_status(all: &Reservations, it: &Registration, list: &mut Vec<u8>) {
    let isid: String = it.initiator.isid.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut name = format!("{},i,0x{isid}\0", it.initiator.name).into_bytes();
    name.resize(name.len().next_multiple_of(4).max(20), 0);
    let holds = all.is_holder(&it.initiator);
    list.put_u64(it.key);
    list.put_u32(0);
    let kind = all.held.as_ref().filter(|_| holds).map_or(0, |held| held.kind as u8);
    list.extend([u8::from(holds), kind, 0, 0, 0, 0]);
    // Relative target port; TransportID of format 1, protocol 5 (iSCSI).
    list.put_u16(1);
    list.put_u32(4 + name.len() as u32);
    list.extend([0x45, 0]);
    list.put_u16(name.len() as u16);
    list.extend(name);
}
