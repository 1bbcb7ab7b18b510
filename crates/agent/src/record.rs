//! Daily record of disks' SMART attributes: a Parquet file a day, a row for each attribute.
//!
//! ```text
//!   FOLDER/2026-11-25.parquet: unix_s, device, model, serial, passed, id, name, normalized, raw
//! ```
//!
//! Values that a disk does not report are null. A second record of the same day replaces the first.

use std::fs::File;
use std::path::Path;

use cenote_lab::result::table::{Cell, Columns, Of, Table};
use chrono::DateTime;
use parquet::errors::{ParquetError, Result};

use crate::smart::Disk;

const COLUMNS: Columns = &[
    ("unix_s", Of::Count),
    ("device", Of::Text),
    ("model", Of::Text),
    ("serial", Of::Text),
    ("passed", Of::Count),
    ("id", Of::Count),
    ("name", Of::Text),
    ("normalized", Of::Count),
    ("raw", Of::Count),
];

/// Writes the day's file.
///
/// # Errors
/// The folder or the file can't be written.
pub fn write(folder: &Path, now_s: u64, disks: &[Disk]) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let path = folder.join(format!("{}.parquet", date(now_s)?));
    let beside = path.with_extension("new");
    table(now_s, disks).write(File::create(&beside)?)?;
    Ok(std::fs::rename(&beside, &path)?)
}

fn table(now_s: u64, disks: &[Disk]) -> Table {
    let count = |count: Option<u64>| count.map_or(Cell::Null, Cell::Count);
    let mut table = Table::new(COLUMNS);
    for Disk { device, smart, attributes } in disks {
        for attribute in attributes {
            table.push(&[
                Cell::Count(now_s),
                Cell::Text(device),
                Cell::Text(&smart.model),
                Cell::Text(&smart.serial),
                count(smart.passed.map(u64::from)),
                count(attribute.id),
                Cell::Text(&attribute.name),
                count(attribute.normalized),
                Cell::Count(attribute.raw),
            ]);
        }
    }
    table
}

/// `2026-11-25`, in UTC.
fn date(unix_s: u64) -> Result<String> {
    let time = i64::try_from(unix_s).ok().and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    let time = time.ok_or_else(|| ParquetError::General("the clock shows no date".into()))?;
    Ok(time.format("%Y-%m-%d").to_string())
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;
    use crate::smart::Attribute;

    #[test]
    fn days_have_their_dates() {
        for (unix_s, wanted) in [
            (0, "1970-01-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_795_627_687, "2026-11-25"),
            (1_709_164_800, "2024-02-29"),
            (1_735_689_599, "2024-12-31"),
        ] {
            assert_eq!(date(unix_s).unwrap(), wanted);
        }
    }

    #[test]
    fn a_day_is_recorded_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let attribute = |raw| Attribute { id: Some(5), name: "Reallocated".into(), normalized: None, raw };
        let disk =
            |raw| Disk { device: "/dev/sda".into(), attributes: vec![attribute(raw)], ..Disk::default() };
        write(folder.path(), 0, &[disk(1), disk(2)]).unwrap();
        write(folder.path(), 60, &[disk(3)]).unwrap();
        let file = File::open(folder.path().join("1970-01-01.parquet")).unwrap();
        let rows: Vec<String> = SerializedFileReader::new(file)
            .unwrap()
            .get_row_iter(None)
            .unwrap()
            .map(|row| row.unwrap().to_string())
            .collect();
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert!(rows[0].contains("raw: 3") && rows[0].contains("device: \"/dev/sda\""), "{rows:?}");
        assert_eq!(folder.path().read_dir().unwrap().count(), 1);
    }
}
