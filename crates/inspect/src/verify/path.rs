//! Paths of files, for naming damage.

use cenote_dataset::Objset;
use cenote_format::units::ObjectId;
use cenote_fs::Filesystem;

/// The path of an object from the root of its file system; `None` if it is no file, or can't be found.
pub(super) async fn of(set: &Objset, object: ObjectId) -> Option<String> {
    let fs = Filesystem::open(set.clone()).await.ok()?;
    let path = fs.path_of(object).await.ok()?;
    Some(String::from_utf8_lossy(&path).into_owned())
}
