//! The daily record of what disks count: a Parquet file a day, a row for each attribute.
//!
//! ```text
//!   FOLDER/2026-11-25.parquet: unix_s, device, model, serial, passed, id, name, normalized, raw
//! ```
//!
//! A file that was begun again on the same day replaces the one before.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as PhysicalType, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use crate::smart::{Attribute, Disk};

/// The values of a column. A number that a disk does not say is -1.
enum Values {
    Numbers(Vec<i64>),
    Texts(Vec<ByteArray>),
}

/// Writes the file of a day.
///
/// # Errors
/// The folder can't be made, or the file not written.
pub fn write(folder: &Path, now_s: u64, disks: &[Disk]) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let path = folder.join(format!("{}.parquet", date(now_s)));
    let beside = path.with_extension("new");
    write_file(&beside, now_s, disks)?;
    Ok(std::fs::rename(&beside, &path)?)
}

fn write_file(path: &Path, now_s: u64, disks: &[Disk]) -> Result<()> {
    let rows: Vec<(&Disk, &Attribute)> = disks
        .iter()
        .flat_map(|disk| disk.attributes.iter().map(move |attribute| (disk, attribute)))
        .collect();
    let numbers = |number: &dyn Fn(&Disk, &Attribute) -> i64| {
        Values::Numbers(rows.iter().map(|(disk, attribute)| number(disk, attribute)).collect())
    };
    let texts = |text: &dyn Fn(&Disk, &Attribute) -> String| {
        Values::Texts(rows.iter().map(|(disk, attribute)| text(disk, attribute).as_bytes().into()).collect())
    };
    let known = |number: Option<u64>| number.map_or(-1, |number| number.cast_signed());
    let columns = [
        ("unix_s", numbers(&|_, _| now_s.cast_signed())),
        ("device", texts(&|disk, _| disk.device.clone())),
        ("model", texts(&|disk, _| disk.smart.model.clone())),
        ("serial", texts(&|disk, _| disk.smart.serial.clone())),
        ("passed", numbers(&|disk, _| known(disk.smart.passed.map(u64::from)))),
        ("id", numbers(&|_, attribute| known(attribute.id))),
        ("name", texts(&|_, attribute| attribute.name.clone())),
        ("normalized", numbers(&|_, attribute| known(attribute.normalized))),
        ("raw", numbers(&|_, attribute| attribute.raw.cast_signed())),
    ];
    let fields = columns.iter().map(|(name, values)| field(name, values)).collect::<Result<_>>()?;
    let schema = Type::group_type_builder("smart").with_fields(fields).build()?;
    let level = ZstdLevel::try_new(3)?;
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(level)).build();
    let mut writer = SerializedFileWriter::new(File::create(path)?, Arc::new(schema), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for (_, values) in &columns {
        let Some(mut column) = group.next_column()? else {
            return Err(ParquetError::General("a column is missing".into()));
        };
        match (column.untyped(), values) {
            (ColumnWriter::Int64ColumnWriter(writer), Values::Numbers(values)) => {
                writer.write_batch(values, None, None)?;
            }
            (ColumnWriter::ByteArrayColumnWriter(writer), Values::Texts(values)) => {
                writer.write_batch(values, None, None)?;
            }
            _ => return Err(ParquetError::General("a column of another type".into())),
        }
        column.close()?;
    }
    group.close()?;
    writer.close()?;
    Ok(())
}

fn field(name: &str, values: &Values) -> Result<Arc<Type>> {
    let builder = match values {
        Values::Numbers(_) => Type::primitive_type_builder(name, PhysicalType::INT64),
        Values::Texts(_) => {
            let text = Type::primitive_type_builder(name, PhysicalType::BYTE_ARRAY);
            text.with_logical_type(Some(LogicalType::String))
        }
    };
    Ok(Arc::new(builder.with_repetition(Repetition::REQUIRED).build()?))
}

/// `2026-11-25`, in UTC.
fn date(unix_s: u64) -> String {
    // Days since 1 March 2000, in periods of 400 years: a leap day is then the last of its year.
    let days = (unix_s / 86_400).cast_signed() - 11_017;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (year, day) = (2000 + 400 * era + year, day - (153 * month + 2) / 5 + 1);
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use super::*;

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
            assert_eq!(date(unix_s), wanted);
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
