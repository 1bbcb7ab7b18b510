//! Tables as Parquet files, written and read as a whole.
//!
//! A table has named columns of three types: text, counts (unsigned 64 bits) and real numbers; any cell may
//! be null. A file holds one row group per run; the merged file is made by concatenating the groups of its
//! runs byte by byte ([`concatenate`]). At most one run's rows are in memory.
//!
//! The library panics on some files with damaged footers, so files must have passed their digest check.
//!
//! Source: Apache Parquet format, through the `parquet` crate's column writers and readers.

use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, LogicalType, Type as PhysicalType, ZstdLevel};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::column::writer::{ColumnCloseResult, ColumnWriter};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::TypePtr;

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// UTF-8.
    Text,
    /// Unsigned, 64 bits.
    Count,
    /// A double.
    Real,
}

/// Names and types of columns, in order.
pub type Columns = &'static [(&'static str, Of)];

/// A value for a table.
#[derive(Debug, Clone, Copy)]
pub enum Cell<'a> {
    /// Unknown value.
    Null,
    /// Value of a text column.
    Text(&'a str),
    /// Value of a count column.
    Count(u64),
    /// Value of a real column.
    Real(f64),
}

#[derive(Debug)]
enum Values {
    Text(Vec<Option<ByteArray>>),
    Count(Vec<Option<u64>>),
    Real(Vec<Option<f64>>),
}

/// Rows, stored as columns.
#[derive(Debug)]
pub struct Table {
    columns: Columns,
    values: Vec<Values>,
}

impl Table {
    /// An empty table.
    pub fn new(columns: Columns) -> Table {
        let empty = |&(_, of): &(&str, Of)| match of {
            Of::Text => Values::Text(Vec::new()),
            Of::Count => Values::Count(Vec::new()),
            Of::Real => Values::Real(Vec::new()),
        };
        Table { columns, values: columns.iter().map(empty).collect() }
    }

    /// Adds a row, with a cell of the right type for each column.
    pub fn push(&mut self, row: &[Cell<'_>]) {
        assert_eq!(row.len(), self.values.len(), "a row has a cell for each column");
        for (column, cell) in self.values.iter_mut().zip(row) {
            match (column, *cell) {
                (Values::Text(texts), Cell::Text(text)) => {
                    // Neighbouring rows are mostly alike, and share the bytes.
                    let same = texts.last().and_then(Option::as_ref).filter(|t| t.data() == text.as_bytes());
                    let text = same.cloned().unwrap_or_else(|| ByteArray::from(text));
                    texts.push(Some(text));
                }
                (Values::Count(counts), Cell::Count(count)) => counts.push(Some(count)),
                (Values::Real(reals), Cell::Real(real)) => reals.push(Some(real)),
                (Values::Text(texts), Cell::Null) => texts.push(None),
                (Values::Count(counts), Cell::Null) => counts.push(None),
                (Values::Real(reals), Cell::Null) => reals.push(None),
                (column, cell) => unreachable!("{cell:?} in {column:?}"),
            }
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        match self.values.first() {
            Some(Values::Text(v)) => v.len(),
            Some(Values::Count(v)) => v.len(),
            Some(Values::Real(v)) => v.len(),
            None => 0,
        }
    }

    /// A column of text.
    pub fn texts(&self, name: &str) -> Vec<Option<&str>> {
        match self.column(name) {
            Values::Text(texts) => {
                texts.iter().map(|t| t.as_ref().and_then(|t| std::str::from_utf8(t.data()).ok())).collect()
            }
            other => unreachable!("{name} is {other:?}"),
        }
    }

    /// A column of counts.
    pub fn counts(&self, name: &str) -> &[Option<u64>] {
        match self.column(name) {
            Values::Count(counts) => counts,
            other => unreachable!("{name} is {other:?}"),
        }
    }

    /// A column of real numbers.
    pub fn reals(&self, name: &str) -> &[Option<f64>] {
        match self.column(name) {
            Values::Real(reals) => reals,
            other => unreachable!("{name} is {other:?}"),
        }
    }

    fn column(&self, name: &str) -> &Values {
        let at = self.columns.iter().position(|column| column.0 == name);
        &self.values[at.unwrap_or_else(|| unreachable!("no column {name}"))]
    }

    /// Writes the table to a file.
    pub fn write(&self, out: impl Write + Send) -> Result<()> {
        let mut writer = SerializedFileWriter::new(out, schema(self.columns)?, properties())?;
        let mut group = writer.next_row_group()?;
        for values in &self.values {
            let Some(mut column) = group.next_column()? else { break };
            write_column(column.untyped(), values)?;
            column.close()?;
        }
        group.close()?;
        writer.close()?;
        Ok(())
    }

    /// Reads the table with these columns from a file.
    ///
    /// # Errors
    /// Not a Parquet file, other columns, or damage.
    pub fn read(file: Bytes, columns: Columns) -> Result<Table> {
        let reader = SerializedFileReader::new(file)?;
        check_schema(&reader, columns)?;
        let mut table = Table::new(columns);
        for index in 0..reader.num_row_groups() {
            let group = reader.get_row_group(index)?;
            let rows = usize::try_from(group.metadata().num_rows()).map_err(|_| damaged("rows"))?;
            for (at, values) in table.values.iter_mut().enumerate() {
                read_column(group.as_ref(), at, rows, values)?;
            }
        }
        Ok(table)
    }
}

/// Merges the rows of files with equal columns into one file.
pub fn concatenate(
    files: impl Iterator<Item = Result<Bytes>>,
    columns: Columns,
    out: impl Write + Send,
) -> Result<()> {
    let mut writer = SerializedFileWriter::new(out, schema(columns)?, properties())?;
    for file in files {
        let file = file?;
        let reader = SerializedFileReader::new(file.clone())?;
        check_schema(&reader, columns)?;
        for group in reader.metadata().row_groups() {
            let mut copy = writer.next_row_group()?;
            for column in group.columns() {
                let unsigned = |n: i64| u64::try_from(n).map_err(|_| damaged("sizes"));
                copy.append_column(
                    &file,
                    ColumnCloseResult {
                        bytes_written: unsigned(column.compressed_size())?,
                        rows_written: unsigned(group.num_rows())?,
                        metadata: column.clone(),
                        bloom_filter: None,
                        column_index: None,
                        offset_index: None,
                    },
                )?;
            }
            copy.close()?;
        }
    }
    writer.close()?;
    Ok(())
}

fn schema(columns: Columns) -> Result<TypePtr> {
    let field = |&(name, of): &(&str, Of)| match of {
        Of::Text => format!("optional binary {name} (STRING); "),
        Of::Count => format!("optional int64 {name} (INTEGER(64,false)); "),
        Of::Real => format!("optional double {name}; "),
    };
    let fields: String = columns.iter().map(field).collect();
    Ok(Arc::new(parse_message_type(&format!("message table {{ {fields} }}"))?))
}

fn properties() -> WriterPropertiesPtr {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_created_by(concat!("cenote ", env!("CARGO_PKG_VERSION")).into())
        .build();
    Arc::new(properties)
}

fn check_schema(reader: &SerializedFileReader<Bytes>, columns: Columns) -> Result<()> {
    let found = reader.metadata().file_metadata().schema_descr();
    let fits = |(at, &(name, of)): (usize, &(&str, Of))| {
        let column = found.column(at);
        let is_of = match column.physical_type() {
            PhysicalType::BYTE_ARRAY => {
                of == Of::Text && column.logical_type_ref() == Some(&LogicalType::String)
            }
            PhysicalType::INT64 => of == Of::Count,
            PhysicalType::DOUBLE => of == Of::Real,
            _ => false,
        };
        is_of && column.name() == name && column.max_def_level() == 1 && column.max_rep_level() == 0
    };
    if found.num_columns() == columns.len() && columns.iter().enumerate().all(fits) {
        Ok(())
    } else {
        Err(ParquetError::General("unexpected columns".into()))
    }
}

fn damaged(what: &str) -> ParquetError {
    ParquetError::General(format!("damaged: inconsistent {what}"))
}

fn write_column(column: &mut ColumnWriter<'_>, values: &Values) -> Result<()> {
    fn split<T: Clone>(values: &[Option<T>]) -> (Vec<i16>, Vec<T>) {
        (values.iter().map(|v| i16::from(v.is_some())).collect(), values.iter().flatten().cloned().collect())
    }
    match (column, values) {
        (ColumnWriter::ByteArrayColumnWriter(out), Values::Text(texts)) => {
            let (levels, texts) = split(texts);
            out.write_batch(&texts, Some(&levels), None)
        }
        (ColumnWriter::Int64ColumnWriter(out), Values::Count(counts)) => {
            let (levels, counts) = split(counts);
            let counts: Vec<i64> = counts.into_iter().map(u64::cast_signed).collect();
            out.write_batch(&counts, Some(&levels), None)
        }
        (ColumnWriter::DoubleColumnWriter(out), Values::Real(reals)) => {
            let (levels, reals) = split(reals);
            out.write_batch(&reals, Some(&levels), None)
        }
        _ => Err(damaged("types")),
    }?;
    Ok(())
}

fn read_column(group: &dyn RowGroupReader, at: usize, rows: usize, values: &mut Values) -> Result<()> {
    match (group.get_column_reader(at)?, values) {
        (ColumnReader::ByteArrayColumnReader(reader), Values::Text(texts)) => {
            for text in cells(reader, rows)? {
                if let Some(text) = &text
                    && std::str::from_utf8(text.data()).is_err()
                {
                    return Err(damaged("texts"));
                }
                texts.push(text);
            }
        }
        (ColumnReader::Int64ColumnReader(reader), Values::Count(counts)) => {
            counts.extend(cells(reader, rows)?.into_iter().map(|count| count.map(i64::cast_unsigned)));
        }
        (ColumnReader::DoubleColumnReader(reader), Values::Real(reals)) => reals.extend(cells(reader, rows)?),
        _ => return Err(damaged("types")),
    }
    Ok(())
}

fn cells<T: DataType>(mut reader: ColumnReaderImpl<T>, rows: usize) -> Result<Vec<Option<T::T>>> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    while levels.len() < rows {
        let (read, ..) = reader.read_records(rows - levels.len(), Some(&mut levels), None, &mut values)?;
        if read == 0 {
            return Err(damaged("rows"));
        }
    }
    let mut values = values.into_iter();
    levels
        .iter()
        .map(
            |&level| {
                if level == 0 { Ok(None) } else { values.next().map(Some).ok_or_else(|| damaged("levels")) }
            },
        )
        .collect()
}
