//! Answers of verbs as the lab's facts about pools.

use std::collections::BTreeMap;

use cenote_dataset::Property;
use cenote_format::scan::{ScanFunc, ScanPhys, ScanState};
use cenote_format::units::{Guid, VdevId};
use cenote_lab::machine::zpool::{
    Class, Dataset, DatasetKind, Latencies, POOL_PROPERTIES, Pool, Scan, Vdev, VdevKind,
};
use cenote_pool::{VdevClass, VdevKind as Kind, VdevStatus};

use crate::error::ControlError;
use crate::session::Session;
use crate::zfs::get::Get as GetDatasets;
use crate::zfs::select::Scope;
use crate::zfs::shown::Shown;
use crate::zpool::shown::get::{Found, Get, VdevProperties};
use crate::zpool::shown::iostat::Counted;
use crate::zpool::shown::status::{Opened, PoolStatus, Status};

/// Properties of datasets that rules use. All properties of thousands of datasets would take seconds.
const DATASET_PROPERTIES: [&str; 9] = [
    "recordsize",
    "volblocksize",
    "sync",
    "logbias",
    "compression",
    "compressratio",
    "special_small_blocks",
    "usedbydataset",
    "logicalused",
];

/// Pools with their vdevs and datasets.
///
/// # Errors
/// A pool can't be read.
pub(super) async fn pools(
    session: &Session,
    names: &[String],
    traffic: &[Counted],
) -> Result<Vec<Pool>, ControlError> {
    let status = Status { pools: names.to_vec(), damaged: false, dedup: false };
    let statuses = session.run(status).await?.answer;
    let mut pools = Vec::new();
    for status in statuses.pools {
        let Some(opened) = &status.opened else { continue };
        let vdevs = Vdevs {
            opened,
            properties: vdev_properties(session, &status.name).await?,
            traffic: traffic.iter().find(|counted| counted.pool == status.name),
        };
        let mut pool = pool(&status, opened, vdevs.all(&status));
        add_properties(session, &mut pool).await?;
        pool.datasets = datasets(session, &pool.name).await?;
        pools.push(pool);
    }
    Ok(pools)
}

fn pool(status: &PoolStatus, opened: &Opened, vdevs: Vec<Vdev>) -> Pool {
    let said = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    Pool {
        name: status.name.clone(),
        guid: status.guid.0,
        state: status.health.shown_state().into(),
        status: status.reason.as_ref().map(|reason| said(&reason.status)),
        action: status.reason.as_ref().map(|reason| said(&reason.action)),
        data_errors: opened.data_errors as u64,
        scan: opened.work.scan.as_ref().and_then(scan),
        size_bytes: None,
        allocated_bytes: None,
        fragmentation_percent: None,
        dedup_ratio: 1.0,
        properties: BTreeMap::new(),
        vdevs,
        datasets: Vec::new(),
    }
}

fn scan(phys: &ScanPhys) -> Option<Scan> {
    let function = match ScanFunc::from(phys.func) {
        ScanFunc::Scrub => "SCRUB",
        ScanFunc::Resilver => "RESILVER",
        _ => return None,
    };
    let state = match ScanState::from(phys.state) {
        ScanState::Scanning => "SCANNING",
        ScanState::Finished => "FINISHED",
        ScanState::Canceled => "CANCELED",
        _ => "NONE",
    };
    Some(Scan {
        function: function.into(),
        state: state.into(),
        start_unix_s: phys.start_time_s,
        end_unix_s: phys.end_time_s,
        errors: phys.errors,
    })
}

async fn add_properties(session: &Session, pool: &mut Pool) -> Result<(), ControlError> {
    let get = Get { names: vec![pool.name.clone()], properties: None };
    let Found::Pools(found) = session.run(get).await?.answer else { return Ok(()) };
    let Some(found) = found.first() else { return Ok(()) };
    let number = |name: &str| number(&found.properties, name);
    (pool.size_bytes, pool.allocated_bytes) = (number("size"), number("allocated"));
    pool.fragmentation_percent = number("fragmentation");
    pool.dedup_ratio = ratio(&found.properties, "dedupratio").unwrap_or(1.0);
    let known = POOL_PROPERTIES.iter();
    pool.properties =
        known.filter_map(|name| Some(((*name).to_owned(), text(&found.properties, name)?))).collect();
    Ok(())
}

async fn vdev_properties(session: &Session, pool: &str) -> Result<Vec<VdevProperties>, ControlError> {
    let names = vec![pool.to_owned(), "all-vdevs".to_owned()];
    let properties = ["ashift", "fragmentation", "parity"].map(str::to_owned).to_vec();
    match session.run(Get { names, properties: Some(properties) }).await?.answer {
        Found::Vdevs { vdevs, .. } => Ok(vdevs),
        Found::Pools(_) => Ok(Vec::new()),
    }
}

async fn datasets(session: &Session, pool: &str) -> Result<Vec<Dataset>, ControlError> {
    let get = GetDatasets {
        names: vec![pool.to_owned()],
        scope: Scope::default(),
        properties: Some(DATASET_PROPERTIES.map(str::to_owned).to_vec()),
        sources: None,
    };
    Ok(session.run(get).await?.answer.datasets.iter().filter_map(dataset).collect())
}

fn dataset(shown: &Shown) -> Option<Dataset> {
    let number = |name: &str| number(&shown.properties, name);
    let word = |name: &str| text(&shown.properties, name).unwrap_or_default();
    let kind = match shown.kind {
        crate::zfs::select::Kind::Filesystem => DatasetKind::Filesystem(number("recordsize")?),
        crate::zfs::select::Kind::Volume => DatasetKind::Volume(number("volblocksize")?),
        _ => return None,
    };
    Some(Dataset {
        name: shown.name.clone(),
        kind,
        sync: word("sync"),
        logbias: word("logbias"),
        compression: word("compression"),
        compress_ratio: ratio(&shown.properties, "compressratio").unwrap_or(1.0).max(1.0),
        special_small_bytes: number("special_small_blocks").unwrap_or(0),
        used_by_itself_bytes: number("usedbydataset").unwrap_or(0),
        logical_used_bytes: number("logicalused").unwrap_or(0),
        properties: BTreeMap::new(),
        counters: None,
    })
}

/// As `zfs get -p` prints it; none: the property is absent.
fn text(properties: &[Property], name: &str) -> Option<String> {
    let property = properties.iter().find(|property| property.name == name)?;
    Some(property.literal()).filter(|text| text != "-")
}

fn number(properties: &[Property], name: &str) -> Option<u64> {
    text(properties, name)?.trim_end_matches('%').parse().ok()
}

fn ratio(properties: &[Property], name: &str) -> Option<f64> {
    text(properties, name)?.trim_end_matches('x').parse().ok()
}

/// The sources of facts about a pool's vdevs.
struct Vdevs<'a> {
    opened: &'a Opened,
    properties: Vec<VdevProperties>,
    traffic: Option<&'a Counted>,
}

impl Vdevs<'_> {
    fn all(&self, status: &PoolStatus) -> Vec<Vdev> {
        let tops = status.health.root.children.iter();
        let tops = tops.filter(|top| !matches!(top.kind, Kind::Hole | Kind::Indirect));
        let tops = tops.map(|top| self.vdev(top, class(top), true));
        let cache = status.health.l2cache.iter().map(|vdev| self.vdev(vdev, Class::Cache, false));
        let spares = status.health.spares.iter().map(|vdev| self.vdev(vdev, Class::Spare, false));
        tops.chain(cache).chain(spares).collect()
    }

    fn vdev(&self, vdev: &VdevStatus, class: Class, is_top: bool) -> Vdev {
        let properties = self.properties.iter().find(|found| found.guid == vdev.guid);
        let property = |name| properties.and_then(|found| number(&found.properties, name));
        let usage = self.opened.usage.iter().find(|usage| is_top && usage.raw.vdev == VdevId(vdev.id));
        let parity = property("parity").unwrap_or(1) as u32;
        Vdev {
            name: vdev.name.clone(),
            path: vdev.path.clone(),
            kind: match vdev.kind {
                Kind::Disk | Kind::File => VdevKind::Leaf,
                Kind::Mirror => VdevKind::Mirror,
                Kind::Raidz => VdevKind::Raidz(parity),
                Kind::Draid => VdevKind::Draid(parity),
                Kind::Replacing | Kind::Spare => VdevKind::Replacing,
                _ => VdevKind::Other,
            },
            class,
            state: vdev.shown_state(class == Class::Spare).into(),
            errors: [vdev.errors.read, vdev.errors.write, vdev.errors.checksum],
            slow_ios: vdev.slow_ios.unwrap_or(0),
            ashift: property("ashift").filter(|ashift| *ashift > 0).map(|ashift| ashift as u32),
            physical_ashift: None,
            size_bytes: usage.map(|usage| usage.raw.size_bytes),
            allocated_bytes: usage.map(|usage| usage.raw.allocated_bytes),
            fragmentation_percent: property("fragmentation"),
            latencies: self.latencies(vdev.guid),
            children: vdev.children.iter().map(|child| self.vdev(child, class, false)).collect(),
        }
    }

    fn latencies(&self, vdev: Guid) -> Option<Latencies> {
        let counted = self.traffic?;
        let traffic = counted.traffic.get(&vdev)?;
        let mean_ns = |mean: Option<u64>| mean.map(|ns| ns as f64);
        let (read_ns, write_ns) = (mean_ns(traffic.read.average_ns()), mean_ns(traffic.write.average_ns()));
        let per_second = |operations: u64| operations as f64 * 1e9 / counted.open_ns.max(1) as f64;
        Some(Latencies {
            read_ns,
            write_ns,
            disk_read_ns: read_ns,
            disk_write_ns: write_ns,
            reads: per_second(traffic.read.operations),
            writes: per_second(traffic.write.operations),
        })
    }
}

fn class(top: &VdevStatus) -> Class {
    match top.class {
        VdevClass::Normal => Class::Normal,
        VdevClass::Log => Class::Log,
        VdevClass::Special => Class::Special,
        VdevClass::Dedup => Class::Dedup,
    }
}
