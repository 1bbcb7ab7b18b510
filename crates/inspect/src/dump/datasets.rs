//! Datasets with their DSL structures: directory, versions, deadlists, bookmarks, encryption.

use cenote_dataset::{Dataset, Mos};
use cenote_object::deadlist::Deadlist;

use super::label::record;
use super::{Sink, Value, content, failure};
use crate::error::Result;

/// The MOS's object directory.
///
/// # Errors
/// It is damaged.
pub async fn directory(sink: &mut dyn Sink, mos: &Mos) -> Result<()> {
    let mut entries = mos.directory()?.to_vec().await?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    sink.table("directory", &["name", "value"]);
    for entry in entries {
        sink.row(vec![entry.name_text().into(), content::zap_value(&entry.value)]);
    }
    sink.close();
    Ok(())
}

/// A dataset, its snapshots and everything below.
///
/// # Errors
/// The tree of names can't be walked.
pub async fn tree(sink: &mut dyn Sink, top: &Dataset) -> Result<()> {
    sink.list("datasets");
    let all = if top.is_snapshot() { vec![top.clone()] } else { top.descendants().await? };
    for dataset in all {
        one(sink, &dataset).await;
        match dataset.snapshots().await {
            Ok(snapshots) => {
                for snapshot in snapshots {
                    one(sink, &snapshot).await;
                }
            }
            Err(error) => failure(sink, &error),
        }
    }
    sink.close();
    Ok(())
}

async fn one(sink: &mut dyn Sink, dataset: &Dataset) {
    sink.open(dataset.name());
    sink.field("name", dataset.name().into());
    sink.field("object", dataset.id().0.into());
    match dataset.kind().await {
        Ok(kind) => sink.field("kind", kind.to_string().into()),
        Err(error) => failure(sink, &error),
    }
    record(sink, "dsl_dataset", dataset.phys());
    if !dataset.is_snapshot() {
        sink.field("dir_object", dataset.dir().id().0.into());
        record(sink, "dsl_dir", dataset.dir().phys());
        encryption(sink, dataset).await;
        bookmarks(sink, dataset).await;
    }
    deadlist(sink, dataset).await;
    sink.close();
}

async fn encryption(sink: &mut dyn Sink, dataset: &Dataset) {
    match dataset.dir().encryption().await {
        Ok(None) => {}
        Ok(Some(info)) => {
            sink.open("encryption");
            sink.field("root", info.root.into());
            sink.field("root_dir", info.root_dir.0.into());
            sink.field("suite", info.suite.into());
            sink.field("keyformat", info.keyformat.into());
            sink.field("keylocation", info.keylocation.into());
            sink.field("pbkdf2_iters", info.pbkdf2_iters.into());
            sink.field("key_guid", info.key_guid.0.into());
            sink.field("key_object", info.key_object.0.into());
            sink.close();
        }
        Err(error) => failure(sink, &error),
    }
}

async fn bookmarks(sink: &mut dyn Sink, dataset: &Dataset) {
    match dataset.bookmarks().await {
        Ok(bookmarks) if bookmarks.is_empty() => {}
        Ok(bookmarks) => {
            sink.list("bookmarks");
            bookmarks.iter().for_each(|bookmark| record(sink, &bookmark.name, &bookmark.phys));
            sink.close();
        }
        Err(error) => failure(sink, &error),
    }
}

async fn deadlist(sink: &mut dyn Sink, dataset: &Dataset) {
    let id = dataset.phys().deadlist;
    if id.0 == 0 {
        return;
    }
    let lists = match Deadlist::open(dataset.mos().objset(), id).await {
        Ok(deadlist) => deadlist.lists().await,
        Err(error) => Err(error),
    };
    match lists {
        Ok(lists) if lists.iter().all(|list| list.phys().bytes == 0) => {}
        Ok(lists) => {
            sink.table("deadlist", &["pointers", "bytes", "compressed", "uncompressed", "lists within"]);
            for list in lists {
                let phys = list.phys();
                sink.row(vec![
                    phys.blkptr_count.into(),
                    Value::Size(phys.bytes),
                    Value::Size(phys.compressed_bytes),
                    Value::Size(phys.uncompressed_bytes),
                    phys.subobj_count.into(),
                ]);
            }
            sink.close();
        }
        Err(error) => failure(sink, &error),
    }
}
