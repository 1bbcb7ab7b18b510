//! Delegation: `zfs allow`, `zfs unallow`, and creators' permissions in new datasets.
//!
//! Source: OpenZFS `dsl_deleg.c` (`dsl_deleg_set_sync`, `dsl_deleg_unset_sync`,
//! `dsl_deleg_set_create_perms`).

use std::collections::BTreeSet;

use cenote_boxed::boxed;
use cenote_dataset::{Dataset, Delegated, Dir};
use cenote_engine::{Engine, SpaceCheck, SyncContext};
use cenote_format::deleg::{DelegKey, Reach, Who, is_permission, is_set_name};
use cenote_format::dnode::ObjectType;
use cenote_format::units::ObjectId;
use cenote_object::{DatasetError, NewZap, Result, Zap, ZapEdit};

/// The unused value of a permission's entry.
const IS_ALLOWED: u64 = 0;

/// Permissions or sets withdrawn from a grantee; `None`: all.
pub type Withdrawn = (DelegKey, Option<BTreeSet<String>>);

/// Adds delegated permissions to a file system or volume.
///
/// # Errors
/// No such dataset; an invalid permission or set name.
#[boxed]
pub async fn allow(engine: &Engine, dataset: &str, delegated: Vec<Delegated>) -> Result<()> {
    let dataset = dataset.to_owned();
    engine
        .run_within(SpaceCheck::Reserved, move |context| {
            Box::pin(async move {
                context.touch_nothing();
                allow_sync(context, &dataset, &delegated).await
            })
        })
        .await
}

/// Withdraws permissions from file systems and volumes, all in one txg. Missing ones are ignored.
///
/// # Errors
/// No such dataset; an invalid permission or set name.
#[boxed]
pub async fn unallow(engine: &Engine, datasets: &[String], withdrawn: Vec<Withdrawn>) -> Result<()> {
    let datasets = datasets.to_vec();
    engine
        .run_within(SpaceCheck::Reserved, move |context| {
            Box::pin(async move {
                context.touch_nothing();
                unallow_sync(context, &datasets, &withdrawn).await
            })
        })
        .await
}

async fn allow_sync(context: &mut SyncContext, name: &str, delegated: &[Delegated]) -> Result<()> {
    let dataset = head(context, name).await?;
    for (key, names) in delegated {
        check(name, key, names)?;
    }
    for (key, names) in delegated {
        grant(context, dataset.dir().id(), key, names).await?;
        for permission in names {
            log(context, &dataset, "permission update", &format!("{key} {permission}")).await?;
        }
    }
    Ok(())
}

async fn unallow_sync(context: &mut SyncContext, names: &[String], withdrawn: &[Withdrawn]) -> Result<()> {
    let mut heads = Vec::new();
    for name in names {
        heads.push(head(context, name).await?);
        for (key, names) in withdrawn {
            check(name, key, names.as_ref().unwrap_or(&BTreeSet::new()))?;
        }
    }
    for dataset in heads {
        for (key, names) in withdrawn {
            withdraw(context, &dataset, key, names.as_ref()).await?;
        }
    }
    Ok(())
}

async fn head(context: &SyncContext, name: &str) -> Result<Dataset> {
    let dataset = context.mos().await?.dataset(name).await?;
    match dataset.is_snapshot() {
        true => Err(DatasetError::unsuitable(name, "operation not applicable to datasets of this type")),
        false => Ok(dataset),
    }
}

fn check(dataset: &str, key: &DelegKey, names: &BTreeSet<String>) -> Result<()> {
    let is_valid = |name: &String| if key.of_sets { is_set_name(name) } else { is_permission(name) };
    let set = if let Who::Set(set) = &key.who { is_set_name(set) } else { true };
    match set && names.iter().all(is_valid) {
        true => Ok(()),
        false => Err(DatasetError::unsuitable(dataset, "invalid permission")),
    }
}

/// Adds permissions under a key of a directory's table.
async fn grant(
    context: &mut SyncContext,
    dir: ObjectId,
    key: &DelegKey,
    names: &BTreeSet<String>,
) -> Result<()> {
    let (edit, key) = (context.edit(), key.to_string());
    let mut phys = context.dir_phys(dir).await?;
    if phys.deleg_zap.0 == 0 {
        phys.deleg_zap = NewZap::of(ObjectType::DSL_PERMS).create(&edit).await?;
        context.set_dir_phys(dir, &phys).await?;
    }
    let table = ZapEdit::new(&edit, phys.deleg_zap);
    let granted = match Zap::open_id(&edit.view(), phys.deleg_zap).await?.get_u64(&key).await? {
        Some(granted) => ObjectId(granted),
        None => {
            let granted = NewZap::of(ObjectType::DSL_PERMS).create(&edit).await?;
            table.add(&key, granted.0).await?;
            granted
        }
    };
    for name in names {
        ZapEdit::new(&edit, granted).update(name, IS_ALLOWED).await?;
    }
    Ok(())
}

/// Removes names under a key of a dataset's table, or the whole key.
async fn withdraw(
    context: &mut SyncContext,
    dataset: &Dataset,
    key: &DelegKey,
    names: Option<&BTreeSet<String>>,
) -> Result<()> {
    let edit = context.edit();
    let table = context.dir_phys(dataset.dir().id()).await?.deleg_zap;
    if table.0 == 0 {
        return Ok(());
    }
    let typed = key.to_string();
    let granted = Zap::open_id(&edit.view(), table).await?.get_u64(&typed).await?.map(ObjectId);
    let Some(names) = names else {
        if let Some(granted) = granted {
            ZapEdit::new(&edit, table).remove(&typed).await?;
            edit.destroy(granted).await?;
        }
        return log(context, dataset, "permission who remove", &typed).await;
    };
    let Some(granted) = granted else { return Ok(()) };
    for name in names {
        match ZapEdit::new(&edit, granted).remove(name).await {
            Err(DatasetError::NoEntry { .. }) => {}
            removed => removed?,
        }
        log(context, dataset, "permission remove", &format!("{key} {name}")).await?;
    }
    if Zap::open_id(&edit.view(), granted).await?.to_vec().await?.is_empty() {
        ZapEdit::new(&edit, table).remove(&typed).await?;
        edit.destroy(granted).await?;
    }
    Ok(())
}

async fn log(context: &mut SyncContext, dataset: &Dataset, event: &str, details: &str) -> Result<()> {
    context.log_of_dataset((dataset.name(), ObjectId(dataset.id().0)), event, details).await
}

/// Grants the creator of a dataset the create-time permissions of `parent` and all directories above.
pub(crate) async fn grant_at_creation(context: &mut SyncContext, parent: &Dir, new: ObjectId) -> Result<()> {
    let mut above = Some(parent);
    while let Some(dir) = above {
        for (promised, names) in dir.delegated().await? {
            if promised.who == Who::Creator {
                let who = Who::User(context.uid().into());
                let key = DelegKey { who, reach: Reach::Local, of_sets: promised.of_sets };
                grant(context, new, &key, &names).await?;
            }
        }
        above = dir.parent();
    }
    Ok(())
}
