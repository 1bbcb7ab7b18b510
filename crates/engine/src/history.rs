//! Writing the pool's history: commands, and the engine's actions for them.
//!
//! ```text
//!   0        create_end                    first          end        max
//!   | create | newest, if it went round ... | oldest ... newest | gap |
//! ```
//!
//! Idea: records go to a ring in one MOS object, in the txg of the change they describe; the oldest make
//! room. Everything up to the first command, which created the pool, is never overwritten.
//!
//! Source: OpenZFS `spa_history.c` (`spa_history_log_sync`, `spa_history_write`, `log_internal`).

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_format::Phys;
use cenote_format::bytes::Endian;
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names};
use cenote_format::features::SPA_VERSION_FEATURES;
use cenote_format::history::{HistoryPhys, encode_record, key};
use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_format::units::{ObjectId, SPA_OLD_MAXBLOCKSIZE};
use cenote_object::{Edit, NewObject, Result, ZapEdit};

use crate::context::SyncContext;
use crate::engine::{Engine, Task};

const BLOCK_BYTES: u32 = SPA_OLD_MAXBLOCKSIZE as u32;
const LENGTH_BYTES: u64 = 8;
/// As OpenZFS on Linux (`spa_history_zone`).
const ZONE: &str = "linux";
/// For events without details; an empty string would count as missing.
pub const NO_DETAILS: &str = " ";

/// A pool's history.
#[derive(Clone, Copy)]
pub struct History<'a>(&'a Engine);

impl Engine {
    /// The pool's history.
    pub fn history(&self) -> History<'_> {
        History(self)
    }
}

impl History<'_> {
    /// Sets the listener for records, called when their txg is written. Only the first call counts.
    pub fn listen(&self, listener: impl Fn(&Nvlist) + Send + Sync + 'static) {
        drop(self.0.0.told.history_listener.set(Box::new(listener)));
    }

    /// Records a command of user `uid`; on disk with the open txg or the next.
    pub fn note_command(&self, command: &str, uid: u64) {
        let mut record = Nvlist::new();
        record.insert(key::CMD, text(command));
        record.insert(key::ZONE, text(ZONE));
        record.insert(key::WHO, NvValue::Uint64(uid));
        let task: Task = Box::new(move |context| {
            Box::pin(async move {
                let _ = context.log(record).await;
            })
        });
        self.0.0.tasks.lock().rest.push(task);
    }
}

impl SyncContext {
    /// Records a pool event (`spa_history_log_internal`).
    #[boxed]
    pub async fn log_event(&mut self, event: &str, details: &str) -> Result<()> {
        self.log_internal(Nvlist::new(), event, details).await
    }

    /// Records a dataset event (`spa_history_log_internal_ds`).
    #[boxed]
    pub async fn log_of_dataset(
        &mut self,
        (name, id): (&str, ObjectId),
        event: &str,
        details: &str,
    ) -> Result<()> {
        let mut record = Nvlist::new();
        record.insert(key::DSNAME, text(name));
        record.insert(key::DSID, NvValue::Uint64(id.0));
        self.log_internal(record, event, details).await
    }

    async fn log_internal(&mut self, mut record: Nvlist, event: &str, details: &str) -> Result<()> {
        record.insert(key::INT_STR, text(details));
        record.insert(key::INT_NAME, text(event));
        record.insert(key::TXG, NvValue::Uint64(self.txg().0));
        self.log(record).await
    }

    /// Records the software version (`spa_history_log_version`).
    #[boxed]
    pub async fn log_version(&mut self, event: &str) -> Result<()> {
        let software = concat!("cenote-", env!("CARGO_PKG_VERSION"));
        let details = format!("pool version {SPA_VERSION_FEATURES}; software version {software}");
        self.log_event(event, &details).await
    }

    async fn log(&mut self, mut record: Nvlist) -> Result<()> {
        record.insert(key::TIME, NvValue::Uint64(self.now_s()));
        let host = self.engine.config.lock().hostname.clone().unwrap_or_default();
        record.insert(key::HOST, text(&host));
        if let Some(listener) = self.engine.told.history_listener.get() {
            listener(&record);
        }
        let object = match self.find_directory_object(names::HISTORY).await? {
            Some(object) => object,
            None => self.make_history().await?,
        };
        match self.append(object, &record).await {
            // As in OpenZFS, an operation succeeds even if it cannot be recorded.
            Err(error) if error.is_damage() => {
                self.syncing
                    .pool
                    .read_errors()
                    .note_aside(format!("an event is missing in the history: {error}"));
                Ok(())
            }
            done => done,
        }
    }

    async fn append(&mut self, history: ObjectId, record: &Nvlist) -> Result<()> {
        let mut ring = Ring::open(self.edit(), history).await?;
        ring.append(&encode_record(&record.encode())).await?;
        if ring.phys.create_end_bytes == 0 && record.contains(key::CMD) {
            (ring.phys.create_end_bytes, ring.phys.first_bytes) = (ring.phys.end_bytes, ring.phys.end_bytes);
        }
        ring.close().await
    }

    /// Makes a ring of a thousandth of the pool's space (`spa_history_create_obj`).
    #[boxed]
    pub async fn make_history(&mut self) -> Result<ObjectId> {
        let normal = self.syncing.allocator.class_space(cenote_pool::alloc::AllocClass::Normal);
        let ring = (normal.size_bytes / 1000).clamp(BLOCK_BYTES.into(), 1 << 30);
        let phys = HistoryPhys { max_offset_bytes: ring, ..HistoryPhys::zeroed() };
        let edit = self.edit();
        let new = NewObject::of(ObjectType::SPA_HISTORY)
            .block_bytes(BLOCK_BYTES)
            .bonus(ObjectType::SPA_HISTORY_OFFSETS, phys.encode(Endian::NATIVE));
        let id = edit.create(&new).await?;
        ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT).add(names::HISTORY, id.0).await?;
        Ok(id)
    }
}

struct Ring {
    edit: Edit,
    object: ObjectId,
    phys: HistoryPhys,
}

impl Ring {
    async fn open(edit: Edit, object: ObjectId) -> Result<Ring> {
        let view = edit.view();
        let dnode = view.dnode(object).await?;
        let phys = HistoryPhys::decode(dnode.bonus(), dnode.endian()).map_err(|e| view.format(object, e))?;
        phys.ranges().map_err(|e| view.format(object, e))?;
        Ok(Ring { edit, object, phys })
    }

    /// Leaves out a record too long for the ring.
    async fn append(&mut self, record: &[u8]) -> Result<()> {
        let len = record.len() as u64;
        if self.phys.max_offset_bytes - self.phys.create_end_bytes <= len {
            return Ok(());
        }
        while self.phys.free_bytes() <= len {
            self.drop_oldest().await?;
        }
        let [here, wrapped] = self.phys.place(self.phys.end_bytes, len);
        let (before, after) = record.split_at((here.end - here.start) as usize);
        for (range, part) in [(here, before), (wrapped, after)] {
            if !part.is_empty() {
                self.edit.write(self.object, range.start, Bytes::copy_from_slice(part)).await?;
            }
        }
        self.phys.end_bytes += len;
        Ok(())
    }

    async fn drop_oldest(&mut self) -> Result<()> {
        let object = self.edit.view().object(self.object).await?;
        let mut length = Vec::new();
        for range in self.phys.place(self.phys.first_bytes, LENGTH_BYTES) {
            length.extend_from_slice(&object.read(range.start, (range.end - range.start) as usize).await?);
        }
        let length = length.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        // A damaged length: drop all records, since none is empty.
        let length = length.filter(|&length| length > 0).unwrap_or(u64::MAX);
        let next = self.phys.first_bytes.saturating_add(LENGTH_BYTES).saturating_add(length);
        self.phys.first_bytes = next.min(self.phys.end_bytes);
        self.phys.records_lost += 1;
        Ok(())
    }

    async fn close(self) -> Result<()> {
        let bonus = self.phys.encode(Endian::NATIVE).into();
        self.edit.set_bonus(self.object, ObjectType::SPA_HISTORY_OFFSETS, bonus).await
    }
}

fn text(text: &str) -> NvValue {
    NvValue::String(text.as_bytes().to_vec())
}
