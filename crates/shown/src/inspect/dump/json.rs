//! A dump for programs: one JSON object. Records become objects, lists and tables arrays of objects; sizes,
//! times (seconds since 1970) and numbers become numbers, bit masks `"0x..."`, bytes hex digits, a block
//! pointer an object.

use std::io::{self, Write};

use cenote_control::text::hex;
use cenote_format::unseen::visible_json;
use cenote_inspect::dump::{Sink, Value, pointer};
use serde_json::{Map, Value as Tree};

enum Frame {
    Record,
    List,
    Table(Vec<&'static str>),
}

/// Writes a dump as JSON, in one pass.
pub struct Json<W: Write> {
    out: W,
    frames: Vec<Frame>,
    /// Whether an element precedes on this level.
    comma: bool,
    failed: Option<io::Error>,
}

impl<W: Write> Json<W> {
    /// A dump to `out`.
    pub fn new(out: W) -> Self {
        let mut json = Json { out, frames: vec![Frame::Record], comma: false, failed: None };
        json.write("{");
        json
    }

    /// Writes the last brace, and returns the writer.
    ///
    /// # Errors
    /// The writer has failed.
    pub fn finish(mut self) -> io::Result<W> {
        self.write("}\n");
        match self.failed {
            Some(error) => Err(error),
            None => Ok(self.out),
        }
    }

    fn write(&mut self, text: &str) {
        if self.failed.is_none() {
            self.failed = self.out.write_all(text.as_bytes()).err();
        }
    }

    /// Writes a comma if one is needed and, in a record, the name.
    fn begin(&mut self, name: &str) {
        if std::mem::replace(&mut self.comma, true) {
            self.write(",");
        }
        if matches!(self.frames.last(), Some(Frame::Record) | None) {
            let name = visible_json(Tree::from(name).to_string());
            self.write(&format!("{name}:"));
        }
    }

    fn push(&mut self, name: &str, bracket: &str, frame: Frame) {
        self.begin(name);
        self.write(bracket);
        self.frames.push(frame);
        self.comma = false;
    }
}

impl<W: Write> Sink for Json<W> {
    fn open(&mut self, name: &str) {
        self.push(name, "{", Frame::Record);
    }

    fn list(&mut self, name: &str) {
        self.push(name, "[", Frame::List);
    }

    fn table(&mut self, name: &str, columns: &[&'static str]) {
        self.push(name, "[", Frame::Table(columns.to_vec()));
    }

    fn row(&mut self, cells: Vec<Value>) {
        let Some(Frame::Table(columns)) = self.frames.last() else { return };
        let row: Map<_, _> =
            columns.iter().map(|c| c.replace(' ', "_")).zip(cells.into_iter().map(tree)).collect();
        self.begin("");
        self.write(&visible_json(Tree::Object(row).to_string()));
    }

    fn field(&mut self, name: &str, value: Value) {
        // A list holds only records: a single field in it (an error between records) becomes a record.
        let in_list = !matches!(self.frames.last(), Some(Frame::Record) | None);
        if in_list {
            self.open("");
        }
        self.begin(name);
        self.write(&visible_json(tree(value).to_string()));
        if in_list {
            self.close();
        }
    }

    fn close(&mut self) {
        let bracket = match self.frames.pop() {
            Some(Frame::List | Frame::Table(_)) => "]",
            _ => "}",
        };
        self.write(bracket);
        self.comma = true;
    }

    fn is_closed(&self) -> bool {
        self.failed.is_some()
    }
}

fn tree(value: Value) -> Tree {
    match value {
        Value::None => Tree::Null,
        Value::Flag(flag) => flag.into(),
        Value::Number(number) | Value::Size(number) => number.into(),
        Value::Signed(number) | Value::Time(number) => number.into(),
        Value::Hex(number) => format!("{number:#x}").into(),
        Value::Text(text) => text.into(),
        Value::Raw(bytes) => hex(&bytes).into(),
        Value::Numbers(numbers) => numbers.into(),
        Value::Pointer(bp) => {
            let mut parts = Parts(Map::new());
            pointer::fields(&mut parts, &bp);
            Tree::Object(parts.0)
        }
    }
}

/// Collects the fields of a flat record.
struct Parts(Map<String, Tree>);

impl Sink for Parts {
    fn field(&mut self, name: &str, value: Value) {
        self.0.insert(name.into(), tree(value));
    }
    fn open(&mut self, _: &str) {}
    fn list(&mut self, _: &str) {}
    fn table(&mut self, _: &str, _: &[&'static str]) {}
    fn row(&mut self, _: Vec<Value>) {}
    fn close(&mut self) {}
    fn is_closed(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_out_is_json() {
        let mut sink = Json::new(Vec::new());
        sink.field("a\"b", 1u64.into());
        sink.list("l");
        sink.open("title");
        sink.field("x", Value::Hex(16));
        sink.close();
        sink.field("error", "between".into());
        sink.close();
        sink.table("t", &["n", "ref count"]);
        sink.row(vec![1u64.into(), Value::None]);
        sink.close();
        let text = String::from_utf8(sink.finish().unwrap()).unwrap();
        let tree: Tree = serde_json::from_str(&text).unwrap();
        assert_eq!(
            tree,
            serde_json::json!({
                "a\"b": 1,
                "l": [{"x": "0x10"}, {"error": "between"}],
                "t": [{"n": 1, "ref_count": null}]
            })
        );
    }
}
