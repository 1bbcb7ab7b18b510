//! How ACLs and modes depend on each other.
//!
//! Idea: a file system of version 5 stores an ACL for every file. For most files it is the trivial ACL, which
//! expresses the mode in three to six entries:
//!
//! ```text
//!   [owner@ allow]  [owner@ deny]  [group@ deny]      only if a later class has rights an earlier one lacks
//!   [entries of others, inherited or set]             none in a trivial ACL
//!   owner@ allow    group@ allow    everyone@ allow
//! ```
//!
//! Source: OpenZFS `zfs_acl.c` (`acl_trivial_access_masks`, `zfs_acl_chmod`, `zfs_acl_inherit`,
//! `zfs_mode_compute`, `ace_trivial_common`).

use cenote_format::znode::{Ace, AceWho};

use crate::attr::{FileKind, pflags};

/// `ACE_*`: rights in a mask.
mod right {
    pub const READ_DATA: u32 = 0x1;
    pub const WRITE_DATA: u32 = 0x2;
    pub const APPEND_DATA: u32 = 0x4;
    pub const READ_NAMED_ATTRS: u32 = 0x8;
    pub const WRITE_NAMED_ATTRS: u32 = 0x10;
    pub const EXECUTE: u32 = 0x20;
    pub const DELETE_CHILD: u32 = 0x40;
    pub const READ_ATTRIBUTES: u32 = 0x80;
    pub const WRITE_ATTRIBUTES: u32 = 0x100;
    pub const DELETE: u32 = 0x1_0000;
    pub const READ_ACL: u32 = 0x2_0000;
    pub const WRITE_ACL: u32 = 0x4_0000;
    pub const WRITE_OWNER: u32 = 0x8_0000;
    pub const SYNCHRONIZE: u32 = 0x10_0000;
    /// Rights that everyone has.
    pub const ALWAYS: u32 = READ_ACL | READ_ATTRIBUTES | READ_NAMED_ATTRS | SYNCHRONIZE;
    /// Rights that only the owner has.
    pub const OWNERS: u32 = WRITE_ACL | WRITE_OWNER | WRITE_ATTRIBUTES | WRITE_NAMED_ATTRS;
}

/// `ACE_*`: flags of an entry.
mod flag {
    pub const FILE_INHERIT: u16 = 0x1;
    pub const DIRECTORY_INHERIT: u16 = 0x2;
    pub const NO_PROPAGATE: u16 = 0x4;
    pub const INHERIT_ONLY: u16 = 0x8;
    pub const INHERITED: u16 = 0x80;
    pub const INHERITABLE: u16 = FILE_INHERIT | DIRECTORY_INHERIT;
    pub const ABOUT_INHERITING: u16 = INHERITABLE | NO_PROPAGATE | INHERIT_ONLY;
}

const ALLOW: u16 = 0;
const DENY: u16 = 1;
const EXECUTE_BITS: u32 = 0o111;

/// Treatment of an ACL when the mode is set, property `aclmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AclMode {
    /// It is replaced by the trivial one.
    #[default]
    Discard,
    /// Other entries get no more rights than the group.
    GroupMask,
    /// It stays, except for the entries that express the mode.
    Passthrough,
    /// The mode of a file with a non-trivial ACL can't be set.
    Restricted,
}

/// Inheritance of ACLs by new files, property `aclinherit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AclInherit {
    /// Nothing.
    Discard,
    /// Only deny entries.
    NoAllow,
    /// All, without the rights to change ACL and owner.
    #[default]
    Restricted,
    /// All; entries of owner, group and everyone set the mode.
    Passthrough,
    /// The same, but without the execute right if the creating program does not ask for it.
    PassthroughX,
}

/// An ACL and the flags (`pflags`) that go with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Acl {
    pub entries: Vec<Ace>,
    pub flags: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct AclRules {
    pub mode: AclMode,
    pub inherit: AclInherit,
}

impl AclRules {
    /// The ACL of a new file; `parent` is its directory's ACL, if that has inheritable entries.
    pub(crate) fn for_new(self, mode: u32, parent: Option<&[Ace]>) -> Acl {
        let is_dir = kind(mode) == FileKind::Directory;
        let (base, needs_mode) = match parent {
            Some(parent) => self.inherited(mode, parent),
            None => (Acl { entries: Vec::new(), flags: pflags::ACL_TRIVIAL }, true),
        };
        if !needs_mode {
            return base.with_trivial_flag();
        }
        let lets_pass = matches!(self.inherit, AclInherit::Passthrough | AclInherit::PassthroughX);
        let trim = self.mode == AclMode::GroupMask && !lets_pass;
        let mut acl = spell(&base.entries, mode, false, trim);
        acl.flags |= base.flags | if is_dir { pflags::ACL_AUTO_INHERIT } else { 0 };
        if parent.is_some() { acl.with_trivial_flag() } else { acl }
    }

    /// The ACL after the mode is set; `flags` and `old` are the previous values.
    pub(crate) fn for_mode(self, mode: u32, flags: u64, old: &[Ace]) -> Acl {
        let old = if self.mode == AclMode::Discard { &[] } else { old };
        let mut acl = spell(old, mode, true, self.mode == AclMode::GroupMask);
        acl.flags |= flags & (pflags::ACL_AUTO_INHERIT | pflags::ACL_DEFAULTED | pflags::ACL_PROTECTED);
        acl.with_trivial_flag()
    }

    /// An ACL set literally; `flags` are the previous ones.
    pub(crate) fn for_entries(self, entries: Vec<Ace>, flags: u64, is_dir: bool) -> Acl {
        let is_inherited = is_dir && entries.iter().any(|ace| ace.flags & flag::INHERITABLE != 0);
        let kept = pflags::ACL_AUTO_INHERIT | pflags::ACL_DEFAULTED | pflags::ACL_PROTECTED;
        let flags = flags & kept | if is_inherited { pflags::INHERIT_ACE } else { 0 };
        Acl { entries, flags }.with_trivial_flag()
    }

    /// The inherited entries, and whether entries for the mode must be added.
    fn inherited(self, mode: u32, parent: &[Ace]) -> (Acl, bool) {
        let kind = kind(mode);
        let is_dir = kind == FileKind::Directory;
        let mut acl = Acl { entries: Vec::new(), flags: 0 };
        let mut needs_mode = true;
        if self.inherit == AclInherit::Discard || kind == FileKind::Symlink {
            return (acl, needs_mode);
        }
        let lets_pass = matches!(self.inherit, AclInherit::Passthrough | AclInherit::PassthroughX);
        for ace in parent {
            let passes_on = ace.flags & flag::NO_PROPAGATE == 0;
            let is_for_it = (is_dir && ace.flags & flag::DIRECTORY_INHERIT != 0)
                || (ace.flags & flag::FILE_INHERIT != 0 && (!is_dir || passes_on));
            if !is_for_it || (self.inherit == AclInherit::NoAllow && ace.ace_type == ALLOW) {
                continue;
            }
            let sets_mode = kind == FileKind::Regular || (is_dir && ace.flags & flag::DIRECTORY_INHERIT != 0);
            if lets_pass && is_of_class(ace) && sets_mode {
                needs_mode = false;
            }
            let mut mask = ace.mask;
            if ace.ace_type == ALLOW && self.inherit == AclInherit::Restricted {
                mask &= !(right::WRITE_ACL | right::WRITE_OWNER);
            }
            let no_execute = self.inherit == AclInherit::PassthroughX && mode & EXECUTE_BITS == 0;
            if ace.ace_type == ALLOW && no_execute && !is_dir {
                mask &= !right::EXECUTE;
            }
            let mut flags = ace.flags | flag::INHERITED;
            if !is_dir || !passes_on {
                flags &= !flag::ABOUT_INHERITING;
            } else {
                acl.flags |= pflags::INHERIT_ACE;
                let only_files = ace.flags & flag::INHERITABLE == flag::FILE_INHERIT;
                flags = flags & !flag::INHERIT_ONLY | if only_files { flag::INHERIT_ONLY } else { 0 };
            }
            acl.entries.push(Ace { mask, flags, ..*ace });
        }
        if self.mode == AclMode::Restricted && !acl.entries.is_empty() {
            needs_mode = false;
        }
        (acl, needs_mode)
    }
}

impl Acl {
    fn with_trivial_flag(self) -> Acl {
        let trivial = if is_trivial(&self.entries) { pflags::ACL_TRIVIAL } else { 0 };
        Acl { flags: self.flags & !pflags::ACL_TRIVIAL | trivial, ..self }
    }
}

/// An ACL whose entries express a mode, with `others` in between. With `split`, entries of owner, group and
/// everyone among the others express the old mode and are kept only for inheritance; with `trim`, others get
/// no more rights than the group.
fn spell(others: &[Ace], mode: u32, split: bool, trim: bool) -> Acl {
    let is_dir = kind(mode) == FileKind::Directory;
    let mut acl = Acl { entries: Vec::with_capacity(others.len() + 6), flags: 0 };
    let [owner, group, everyone] = [6, 3, 0].map(|shift| rights(mode >> shift, is_dir));
    let entry = |ace_type, mask, who| Ace { ace_type, flags: 0, mask, who, object_types: None };
    let leading = [
        entry(ALLOW, owner & !group & everyone, AceWho::Owner),
        entry(DENY, !owner & (group | everyone), AceWho::Owner),
        entry(DENY, !group & everyone, AceWho::OwningGroup),
    ];
    acl.entries.extend(leading.into_iter().filter(|ace| ace.mask != 0));
    for ace in others {
        let mut ace = *ace;
        if split && is_of_class(&ace) {
            if !is_dir || ace.flags & flag::INHERITABLE == 0 {
                continue;
            }
            ace.flags |= flag::INHERIT_ONLY;
        }
        if is_dir && ace.flags & flag::INHERITABLE != 0 {
            acl.flags |= pflags::INHERIT_ACE;
        }
        if trim && ace.ace_type == ALLOW && ace.flags & flag::INHERIT_ONLY == 0 {
            ace.mask &= right::ALWAYS | group;
        }
        acl.entries.push(ace);
    }
    acl.entries.extend([
        entry(ALLOW, right::OWNERS | right::ALWAYS | owner, AceWho::Owner),
        entry(ALLOW, right::ALWAYS | group, AceWho::OwningGroup),
        entry(ALLOW, right::ALWAYS | everyone, AceWho::Everyone),
    ]);
    acl
}

/// The rights of one class.
fn rights(bits: u32, is_dir: bool) -> u32 {
    let delete = if is_dir { right::DELETE_CHILD } else { 0 };
    let read = if bits & 4 != 0 { right::READ_DATA } else { 0 };
    let write = if bits & 2 != 0 { right::WRITE_DATA | right::APPEND_DATA | delete } else { 0 };
    let execute = if bits & 1 != 0 { right::EXECUTE } else { 0 };
    read | write | execute
}

/// The mode that an ACL expresses, and whether everyone may execute (`ZFS_NO_EXECS_DENIED`): for each class
/// and right the first matching entry decides.
pub(crate) fn mode_of(entries: &[Ace], mode: u32, uid: u64, gid: u64) -> (u32, bool) {
    const READ_WRITE_EXECUTE: [(u32, u32); 3] =
        [(right::READ_DATA, 4), (right::WRITE_DATA, 2), (right::EXECUTE, 1)];
    let (mut mode, mut seen, mut denied) = (mode & !0o777, 0, false);
    for ace in entries.iter().filter(|ace| ace.ace_type <= DENY && ace.flags & flag::INHERIT_ONLY == 0) {
        let classes: &[u32] = match ace.who {
            AceWho::Owner => &[6],
            AceWho::User(id) if id.0 == uid => &[6],
            AceWho::OwningGroup => &[3],
            AceWho::Group(id) if id.0 == gid => &[3],
            AceWho::Everyone => &[6, 3, 0],
            _ => {
                denied |= ace.ace_type == DENY && ace.mask & right::EXECUTE != 0;
                continue;
            }
        };
        for (shift, (right, bit)) in
            classes.iter().flat_map(|shift| READ_WRITE_EXECUTE.map(|pair| (shift, pair)))
        {
            let bit = bit << shift;
            if ace.mask & right != 0 && seen & bit == 0 {
                seen |= bit;
                mode |= if ace.ace_type == ALLOW { bit } else { 0 };
            }
        }
    }
    (mode, !denied && mode & EXECUTE_BITS == EXECUTE_BITS)
}

/// Whether the ACL expresses no more than a mode can.
fn is_trivial(entries: &[Ace]) -> bool {
    entries.iter().all(|ace| {
        let owners_right = ace.ace_type == ALLOW && ace.mask & right::OWNERS != 0;
        let hides = ace.ace_type == DENY && ace.mask & (right::READ_ACL | right::READ_ATTRIBUTES) != 0;
        let deletes = ace.mask & right::DELETE != 0
            || (ace.mask & right::DELETE_CHILD != 0 && ace.mask & right::WRITE_DATA == 0);
        let inherits = ace.flags & flag::ABOUT_INHERITING != 0;
        is_of_class(ace) && !inherits && !hides && !deletes && (ace.who == AceWho::Owner || !owners_right)
    })
}

/// Whether the entry concerns the owner, the file's group or everyone.
fn is_of_class(ace: &Ace) -> bool {
    matches!(ace.who, AceWho::Owner | AceWho::OwningGroup | AceWho::Everyone)
}

fn kind(mode: u32) -> FileKind {
    FileKind::from_mode(mode.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: AclRules = AclRules { mode: AclMode::Discard, inherit: AclInherit::Restricted };

    #[test]
    fn a_trivial_acl_spells_its_mode() {
        for kind in [0o100_000, 0o40_000, 0o120_000] {
            for bits in 0..=0o777 {
                let acl = RULES.for_new(kind | bits, None);
                let (mode, all_execute) = mode_of(&acl.entries, kind, 5, 6);
                assert_eq!((mode, all_execute), (kind | bits, bits & 0o111 == 0o111), "{bits:o}");
                assert!(is_trivial(&acl.entries) && acl.flags & pflags::ACL_TRIVIAL != 0);
                assert_eq!(acl.entries.len() > 3, RULES.for_mode(kind | bits, 0, &[]).entries.len() > 3);
            }
        }
    }

    #[test]
    fn what_is_inherited_loses_the_rights_to_change_owner_and_acl() {
        let user = AceWho::User(cenote_format::znode::Fuid(1000));
        let mask = right::READ_DATA | right::WRITE_ACL;
        let flags = flag::FILE_INHERIT | flag::DIRECTORY_INHERIT;
        let parent = [Ace { ace_type: ALLOW, flags, mask, who: user, object_types: None }];
        let file = RULES.for_new(0o100_640, Some(&parent));
        assert_eq!(file.entries.len(), 4);
        assert_eq!((file.entries[0].mask, file.entries[0].flags), (right::READ_DATA, flag::INHERITED));
        assert_eq!(file.flags & (pflags::ACL_TRIVIAL | pflags::INHERIT_ACE), 0);
        let dir = RULES.for_new(0o40_750, Some(&parent));
        assert_eq!(dir.entries[0].flags, flags | flag::INHERITED);
        assert_ne!(dir.flags & pflags::INHERIT_ACE, 0);
        assert!(is_trivial(&RULES.for_new(0o120_777, Some(&parent)).entries));
    }

    #[test]
    fn the_first_entry_about_a_class_decides() {
        let ace = |who, ace_type, mask| Ace { who, ace_type, flags: 0, mask, object_types: None };
        let entries = [
            ace(AceWho::User(cenote_format::znode::Fuid(5)), DENY, right::EXECUTE),
            ace(AceWho::Owner, ALLOW, 0x23),
            ace(AceWho::OwningGroup, ALLOW, 0x1),
            ace(AceWho::Everyone, ALLOW, 0x21),
        ];
        assert_eq!(mode_of(&entries, 0o100_777, 5, 0), (0o100_655, false));
    }
}
