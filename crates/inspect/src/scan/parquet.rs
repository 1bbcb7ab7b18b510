//! Rows as an Apache Parquet file.
//!
//! Names are strings with the escapes of the TSV output (`\xNN`), since file names need not be UTF-8. Times
//! are UTC timestamps in nanoseconds, null outside the years 1677 to 2262. Workers collect rows into typed
//! columns, which are written in row groups of about [`GROUP_ROWS`]; memory is one such group.
//!
//! Source: Apache Parquet format, through the `parquet` crate's column writers.

use std::io::Write;
use std::sync::Arc;

use cenote_fs::{FileKind, Timestamp};
use parquet::basic::{Compression, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::columns::{Column, Columns};
use super::row::RowBatch;
use super::text::Tsv;
use crate::{InspectError, Result};

/// Rows per row group.
pub const GROUP_ROWS: usize = 256 * 1024;

/// The values of one column, without nulls.
#[derive(Debug)]
enum Values {
    Number(Vec<i64>),
    Text(Vec<ByteArray>),
}

/// One column of some rows.
#[derive(Debug)]
struct Part {
    /// 1 for each row with a value, 0 for null.
    present: Vec<i16>,
    values: Values,
}

/// Rows converted to columns by a worker.
#[derive(Debug)]
pub struct Parts {
    rows: usize,
    parts: Vec<Part>,
}

/// Converts a batch to columns.
pub fn render(batch: &RowBatch, columns: &Columns) -> Parts {
    let parts = columns.0.iter().map(|&column| part(batch, column)).collect();
    Parts { rows: batch.rows.len(), parts }
}

fn is_number(column: Column) -> bool {
    use Column::*;
    matches!(column, Uid | Gid | Size | Allocated | Nlink | Flags | Projid | Ino | BirthTxg | CreatedTxg)
}

fn is_time(column: Column) -> bool {
    matches!(column, Column::Atime | Column::Mtime | Column::Ctime | Column::Btime)
}

fn part(batch: &RowBatch, column: Column) -> Part {
    let mut present = Vec::with_capacity(batch.rows.len());
    let mut push = |is: bool| present.push(i16::from(is));
    let values = if is_number(column) || is_time(column) {
        let mut numbers = Vec::with_capacity(batch.rows.len());
        for row in &batch.rows {
            let attr = &row.attr;
            let number = match column {
                Column::Uid => Some(i64::from(attr.owner().0)),
                Column::Gid => Some(i64::from(attr.owner().1)),
                Column::Size => Some(attr.size.cast_signed()),
                Column::Allocated => Some(attr.allocated_bytes().cast_signed()),
                Column::Nlink => Some(attr.links.cast_signed()),
                Column::Flags => Some(i64::from(attr.linux_flags())),
                Column::Projid => Some(attr.project.cast_signed()),
                Column::Ino => Some(row.object.0.cast_signed()),
                Column::BirthTxg => Some(row.birth_txg.0.cast_signed()),
                Column::CreatedTxg => Some(attr.generation.cast_signed()),
                Column::Atime => nanoseconds(attr.atime),
                Column::Mtime => nanoseconds(attr.mtime),
                Column::Ctime => nanoseconds(attr.ctime),
                Column::Btime => nanoseconds(attr.crtime),
                _ => None,
            };
            push(number.is_some());
            numbers.extend(number);
        }
        Values::Number(numbers)
    } else {
        // The text of a column equals a TSV with only this column.
        let tsv = Tsv::new(Columns(vec![column]), b'\n').render(batch);
        let mut texts = Vec::with_capacity(batch.rows.len());
        for (row, line) in batch.rows.iter().zip(tsv.split(|&b| b == b'\n')) {
            let is_device = matches!(row.attr.kind(), FileKind::BlockDevice | FileKind::CharDevice);
            let is_null = line == b"-" && column != Column::Path && !(column == Column::Rdev && is_device);
            push(!is_null);
            texts.extend((!is_null).then(|| ByteArray::from(line.to_vec())));
        }
        Values::Text(texts)
    };
    Part { present, values }
}

fn nanoseconds(time: Timestamp) -> Option<i64> {
    time.seconds.checked_mul(1_000_000_000)?.checked_add(time.nanoseconds.into())
}

/// Writes columns to a Parquet file.
pub struct ParquetSink<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    waiting: Vec<Parts>,
    waiting_rows: usize,
}

impl<W: Write + Send> ParquetSink<W> {
    /// Starts a file with these columns.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn new(out: W, columns: &Columns) -> Result<ParquetSink<W>> {
        let fields: String = columns.0.iter().map(|&column| field(column)).collect();
        let schema = parse_message_type(&format!("message file {{ {fields} }}")).map_err(failed)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_created_by(concat!("cenote ", env!("CARGO_PKG_VERSION")).into())
            .build();
        let writer =
            SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties)).map_err(failed)?;
        Ok(ParquetSink { writer, waiting: Vec::new(), waiting_rows: 0 })
    }

    /// Adds rows.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn add(&mut self, parts: Parts) -> Result<()> {
        self.waiting_rows += parts.rows;
        self.waiting.push(parts);
        if self.waiting_rows >= GROUP_ROWS { self.write_txg() } else { Ok(()) }
    }

    fn write_txg(&mut self) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        if std::mem::take(&mut self.waiting_rows) == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group().map_err(failed)?;
        let mut index = 0;
        while let Some(mut column) = group.next_column().map_err(failed)? {
            for parts in &waiting {
                let Some(part) = parts.parts.get(index) else { continue };
                let levels = Some(&part.present[..]);
                match (column.untyped(), &part.values) {
                    (ColumnWriter::Int64ColumnWriter(out), Values::Number(values)) => {
                        out.write_batch(values, levels, None)
                    }
                    (ColumnWriter::ByteArrayColumnWriter(out), Values::Text(values)) => {
                        out.write_batch(values, levels, None)
                    }
                    _ => Err(ParquetError::General("a column changed its type".into())),
                }
                .map_err(failed)?;
            }
            column.close().map_err(failed)?;
            index += 1;
        }
        group.close().map_err(failed)?;
        Ok(())
    }

    /// Ends the file.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn finish(mut self) -> Result<()> {
        self.write_txg()?;
        self.writer.close().map_err(failed)?;
        Ok(())
    }
}

fn field(column: Column) -> String {
    let name = column.name();
    match column {
        column if is_time(column) => format!("optional int64 {name} (TIMESTAMP(NANOS,true)); "),
        column if is_number(column) => format!("optional int64 {name}; "),
        _ => format!("optional binary {name} (STRING); "),
    }
}

fn failed(error: ParquetError) -> InspectError {
    InspectError::io("parquet file")(std::io::Error::other(error))
}
