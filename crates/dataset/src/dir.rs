//! A directory of the dataset tree: a name with parent, children, properties and accounting.

use std::sync::{Arc, OnceLock};

use cenote_boxed::boxed;
use cenote_format::Phys;
use cenote_format::dnode::ObjectType;
use cenote_format::dsl::DslDirPhys;
use cenote_format::dsl::names::{crypto_key, dir_field};
use cenote_format::objset::ObjsetType;
use cenote_format::units::{Guid, ObjectId};
use cenote_object::{Result, Zap};

use crate::keys::EncryptionInfo;
use crate::mos::Mos;

/// Bound on nesting; OpenZFS allows 50 (`zfs_max_dataset_nesting`).
const MAX_DEPTH: usize = 128;

/// Name of a chain of directories in errors.
pub const ABOVE: &str = "the directories above one another";

/// A directory. Cloning costs one atomic increment.
#[derive(Clone)]
pub struct Dir(Arc<DirInner>);

struct DirInner {
    mos: Mos,
    id: ObjectId,
    name: String,
    parent: Option<Dir>,
    phys: DslDirPhys,
    /// Later fields, if the object has them.
    fields: Option<Zap>,
    content_type: OnceLock<ObjsetType>,
}

impl Dir {
    pub(crate) async fn open(mos: &Mos, id: ObjectId, parent: Option<Dir>, name: String) -> Result<Dir> {
        let object = mos.objset().object(id).await?;
        let dnode = object.dnode();
        if dnode.bonus_type != ObjectType::DSL_DIR {
            return Err(object.damaged("is no dataset directory"));
        }
        let phys = DslDirPhys::decode(dnode.bonus(), dnode.endian()).map_err(|e| object.format(e))?;
        let fields = if dnode.object_type.is_zap() { Some(Zap::open(object).await?) } else { None };
        let content_type = OnceLock::new();
        Ok(Dir(Arc::new(DirInner { mos: mos.clone(), id, name, parent, phys, fields, content_type })))
    }

    /// A directory and all above it, the root last, without their names.
    ///
    /// # Errors
    /// One is damaged.
    #[boxed]
    pub async fn chain(mos: &Mos, id: ObjectId) -> Result<Vec<(ObjectId, DslDirPhys)>> {
        let mut chain = Vec::new();
        let mut at = id;
        while at.0 != 0 {
            if chain.len() > MAX_DEPTH {
                return Err(mos.objset().damaged(id, "has more directories above it than can be"));
            }
            let dnode = mos.objset().dnode(at).await?;
            let phys = DslDirPhys::decode(dnode.bonus(), dnode.endian());
            let phys = phys.map_err(|e| mos.objset().format(at, e))?;
            let parent = phys.parent;
            chain.push((at, phys));
            at = parent;
        }
        Ok(chain)
    }

    /// Opens a directory by number; finds its name by a look at all children of those above it.
    #[boxed]
    pub async fn open_by_id(mos: &Mos, id: ObjectId) -> Result<Dir> {
        let chain = Dir::chain(mos, id).await?;
        let mut dir = mos.root_dir().await?;
        for &(id, _) in chain.iter().rev().skip(1) {
            let name = dir.name_of_child(id).await?;
            let name = name.ok_or_else(|| mos.objset().damaged(id, "is not among its parent's children"))?;
            dir = dir.open_child(&name, id).await?;
        }
        Ok(dir)
    }

    /// Pool.
    pub fn mos(&self) -> &Mos {
        &self.0.mos
    }

    /// Object in the MOS.
    pub fn id(&self) -> ObjectId {
        self.0.id
    }

    /// Full name, `pool/a/b`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Parent directory; `None` at the root.
    pub fn parent(&self) -> Option<&Dir> {
        self.0.parent.as_ref()
    }

    /// On-disk fields.
    pub fn phys(&self) -> &DslDirPhys {
        &self.0.phys
    }

    /// Type of its versions, once one was opened.
    pub(super) fn content_type(&self) -> &OnceLock<ObjsetType> {
        &self.0.content_type
    }

    /// ZAP of the properties set here.
    ///
    /// # Errors
    /// It is damaged.
    #[boxed]
    pub async fn props(&self) -> Result<Option<Zap>> {
        self.zap(self.phys().props_zap).await
    }

    /// Field of an extended directory (`dir_field`); the first number of an array.
    ///
    /// # Errors
    /// The table is damaged.
    #[boxed]
    pub async fn field(&self, name: &str) -> Result<Option<u64>> {
        Ok(self.field_words(name).await?.first().copied())
    }

    /// All numbers of such a field; none if it is missing.
    ///
    /// # Errors
    /// The table is damaged.
    #[boxed]
    pub async fn field_words(&self, name: &str) -> Result<Vec<u64>> {
        let Some(zap) = &self.0.fields else { return Ok(Vec::new()) };
        Ok(zap.lookup(name.as_bytes()).await?.map_or_else(Vec::new, |value| value.words().collect()))
    }

    pub(crate) async fn zap(&self, id: ObjectId) -> Result<Option<Zap>> {
        if id.0 == 0 {
            return Ok(None);
        }
        Zap::open_id(self.mos().objset(), id).await.map(Some)
    }

    /// Child directories by name, without OpenZFS's internal ones.
    ///
    /// # Errors
    /// The table is damaged.
    #[boxed]
    pub async fn children(&self) -> Result<Vec<(String, ObjectId)>> {
        let Some(zap) = self.zap(self.phys().child_dirs_zap).await? else { return Ok(Vec::new()) };
        let entries = zap.to_vec().await?;
        let mut children: Vec<_> = entries
            .iter()
            .filter_map(|entry| Some((entry.name_text(), ObjectId(entry.value.as_u64()?))))
            .filter(|(name, _)| !name.contains(['$', '%']))
            .collect();
        children.sort();
        Ok(children)
    }

    async fn name_of_child(&self, id: ObjectId) -> Result<Option<String>> {
        match self.zap(self.phys().child_dirs_zap).await? {
            Some(zap) => zap.name_of(id.0).await,
            None => Ok(None),
        }
    }

    /// Child directory of that name.
    ///
    /// # Errors
    /// The table or the directory is damaged.
    #[boxed]
    pub async fn child(&self, name: &str) -> Result<Option<Dir>> {
        let Some(zap) = self.zap(self.phys().child_dirs_zap).await? else { return Ok(None) };
        match zap.get_u64(name).await? {
            Some(id) => self.open_child(name, ObjectId(id)).await.map(Some),
            None => Ok(None),
        }
    }

    /// Opens a child directory of known number and name.
    ///
    /// # Errors
    /// It is damaged or nested too deeply.
    #[boxed]
    pub async fn open_child(&self, name: &str, id: ObjectId) -> Result<Dir> {
        let name = format!("{}/{name}", self.name());
        if name.split('/').count() > MAX_DEPTH {
            return Err(self.mos().objset().damaged(id, "is nested deeper than can be"));
        }
        Dir::open(self.mos(), id, Some(self.clone()), name).await
    }

    /// Encryption parameters; `None` if not encrypted.
    ///
    /// # Errors
    /// The key object is damaged.
    #[boxed]
    pub async fn encryption(&self) -> Result<Option<EncryptionInfo>> {
        let Some(key_object) = self.field(dir_field::CRYPTO_KEY_OBJ).await?.map(ObjectId) else {
            return Ok(None);
        };
        let objset = self.mos().objset();
        let key = Zap::open_id(objset, key_object).await?;
        let required = async |name: &str| {
            let why = || objset.damaged(key_object, format!("the key object has no {name}"));
            key.get_u64(name).await?.ok_or_else(why)
        };
        let root = self.ancestor_or_other(ObjectId(required(crypto_key::ROOT_DDOBJ).await?)).await?;
        // The encryption root records how to derive the wrapping key.
        let root_key = match root.field(dir_field::CRYPTO_KEY_OBJ).await? {
            Some(id) => Zap::open_id(objset, ObjectId(id)).await?,
            None => key.clone(),
        };
        let keylocation = match root.props().await? {
            Some(props) => props.lookup(b"keylocation").await?.and_then(|v| v.as_text()),
            None => None,
        };
        Ok(Some(EncryptionInfo {
            root: root.name().to_owned(),
            root_dir: root.id(),
            suite: required(crypto_key::CRYPTO_SUITE).await?,
            keyformat: root_key.get_u64(crypto_key::KEYFORMAT).await?.unwrap_or(0),
            keylocation,
            pbkdf2_salt: root_key.get_u64(crypto_key::PBKDF2_SALT).await?.unwrap_or(0),
            pbkdf2_iters: root_key.get_u64(crypto_key::PBKDF2_ITERS).await?.unwrap_or(0),
            key_guid: Guid(required(crypto_key::GUID).await?),
            key_object,
        }))
    }

    /// Directory of that number, nearly always this one or an ancestor.
    async fn ancestor_or_other(&self, id: ObjectId) -> Result<Dir> {
        let mut dir = Some(self);
        while let Some(here) = dir {
            if here.id() == id {
                return Ok(here.clone());
            }
            dir = here.parent();
        }
        Dir::open_by_id(self.mos(), id).await
    }
}

impl std::fmt::Debug for Dir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dir({} object {})", self.name(), self.id())
    }
}
