//! A dataset and its other versions, each opened once and only when a finding needs it.
//!
//! Locking: one task looks up owners at a time. The once-cells let shared references open versions on demand.

use cenote_dataset::{Dataset, Mos};
use cenote_format::blkptr::Blkptr;
use cenote_format::dnode::ObjectType;
use cenote_format::units::{BlockId, DatasetId, ObjectId};
use cenote_fs::Filesystem;
use cenote_object::Objset;
use cenote_object::object::SPILL_BLOCK;
use cenote_pool::Zbookmark;
use tokio::sync::OnceCell;

/// Most clones examined per snapshot.
const MAX_CLONES: usize = 16;

/// All versions in a dataset's DSL directory, oldest first.
pub(super) struct Family {
    versions: Vec<Version>,
    /// The index of the requested one.
    index: usize,
    filesystem: OnceCell<Option<Filesystem>>,
}

/// A live dataset or a snapshot.
struct Version {
    dataset: Dataset,
    objset: OnceCell<Option<Objset>>,
    clones: OnceCell<Vec<Version>>,
}

impl Family {
    /// Finds the versions; only the requested one if the others can't be found.
    pub(super) async fn of(mos: &Mos, dataset: DatasetId) -> Option<Family> {
        let this = mos.dataset_by_id(dataset).await.ok()?;
        let (versions, index) = match this.dir().head().await {
            Ok(head) => {
                let mut versions = head.snapshots().await.unwrap_or_default();
                versions.push(head);
                match versions.iter().position(|version| version.id() == dataset) {
                    Some(index) => (versions, index),
                    None => (vec![this], 0),
                }
            }
            Err(_) => (vec![this], 0),
        };
        let versions = versions.into_iter().map(Version::new).collect();
        Some(Family { versions, index, filesystem: OnceCell::new() })
    }

    fn this(&self) -> &Version {
        &self.versions[self.index]
    }

    /// The full name of the requested dataset.
    pub(super) fn name(&self) -> &str {
        self.this().dataset.name()
    }

    pub(super) async fn objset(&self) -> Option<&Objset> {
        self.this().objset().await
    }

    /// The path of an object from the root of its file system; `None` if it is not a file, or can't be found.
    pub(super) async fn path(&self, object: ObjectId) -> Option<String> {
        let open = || async { Filesystem::open(self.objset().await?.clone()).await.ok() };
        let path = self.filesystem.get_or_init(open).await.as_ref()?.path_of(object).await.ok()?;
        Some(String::from_utf8_lossy(&path).into_owned())
    }

    /// The later versions, and clones of all of these, with the same block.
    pub(super) async fn sharing(&self, place: &Zbookmark, bp: &Blkptr) -> Vec<String> {
        let versions = &self.versions[self.index..];
        let (mut shared, mut end) = (1, versions.len());
        while shared < end {
            let middle = shared + (end - shared) / 2;
            match versions[middle].has(place, bp).await {
                true => shared = middle + 1,
                false => end = middle,
            }
        }
        let name = |version: &Version| version.dataset.name().to_owned();
        let mut names: Vec<String> = versions[1..shared].iter().map(name).collect();
        for version in versions[..shared].iter().filter(|version| version.dataset.is_snapshot()) {
            for clone in version.clones().await {
                if clone.has(place, bp).await {
                    names.push(name(clone));
                }
            }
        }
        names
    }
}

impl Version {
    fn new(dataset: Dataset) -> Version {
        Version { dataset, objset: OnceCell::new(), clones: OnceCell::new() }
    }

    /// With the key, if any: dnodes of encrypted datasets need it.
    async fn objset(&self) -> Option<&Objset> {
        let open = || async {
            match self.dataset.objset().await {
                Ok(set) => Some(set),
                Err(_) => self.dataset.objset_head().await.ok(),
            }
        };
        self.objset.get_or_init(open).await.as_ref()
    }

    async fn clones(&self) -> &[Version] {
        let open = || async {
            let clones = self.dataset.clones().await.unwrap_or_default();
            clones.into_iter().take(MAX_CLONES).map(Version::new).collect()
        };
        self.clones.get_or_init(open).await
    }

    async fn has(&self, place: &Zbookmark, bp: &Blkptr) -> bool {
        let Some(set) = self.objset().await else { return false };
        let same = |other: &Blkptr| {
            other.allocation_birth() == bp.allocation_birth() && other.dvas().next() == bp.dvas().next()
        };
        if bp.object_type() == ObjectType::OBJSET {
            return same(set.bp());
        }
        let object = match place.object {
            ObjectId(0) => set.meta(),
            id => set.object(id).await.ok(),
        };
        let Some(object) = object else { return false };
        if place.block == SPILL_BLOCK {
            return object.dnode().spill().is_some_and(|spill| same(&spill));
        }
        object.blkptr(place.level, BlockId(place.block.0)).await.is_ok_and(|other| same(&other))
    }
}
