//! A dump for people: names and values in two columns, nested structures indented, tables aligned.
//!
//! Fields are buffered until something else follows, so that their values line up; rows are buffered until
//! there are enough to choose column widths. Memory is bounded for a dump of any length.

use std::io::{self, Write};

use cenote_control::text::{escape_terminal, hex, iso_utc, nice_bytes};
use cenote_inspect::dump::{Sink, Value, pointer};

use crate::table::{Align, Table};

/// How many rows are laid out together.
const PAGE_ROWS: usize = 2000;
/// Opaque data up to this size is shown on one line; longer data as a hex dump.
const INLINE_BYTES: usize = 32;
/// Bytes per line of a hex dump.
const LINE_BYTES: usize = 16;

struct Page {
    columns: Vec<&'static str>,
    aligns: Option<Vec<Align>>,
    rows: Vec<Vec<Value>>,
    has_header: bool,
}

/// Writes a dump as text.
pub struct Text<W: Write> {
    out: W,
    depth: usize,
    fields: Vec<(String, Value)>,
    page: Option<Page>,
    failed: Option<io::Error>,
}

impl<W: Write> Text<W> {
    /// A dump to `out`.
    pub fn new(out: W) -> Self {
        Text { out, depth: 0, fields: Vec::new(), page: None, failed: None }
    }

    /// Writes the rest, and returns the writer.
    ///
    /// # Errors
    /// The writer has failed.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush_fields();
        match self.failed {
            Some(error) => Err(error),
            None => Ok(self.out),
        }
    }

    fn line(&mut self, text: &str) {
        if self.failed.is_none() {
            let indent = 2 * self.depth;
            self.failed = writeln!(self.out, "{:indent$}{}", "", text).err();
        }
    }

    fn flush_fields(&mut self) {
        let fields = std::mem::take(&mut self.fields);
        let width = fields.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        for (name, value) in fields {
            match &value {
                Value::Raw(bytes) if bytes.len() > INLINE_BYTES => {
                    self.line(&format!("{name}  {} bytes", bytes.len()));
                    hex_dump(bytes).for_each(|line| self.line(&format!("  {line}")));
                }
                value => self.line(format!("{name:width$}  {}", cell(value)).trim_end()),
            }
        }
    }

    fn flush_page(&mut self) {
        let Some(page) = &mut self.page else { return };
        let rows = std::mem::take(&mut page.rows);
        let aligns = page.aligns.get_or_insert_with(|| aligns(&page.columns, &rows)).clone();
        let mut table = Table::new(page.columns.iter().map(|c| c.to_uppercase()).zip(aligns));
        for row in &rows {
            table.row(row.iter().map(cell));
        }
        let text = table.aligned();
        let skip = usize::from(std::mem::replace(&mut page.has_header, true));
        text.lines().skip(skip).for_each(|line| self.line(line));
    }
}

impl<W: Write> Sink for Text<W> {
    fn open(&mut self, name: &str) {
        self.flush_fields();
        self.line(&escape_terminal(name.as_bytes()));
        self.depth += 1;
    }

    fn list(&mut self, name: &str) {
        self.flush_fields();
        self.line(&format!("{}:", name.replace('_', " ")));
        self.depth += 1;
    }

    fn table(&mut self, name: &str, columns: &[&'static str]) {
        self.flush_fields();
        self.line(&format!("{}:", name.replace('_', " ")));
        self.depth += 1;
        let columns = columns.to_vec();
        self.page = Some(Page { columns, aligns: None, rows: Vec::new(), has_header: false });
    }

    fn row(&mut self, cells: Vec<Value>) {
        if let Some(page) = &mut self.page {
            page.rows.push(cells);
            if page.rows.len() >= PAGE_ROWS {
                self.flush_page();
            }
        }
    }

    fn field(&mut self, name: &str, value: Value) {
        self.fields.push((escape_terminal(name.as_bytes()), value));
    }

    fn close(&mut self) {
        self.flush_fields();
        self.flush_page();
        self.page = None;
        self.depth = self.depth.saturating_sub(1);
    }

    fn is_closed(&self) -> bool {
        self.failed.is_some()
    }
}

/// Columns of numbers are right-aligned.
fn aligns(columns: &[&str], rows: &[Vec<Value>]) -> Vec<Align> {
    let is_number = |value: Option<&Value>| match value {
        Some(Value::Text(text)) => text.ends_with('%'),
        Some(value) => matches!(
            value,
            Value::None | Value::Number(_) | Value::Signed(_) | Value::Size(_) | Value::Hex(_)
        ),
        None => true,
    };
    let align = |i| match rows.iter().all(|row| is_number(row.get(i))) {
        true => Align::Right,
        false => Align::Left,
    };
    (0..columns.len()).map(align).collect()
}

fn cell(value: &Value) -> String {
    match value {
        Value::None => "-".into(),
        Value::Flag(flag) => if *flag { "yes" } else { "no" }.into(),
        Value::Number(number) => number.to_string(),
        Value::Signed(number) => number.to_string(),
        Value::Hex(number) => format!("{number:#x}"),
        Value::Size(bytes) => nice_bytes(*bytes),
        Value::Time(seconds) => iso_utc(*seconds),
        Value::Text(text) => escape_terminal(text.as_bytes()),
        Value::Raw(bytes) => hex(bytes),
        Value::Numbers(numbers) => numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" "),
        Value::Pointer(bp) => pointer::line(bp),
    }
}

/// `00000010  00 01 ...  |..|`; `*` stands for repetitions of the previous line.
fn hex_dump(bytes: &[u8]) -> impl Iterator<Item = String> + '_ {
    let mut before: Option<&[u8]> = None;
    let mut starred = false;
    bytes.chunks(LINE_BYTES).enumerate().filter_map(move |(i, chunk)| {
        if before == Some(chunk) && (i + 1) * LINE_BYTES < bytes.len() {
            return (!std::mem::replace(&mut starred, true)).then(|| "*".to_string());
        }
        (before, starred) = (Some(chunk), false);
        let digits: Vec<String> = chunk.iter().map(|byte| format!("{byte:02x}")).collect();
        let shown = |byte: &u8| if (b' '..=b'~').contains(byte) { char::from(*byte) } else { '.' };
        let text: String = chunk.iter().map(shown).collect();
        Some(format!("{:08x}  {:47}  |{text}|", i * LINE_BYTES, digits.join(" ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(fill: impl FnOnce(&mut Text<Vec<u8>>)) -> String {
        let mut sink = Text::new(Vec::new());
        fill(&mut sink);
        String::from_utf8(sink.finish().unwrap()).unwrap()
    }

    #[test]
    fn fields_line_up_and_what_is_within_is_indented() {
        let shown = text(|sink| {
            sink.field("a", 1u64.into());
            sink.field("long", true.into());
            sink.open("within");
            sink.field("x", Value::Hex(255));
            sink.close();
            sink.field("end", Value::Size(1536));
        });
        assert_eq!(shown, "a     1\nlong  yes\nwithin\n  x  0xff\nend  1.50K\n");
    }

    #[test]
    fn long_tables_keep_their_header_once() {
        let shown = text(|sink| {
            sink.table("rows", &["n"]);
            (0..PAGE_ROWS as u64 + 2).for_each(|n| sink.row(vec![n.into()]));
            sink.close();
        });
        assert_eq!(shown.lines().count(), 2 + PAGE_ROWS + 2);
        assert_eq!(shown.lines().nth(1), Some("     N"));
    }

    #[test]
    fn repeated_lines_of_a_hex_dump_are_starred() {
        let lines: Vec<_> = hex_dump(&[0; 80]).collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[2].starts_with("00000040"));
    }
}
