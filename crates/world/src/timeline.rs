//! A history as an HTML page: lanes for clients, txgs, disks and the machine, one drawing for each life.
//!
//! ```text
//!   client 0   [write      ] [fsync   ]
//!   admin 3          [rollback            ]
//!   txg        |  41  |closing|writing|
//!   disk 1                 x Vanishes
//!   machine    | power on                   x cut
//! ```
//!
//! Idea: virtual time has long pauses, so a place on the axis is the rank of an event. The page fetches
//! nothing; a pointer on a call shows it whole.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::model::verb::{FIRST_OF_ADMINISTRATORS, FIRST_OF_VOLUMES, VERBS};
use crate::record::{Life, Made, Record};

/// Width of a rank, and height of a lane.
const STEP: usize = 16;
const LANE: usize = 22;
/// Place for the names of lanes.
const LEFT: usize = 110;
/// Width of a letter, about.
const LETTER: usize = 7;

const STYLE: &str = "\
body{font:13px system-ui,sans-serif;margin:16px;color:#222;background:#fff}
h1{font-size:17px}h2{font-size:14px;margin:20px 0 4px}
pre.wrong{background:#fdecea;border-left:4px solid #b3261e;padding:8px;white-space:pre-wrap}
div.life{overflow-x:auto;border:1px solid #ccc}
text{font:11px system-ui,sans-serif;fill:#222}text.name{font-weight:600}
.files{fill:#cfe3f7}.volumes{fill:#d7efcf}.admin{fill:#fbe3b5}.open{fill:#f1f1f1}.closing{fill:#e5d0ef}
.writing{fill:#c9b2dd}rect{stroke:#777;stroke-width:.6}rect.cut{stroke-dasharray:3 2}
rect.failed{stroke:#b3261e;stroke-width:1.4}line.lane{stroke:#eee}circle{fill:#b3261e}circle.note{fill:#555}
ul.key{list-style:none;padding:0}ul.key li{display:inline-block;margin-right:14px}
ul.key b{display:inline-block;width:14px;height:10px;border:1px solid #777;margin-right:4px}";

/// The page of a history.
pub fn page(record: &Record, command: &str, wrong: Option<&str>) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\
         <style>{STYLE}</style>\n<h1>{title}</h1>\n",
        title = escaped(command)
    );
    match wrong {
        Some(why) => page += &format!("<pre class=\"wrong\">{}</pre>\n", escaped(why)),
        None => page += "<p>The history is right.</p>\n",
    }
    page += "<ul class=\"key\"><li><b style=\"background:#cfe3f7\"></b>files</li><li><b \
             style=\"background:#d7efcf\"></b>volumes</li><li><b style=\"background:#fbe3b5\"></b>\
             administrators</li><li><b style=\"background:#e5d0ef\"></b>txg closes</li><li><b \
             style=\"background:#c9b2dd\"></b>txg is written</li><li><b style=\"border-color:#b3261e\"></b>\
             failed</li><li><b style=\"border-style:dashed\"></b>not ended</li></ul>\n";
    let lives = record.lives.iter().filter(|life| !life.calls.is_empty() || !life.notes.is_empty());
    for (number, life) in (1..).zip(lives) {
        page += &format!("<h2>Life {number}</h2>\n<div class=\"life\">{}</div>\n", Drawing::of(life).svg());
    }
    page + "</html>\n"
}

/// A life on its axis.
struct Drawing<'a> {
    life: &'a Life,
    /// The instants of all events, in order.
    instants: Vec<u64>,
    lanes: BTreeMap<Lane, usize>,
    shapes: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    Client(usize),
    Txg,
    Disk(usize),
    Machine,
}

impl Lane {
    fn name(self) -> String {
        match self {
            Lane::Client(client) => format!("client {client}"),
            Lane::Txg => "txg".into(),
            Lane::Disk(disk) => format!("disk {disk}"),
            Lane::Machine => "machine".into(),
        }
    }

    /// Trouble begins with the name of its disk.
    fn of_note(note: &str) -> Lane {
        let disk = note.strip_prefix("disk ").and_then(|rest| rest.split([':', ' ']).next()?.parse().ok());
        disk.map_or(Lane::Machine, Lane::Disk)
    }
}

impl<'a> Drawing<'a> {
    fn of(life: &'a Life) -> Drawing<'a> {
        let calls = life.calls.values();
        let mut instants: BTreeSet<u64> = calls.clone().map(|made| made.begin_ns).collect();
        instants.extend(calls.clone().filter_map(|made| Some(made.end.as_ref()?.0)));
        instants.extend(life.txgs.values().flat_map(|txg| [txg.closing_ns, txg.closed_ns, txg.written_ns]));
        instants.extend(life.notes.iter().map(|(at, _)| *at));
        let lanes = calls.map(|made| Lane::Client(made.client));
        let lanes = lanes.chain(life.notes.iter().map(|(_, note)| Lane::of_note(note)));
        let lanes: BTreeSet<Lane> = lanes.chain([Lane::Txg]).collect();
        let lanes = lanes.into_iter().zip(0..).collect();
        Drawing { life, instants: instants.into_iter().collect(), lanes, shapes: String::new() }
    }

    /// The place of an instant.
    fn x(&self, at_ns: u64) -> usize {
        LEFT + self.instants.partition_point(|instant| *instant < at_ns) * STEP
    }

    fn y(&self, lane: Lane) -> usize {
        self.lanes.get(&lane).copied().unwrap_or(0) * LANE
    }

    fn svg(mut self) -> String {
        let (width, height) = (LEFT + (self.instants.len() + 2) * STEP, (self.lanes.len() + 1) * LANE);
        for (lane, row) in self.lanes.clone() {
            let y = row * LANE;
            _ = writeln!(
                self.shapes,
                "<line class=\"lane\" x1=\"0\" x2=\"{width}\" y1=\"{y}\" y2=\"{y}\"/>\
                 <text class=\"name\" x=\"4\" y=\"{}\">{}</text>",
                y + 15,
                lane.name()
            );
        }
        self.life.calls.values().for_each(|made| self.call(made));
        self.txgs();
        for (at, note) in &self.life.notes {
            let (x, y, class) = (self.x(*at), self.y(Lane::of_note(note)), class_of(note));
            let title = title(&format!("{note}\nat {}", time(*at)));
            _ = writeln!(
                self.shapes,
                "<circle class=\"{class}\" cx=\"{x}\" cy=\"{}\" r=\"4\">{title}</circle>",
                y + 11
            );
        }
        self.axis(height);
        let shapes = &self.shapes;
        format!("<svg width=\"{width}\" height=\"{height}\" role=\"img\">\n{shapes}</svg>")
    }

    fn call(&mut self, made: &Made) {
        let end_ns = made.end.as_ref().map_or_else(|| self.life.end_ns(), |end| end.0);
        let how = made.end.as_ref().map_or("not ended", |end| &end.1);
        let verb = VERBS.iter().position(|verb| *verb == made.verb).unwrap_or_default();
        let group = match verb {
            verb if verb < FIRST_OF_VOLUMES => "files",
            verb if verb < FIRST_OF_ADMINISTRATORS => "volumes",
            _ => "admin",
        };
        let class = match () {
            () if made.end.is_none() => format!("{group} cut"),
            () if how.starts_with("Failed") || how.starts_with("Refused") => format!("{group} failed"),
            () => group.into(),
        };
        let text = format!("{}\n{how}\n{} to {}", made.text, time(made.begin_ns), time(end_ns));
        let span = (made.begin_ns, end_ns);
        self.bar(Lane::Client(made.client), span, &class, made.verb, &text);
    }

    fn txgs(&mut self) {
        for txg in self.life.txgs.values() {
            let (number, name) = (txg.number, txg.number.to_string());
            let spans =
                [("closing", txg.closing_ns, txg.closed_ns), ("writing", txg.closed_ns, txg.written_ns)];
            for (class, from, to) in spans {
                let text = format!("txg {number}: {class}\n{} to {}", time(from), time(to));
                self.bar(Lane::Txg, (from, to), class, if class == "writing" { &name } else { "" }, &text);
            }
        }
    }

    fn bar(&mut self, lane: Lane, (from, to): (u64, u64), class: &str, name: &str, text: &str) {
        let (x, y) = (self.x(from), self.y(lane) + 3);
        let width = (self.x(to) - x).max(3);
        let shown: String = name.chars().take(width / LETTER).collect();
        _ = writeln!(
            self.shapes,
            "<g>{}<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{}\"/>\
             <text x=\"{}\" y=\"{}\">{}</text></g>",
            title(text),
            LANE - 6,
            x + 2,
            y + 12,
            escaped(&shown)
        );
    }

    /// Times below the lanes, now and then.
    fn axis(&mut self, height: usize) {
        const EVERY: usize = 8;
        for (rank, at) in self.instants.clone().into_iter().enumerate().step_by(EVERY) {
            let x = LEFT + rank * STEP;
            _ = writeln!(self.shapes, "<text x=\"{x}\" y=\"{}\">{}</text>", height - 6, time(at));
        }
    }
}

/// Trouble, and ends of lives.
fn class_of(note: &str) -> &'static str {
    let is_trouble = note.starts_with("disk ") && !note.ends_with("is well");
    if is_trouble || ["Cut", "Kill"].contains(&note) { "" } else { "note" }
}

fn title(text: &str) -> String {
    format!("<title>{}</title>", escaped(text))
}

/// Milliseconds.
fn time(at_ns: u64) -> String {
    format!("{:.2} ms", at_ns as f64 / 1e6)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Txg;

    #[test]
    fn a_page_has_all_calls_and_troubles_and_no_markup_of_theirs() {
        let (verb, dataset) = ("write", Some(1));
        let call = |client, begin_ns, end: Option<(u64, String)>| Made {
            client,
            verb,
            dataset,
            text: format!("client {client} <b>"),
            begin_ns,
            end,
        };
        let mut life = Life::default();
        life.calls.insert(1, call(0, 5, Some((90, "Done".into()))));
        life.calls.insert(2, call(1, 20, None));
        let txg = Txg { number: 7, opened_ns: 0, closing_ns: 30, closed_ns: 40, written_ns: 80 };
        life.txgs.insert(7, txg);
        life.notes.extend([(50, "disk 2: Vanishes".to_owned()), (95, "Cut".into())]);
        let page =
            page(&Record { lives: vec![life, Life::default()] }, "cenote-world --seed 1", Some("a < b"));
        assert_eq!(page.matches("<rect").count(), 4);
        assert!(page.contains("files cut") && page.contains(">disk 2<") && page.contains("a &lt; b"));
        assert!(!page.contains("<b>") && !page.contains("Life 2"));
    }
}
