//! `cenote stream verify`: checks a stream without a pool.
//!
//! ```text
//!   sums       every record's sum, and END's                                  (`reader`)
//!   order      objects ascend, and so do blocks; nothing overlaps             (`records`)
//!   structure  sizes, places, features declared in BEGIN, payloads decompress (`records`)
//!   births     an increment's source is older, and was sent before it, if in the same package
//! ```
//!
//! Idea: a stream is often checked long before it is needed, and far from any pool. A receive finds most of
//! these defects only after it has written the preceding data.
//!
//! Memory: one payload, and some words per snapshot of a package.
//!
//! Source: OpenZFS `dmu_recv.c` (the checks of a receive), `dmu_send.c`.

mod records;

use std::collections::{HashMap, HashSet};
use std::fmt;

use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_format::stream::{Begin, HeaderType, Record, StreamFeatures};
use cenote_format::units::{Guid, ObjectId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Result, StreamError, check_features};
use crate::reader::{Item, StreamReader};
use records::Records;

/// The meaning of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// A receiver refuses the stream, or should.
    Wrong,
    /// Some receivers refuse it, or ignore a part.
    Odd,
}

/// A defect and its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Its meaning.
    pub severity: Severity,
    /// Bytes of the input up to the end of the record.
    pub end_bytes: u64,
    /// The sent snapshot; empty: the package.
    pub snapshot: String,
    /// The object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectId>,
    /// Offset in the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The defect.
    pub why: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { severity, end_bytes, snapshot, object, offset, why } = self;
        let severity = if *severity == Severity::Odd { "odd: " } else { "" };
        write!(f, "{severity}byte {end_bytes}")?;
        if !snapshot.is_empty() {
            write!(f, ": {snapshot}")?;
        }
        if let Some(object) = object {
            write!(f, ": object {object}")?;
        }
        if let Some(offset) = offset {
            write!(f, " offset {offset}")?;
        }
        write!(f, ": {why}")
    }
}

/// A verified stream.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verified {
    /// Streams; more than one in a package.
    pub streams: u64,
    /// Records.
    pub records: u64,
    /// Bytes.
    pub bytes: u64,
    /// Findings that make a receiver refuse the stream.
    pub wrong: u64,
    /// Other findings.
    pub odd: u64,
}

/// Takes findings about one record.
struct Finder<'a> {
    findings: &'a mut Vec<Finding>,
    end_bytes: u64,
    snapshot: &'a str,
}

impl Finder<'_> {
    fn find(&mut self, severity: Severity, at: (Option<ObjectId>, Option<u64>), why: impl Into<String>) {
        let (end_bytes, snapshot, (object, offset)) = (self.end_bytes, self.snapshot.to_owned(), at);
        self.findings.push(Finding { severity, end_bytes, snapshot, object, offset, why: why.into() });
    }

    fn wrong(&mut self, why: &str) {
        self.find(Severity::Wrong, (None, None), why);
    }

    fn odd(&mut self, why: &str) {
        self.find(Severity::Odd, (None, None), why);
    }
}

/// Checks a stream to its end. Findings go to `give`.
///
/// # Errors
/// The stream can't be read; those of `give`. A damaged stream is a finding.
pub async fn verify<E: From<StreamError>>(
    reader: &mut StreamReader,
    mut give: impl FnMut(Finding) -> Result<(), E>,
) -> Result<Verified, E> {
    let mut check = Check::default();
    let mut findings = Vec::new();
    loop {
        let next = reader.next().await;
        let end_bytes = next.as_ref().ok().and_then(|item| Some(item.as_ref()?.end_bytes));
        let snapshot = check.snapshot.clone();
        let end_bytes = end_bytes.unwrap_or_else(|| reader.read_bytes());
        let mut finder = Finder { findings: &mut findings, end_bytes, snapshot: &snapshot };
        match next {
            Ok(Some(item)) => check.item(&item, &mut finder),
            Ok(None) => break,
            Err(error @ (StreamError::Read(_) | StreamError::BadMagic)) => return Err(error.into()),
            // The reader is then at its end.
            Err(error) => finder.wrong(&error.to_string()),
        }
        for finding in findings.drain(..) {
            match finding.severity {
                Severity::Wrong => check.done.wrong += 1,
                Severity::Odd => check.done.odd += 1,
            }
            give(finding)?;
        }
    }
    check.done.bytes = reader.read_bytes();
    Ok(check.done)
}

#[derive(Default)]
struct Check {
    done: Verified,
    /// Creation times of the snapshots that went by.
    sent: HashMap<Guid, u64>,
    /// Guids that the package lists; none: no package, or one without a list.
    listed: Option<HashSet<Guid>>,
    /// The package continues from snapshots that its list has and that the receiver must have.
    is_increment: bool,
    snapshot: String,
    records: Option<Records>,
}

impl Check {
    fn item(&mut self, item: &Item, finder: &mut Finder<'_>) {
        self.done.records += 1;
        match &item.record {
            Record::Begin(begin) if begin.header == HeaderType::Compound => self.package(item, finder),
            Record::Begin(begin) => {
                self.snapshot = String::from_utf8_lossy(&begin.to_name).into_owned();
                let (end_bytes, snapshot) = (item.end_bytes, self.snapshot.clone());
                let findings = &mut *finder.findings;
                self.begin(begin, item, &mut Finder { findings, end_bytes, snapshot: &snapshot });
            }
            Record::End(end) if !item.of_package => {
                let to_guid = self.records.take().map(|records| records.to_guid());
                if to_guid.is_some_and(|guid| guid != end.to_guid) {
                    finder.wrong("its END is of another snapshot");
                }
                self.snapshot.clear();
            }
            Record::End(_) => {}
            _ => self.records.iter_mut().for_each(|records| records.check(item, finder)),
        }
    }

    fn package(&mut self, item: &Item, finder: &mut Finder<'_>) {
        // Packages of `send -I` without `-p` have no list.
        if item.payload.is_empty() {
            return;
        }
        let Ok(list) = Nvlist::decode(&item.payload) else {
            return finder.wrong("the package's list of properties is damaged");
        };
        let Some(fss) = list.get_nvlist("fss") else { return };
        self.is_increment = list.get_str("fromsnap").is_some();
        let mut listed = HashSet::new();
        for (_, fs) in fss.iter() {
            let NvValue::Nvlist(fs) = fs else { continue };
            let snaps = fs.get_nvlist("snaps");
            listed.extend(snaps.iter().flat_map(|snaps| snaps.iter()).filter_map(|(_, guid)| match guid {
                NvValue::Uint64(guid) => Some(Guid(*guid)),
                _ => None,
            }));
        }
        self.listed = Some(listed);
    }

    fn begin(&mut self, begin: &Begin, item: &Item, finder: &mut Finder<'_>) {
        self.done.streams += 1;
        if let Err(error) = check_features(begin.features) {
            finder.wrong(&error.to_string());
        }
        if !begin.to_name.contains(&b'@') {
            finder.odd("it is of no snapshot: its name lacks '@'");
        }
        if !matches!(begin.objset_type, 2 | 3) {
            finder.wrong("it is of neither a file system nor a volume");
        }
        let list = match Nvlist::decode(&item.payload) {
            _ if item.payload.is_empty() => Nvlist::new(),
            Ok(list) => list,
            Err(_) => {
                finder.wrong("its list of properties is damaged");
                Nvlist::new()
            }
        };
        let has = |feature| begin.features.has(feature);
        let keys = list.get_nvlist("crypt_keydata");
        if has(StreamFeatures::RAW) && keys.is_none() {
            finder.wrong("it is raw, and has no keys");
        }
        if begin.from_guid != Guid(0)
            && keys.is_some_and(|keys| keys.get_u64("from_ivset_guid").unwrap_or(0) == 0)
        {
            finder.odd(
                "it is a raw increment that does not name its source's IV set: receivers can't check it",
            );
        }
        if has(StreamFeatures::RESUMING) && list.get_u64("resume_object").is_none() {
            finder.wrong("it resumes a receive at no position");
        }
        self.births(begin, finder);
        self.records = Some(Records::new(begin));
    }

    /// Checks an increment's source against the snapshots before it.
    fn births(&mut self, begin: &Begin, finder: &mut Finder<'_>) {
        let Begin { to_guid, from_guid, creation_time, .. } = begin;
        if to_guid == from_guid {
            finder.wrong("it is an increment from itself");
        }
        let later = |source: &u64| source > creation_time;
        if self.sent.get(from_guid).is_some_and(later) {
            finder.wrong("it is an increment from a snapshot that was taken later");
        }
        if self.listed.as_ref().is_some_and(|listed| !listed.is_empty() && !listed.contains(to_guid)) {
            finder.odd("the package does not list it");
        }
        if self.sent.insert(*to_guid, *creation_time).is_some() {
            finder.wrong("the package has it twice");
        }
        // A source within the package comes first: its receiver has nothing to apply the increment to.
        if self.listed.as_ref().is_some_and(|listed| listed.contains(from_guid))
            && !self.is_increment
            && !self.sent.contains_key(from_guid)
            && self.sent.len() > 1
        {
            finder.odd("its source is in the package's list, and was not sent before it");
        }
    }
}
