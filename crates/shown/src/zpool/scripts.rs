//! Columns that scripts add to devices: `zpool status -c`, `zpool iostat -v -c`.
//!
//! ```text
//!   lines of a script   name=value: a cell of the column `name`; the first one with that name counts
//!                       value: printed after the columns; the script's later lines do not count
//! ```
//!
//! Source: OpenZFS `zpool_iter.c` (`vdev_process_cmd_output`, `process_unique_cmd_columns`), `zpool_main.c`
//! (`zpool_print_cmd`, `zpool_nvlist_cmd`, `print_cmd_columns`).

mod chosen;

use std::collections::BTreeMap;

use cenote_format::units::Guid;
use serde_json::{Map, Value, json};

pub use chosen::{Chosen, list};

const GAP: &str = "  ";

/// The output of all scripts for one device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    cells: Vec<(String, String)>,
    rest: Vec<String>,
}

impl Output {
    /// Adds the lines of a script.
    pub fn add(&mut self, lines: &str) {
        for line in lines.lines() {
            let Some((column, value)) = line.split_once('=') else {
                self.rest.push(line.into());
                return;
            };
            if self.cell(column).is_none() {
                self.cells.push((column.into(), value.into()));
            }
        }
    }

    fn cell(&self, column: &str) -> Option<&str> {
        self.cells.iter().find(|(name, _)| name == column).map(|(_, value)| value.as_str())
    }

    /// A column's value; a dash if blank.
    fn shown(&self, column: &str) -> &str {
        self.cell(column).filter(|value| !value.trim().is_empty()).unwrap_or("-")
    }
}

/// The output of scripts for all devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scripts {
    outputs: BTreeMap<Guid, Output>,
    /// Names and widths.
    columns: Vec<(String, usize)>,
}

impl Scripts {
    /// The outputs of devices, in the order that decides the columns' order.
    pub fn new(outputs: Vec<(Guid, Output)>) -> Scripts {
        let mut columns: Vec<(String, usize)> = Vec::new();
        for (name, value) in outputs.iter().flat_map(|(_, output)| &output.cells) {
            let chars = value.chars().count().max(name.chars().count());
            match columns.iter_mut().find(|(known, _)| known == name) {
                Some((_, width)) => *width = chars.max(*width),
                None => columns.push((name.clone(), chars)),
            }
        }
        Scripts { outputs: outputs.into_iter().collect(), columns }
    }

    /// The columns' names, for the end of a line.
    pub fn heading(&self) -> String {
        self.columns.iter().map(|(name, width)| format!("{GAP}{name:>width$}")).collect()
    }

    /// Dashes below them.
    pub fn dashes(&self) -> String {
        self.columns.iter().map(|(_, width)| format!("{GAP}{}", "-".repeat(*width))).collect()
    }

    /// A device's cells, for the end of its line.
    pub fn cells(&self, device: Guid) -> String {
        let Some(output) = self.outputs.get(&device) else { return String::new() };
        let cell = |(name, width): &(String, usize)| format!("{:>width$}", output.shown(name));
        let all: Vec<String> = self.columns.iter().map(cell).chain(output.rest.iter().cloned()).collect();
        format!("{GAP}{}", all.join(GAP))
    }

    /// Adds a device's cells to its JSON.
    pub fn add_to(&self, entry: &mut Map<String, Value>, device: Guid) {
        let Some(output) = self.outputs.get(&device) else { return };
        for (name, _) in &self.columns {
            entry.insert(name.clone(), json!(output.shown(name)));
        }
        for (number, value) in (1..).zip(&output.rest) {
            entry.insert(format!("extra_{number}"), json!(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(lines: &[&str]) -> Output {
        let mut output = Output::default();
        lines.iter().for_each(|lines| output.add(lines));
        output
    }

    #[test]
    fn cells_stand_below_their_columns_and_other_words_behind() {
        let scripts = Scripts::new(vec![
            (Guid(1), output(&["temp=31\nmodel=long name\ntemp=99\n", "plain\nlost=1"])),
            (Guid(2), output(&["model=\nsize=2"])),
            (Guid(3), output(&[])),
        ]);
        assert_eq!(scripts.heading(), "  temp      model  size");
        assert_eq!(scripts.dashes(), "  ----  ---------  ----");
        assert_eq!(scripts.cells(Guid(1)), "    31  long name     -  plain");
        assert_eq!(scripts.cells(Guid(2)), "     -          -     2");
        assert_eq!(scripts.cells(Guid(3)), "     -          -     -");
        assert_eq!(scripts.cells(Guid(4)), "", "no script ran for it");
        let mut entry = Map::new();
        scripts.add_to(&mut entry, Guid(1));
        assert_eq!(
            Value::from(entry),
            json!({"temp": "31", "model": "long name", "size": "-", "extra_1": "plain"})
        );
    }

    #[test]
    fn without_columns_only_words_are_left() {
        let scripts = Scripts::new(vec![(Guid(1), output(&["a b"]))]);
        assert_eq!((scripts.heading(), scripts.cells(Guid(1))), (String::new(), "  a b".into()));
    }
}
