//! Pairwise comparisons of targets in both directions, with the verdict of the repeats on each difference.

use super::material::Material;
use super::words;
use crate::analysis::Comparison;
use crate::analysis::report::document::{Column, Document, Table, Text};
use crate::load::measurement::words_of_figure;

pub fn write(material: &Material<'_>, document: &mut Document) {
    let shown: Vec<&Comparison> =
        material.analysis.comparisons.iter().filter(|c| is_shown(material, c)).collect();
    if shown.is_empty() {
        return;
    }
    document.section("Comparisons");
    document.paragraph(
        "Each pair is shown in both directions. The last column says whether the repeats support the \
         difference: chance alone would produce so large a supported difference in fewer than one in twenty \
         such experiments.",
    );
    for pair in pairs(&shown) {
        document.table(table(&pair));
    }
}

fn is_shown(material: &Material<'_>, comparison: &Comparison) -> bool {
    comparison.figure.ends_with(".p99")
        || material.headlines(&comparison.test).contains(&comparison.figure.as_str())
}

/// Comparisons grouped by pair of sides, in order of first appearance.
fn pairs<'a>(all: &[&'a Comparison]) -> Vec<Vec<&'a Comparison>> {
    let mut pairs: Vec<Vec<&Comparison>> = Vec::new();
    for one in all {
        match pairs.iter_mut().find(|pair| pair[0].a == one.a && pair[0].b == one.b) {
            Some(pair) => pair.push(one),
            None => pairs.push(vec![one]),
        }
    }
    pairs
}

fn table(pair: &[&Comparison]) -> Table {
    let Some(first) = pair.first() else { return Table::default() };
    let (a, b) = (&first.a, &first.b);
    let row = |c: &&Comparison| {
        vec![
            Text::new().code(&c.test),
            words::capital(&words_of_figure(&c.figure)).into(),
            c.unit.show(c.a_spread.median).into(),
            c.unit.show(c.b_spread.median).into(),
            c.b_from_a.as_str().into(),
            c.a_from_b.as_str().into(),
            c.support().into(),
        ]
    };
    Table {
        caption: Text::new().code(a).plain(" and ").code(b),
        columns: vec![
            Column::words("Test"),
            Column::words("Figure"),
            Column::numbers(Text::new().code(a)),
            Column::numbers(Text::new().code(b)),
            Column::words(Text::new().code(b).plain(" is")),
            Column::words(Text::new().code(a).plain(" is")),
            Column::words("The repeats"),
        ],
        rows: pair.iter().map(row).collect(),
    }
}
