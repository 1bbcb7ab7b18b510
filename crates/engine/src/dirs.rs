//! Directories: those of datasets, and special ones that OpenZFS keeps below the root.
//!
//! ```text
//!   $MOS     space of the MOS
//!   $FREE    destroyed datasets not freed yet (freeing)
//!   $ORIGIN  an empty snapshot that all others are cloned from
//!   $LEAK    leaked space: made when first needed
//! ```
//!
//! Leaked space must have an account, or `zfs list` would show less than the space maps. A leak is noted
//! where it is met ([`cenote_pool::ReadErrors::note_leak`]), and charged before the txg ends. When nothing is
//! left to free, the rest of `$FREE` is leaked.
//!
//! Source: OpenZFS `dsl_dir.c` (`dsl_dir_create_sync`), `dsl_scan.c` (`dsl_process_async_destroys`).

use cenote_boxed::boxed;
use cenote_dataset::mos::{FREE_DIR_NAME, LEAK_DIR_NAME};
use cenote_format::Phys;
use cenote_format::bytes::Endian;
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::names::{DMU_POOL_DIRECTORY_OBJECT, pool as names};
use cenote_format::dsl::{DD_FLAG_USED_BREAKDOWN, DslDirPhys};
use cenote_format::features::Since;
use cenote_format::units::ObjectId;
use cenote_object::{NewObject, NewZap, Result, Zap, ZapEdit};

use crate::account::Account;
use crate::context::SyncContext;
use crate::store::space_delta::SpaceDelta;

impl SyncContext {
    /// Makes a directory below `parent`; `None`: the root.
    #[boxed]
    pub async fn make_dir(&self, parent: Option<ObjectId>, name: &str) -> Result<ObjectId> {
        let edit = self.edit();
        let mut phys = DslDirPhys::zeroed();
        phys.creation_time_s = self.now_s();
        phys.parent = parent.unwrap_or_default();
        if self.has(Since::UsedBreakdown) {
            phys.flags = DD_FLAG_USED_BREAKDOWN;
        }
        let new = NewObject::of(ObjectType::DSL_DIR);
        let id = edit.create(&new.bonus(ObjectType::DSL_DIR, phys.encode(Endian::NATIVE))).await?;
        match parent {
            Some(parent) => {
                let children = self.dir_phys(parent).await?.child_dirs_zap;
                ZapEdit::new(&edit, children).add(name, id.0).await?;
            }
            None => {
                ZapEdit::new(&edit, DMU_POOL_DIRECTORY_OBJECT).add(names::ROOT_DATASET, id.0).await?;
            }
        }
        phys.props_zap = NewZap::of(ObjectType::DSL_PROPS).create(&edit).await?;
        phys.child_dirs_zap = NewZap::of(ObjectType::DSL_DIR_CHILD_MAP).create(&edit).await?;
        self.set_dir_phys(id, &phys).await?;
        Ok(id)
    }

    /// Looks up a special directory below the root.
    #[boxed]
    pub async fn special_dir(&self, name: &str) -> Result<ObjectId> {
        let found = self.find_special_dir(name).await?.1;
        found.ok_or_else(|| self.damaged(&format!("there is no directory '{name}'")))
    }

    async fn find_special_dir(&self, name: &str) -> Result<(ObjectId, Option<ObjectId>)> {
        let root = self.directory_object(names::ROOT_DATASET).await?;
        let children = self.dir_phys(root).await?.child_dirs_zap;
        let found = Zap::open_id(&self.edit().view(), children).await?.get_u64(name).await?;
        Ok((root, found.map(ObjectId)))
    }

    pub(crate) async fn charge_leaks(&mut self) -> Result<()> {
        match self.syncing.pool.read_errors().take_leaked_bytes() {
            0 => Ok(()),
            bytes => self.charge_leak(SpaceDelta { used: bytes as i64, ..SpaceDelta::default() }).await,
        }
    }

    /// Moves the rest of `$FREE` to `$LEAK`, when nothing is left to free.
    pub(crate) async fn leak_rest(&mut self) -> Result<()> {
        let free = self.special_dir(FREE_DIR_NAME).await?;
        let phys = self.dir_phys(free).await?;
        let rest = SpaceDelta {
            used: phys.used_bytes as i64,
            compressed: phys.compressed_bytes as i64,
            uncompressed: phys.uncompressed_bytes as i64,
        };
        if rest == SpaceDelta::default() {
            return Ok(());
        }
        self.use_space(free, -rest, Account::Head).await?;
        self.charge_leak(rest).await
    }

    async fn charge_leak(&mut self, space: SpaceDelta) -> Result<()> {
        let dir = match self.find_special_dir(LEAK_DIR_NAME).await? {
            (_, Some(dir)) => dir,
            (root, None) => self.make_dir(Some(root), LEAK_DIR_NAME).await?,
        };
        self.use_space(dir, space, Account::Head).await
    }
}
