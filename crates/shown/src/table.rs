//! Columns as `zfs list` prints them: as wide as the longest cell, separated by two spaces; for scripts
//! (`-H`) separated by a tab, without a header.

/// How the cells of a column are aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Names and words.
    Left,
    /// Numbers.
    Right,
}

/// Rows to be printed under a header.
#[derive(Debug, Clone)]
pub struct Table {
    header: Vec<(String, Align)>,
    least_widths: Vec<usize>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new<S: Into<String>>(header: impl IntoIterator<Item = (S, Align)>) -> Self {
        let header: Vec<(String, Align)> =
            header.into_iter().map(|(name, align)| (name.into(), align)).collect();
        Table { least_widths: vec![0; header.len()], header, rows: Vec::new() }
    }

    /// Sets a column's minimum width.
    pub fn widen(&mut self, column: usize, chars: usize) {
        if let Some(width) = self.least_widths.get_mut(column) {
            *width = chars;
        }
    }

    /// Adds a row; missing cells are empty.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Whether there are no rows yet.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as text, for scripts (`-H`) or for people.
    pub fn text(&self, script: bool) -> String {
        if script { self.tabbed() } else { self.aligned() }
    }

    /// Aligned rows without the header, which was printed before.
    pub fn aligned_rows(&self) -> String {
        let text = self.aligned();
        text.split_once('\n').map(|(_, rows)| rows.to_owned()).unwrap_or_default()
    }

    /// For people: a header and aligned columns, without trailing spaces.
    pub fn aligned(&self) -> String {
        let names: Vec<String> = self.header.iter().map(|(name, _)| name.clone()).collect();
        let mut widths: Vec<usize> =
            names.iter().zip(&self.least_widths).map(|(n, &least)| n.chars().count().max(least)).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut out = String::new();
        for row in std::iter::once(&names).chain(&self.rows) {
            let mut line = String::new();
            for (i, ((_, align), &width)) in self.header.iter().zip(&widths).enumerate() {
                let cell = row.get(i).map_or("", String::as_str);
                let gap = " ".repeat(width - cell.chars().count());
                line.push_str(if i == 0 { "" } else { "  " });
                match align {
                    Align::Left => line.extend([cell, &gap]),
                    Align::Right => line.extend([&*gap, cell]),
                }
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }

    /// For scripts: tabs between cells, no header.
    fn tabbed(&self) -> String {
        self.rows.iter().map(|row| row.join("\t") + "\n").collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_scripts_get_tabs() {
        let mut table = Table::new([("NAME", Align::Left), ("USED", Align::Right)]);
        table.row(["tank", "1.50K"]);
        table.row(["tank/home", "0B"]);
        assert_eq!(table.aligned(), "NAME        USED\ntank       1.50K\ntank/home     0B\n");
        assert_eq!(table.tabbed(), "tank\t1.50K\ntank/home\t0B\n");
    }
}
