//! fio's job files: read into [`Jobs`], and written from them.
//!
//! ```text
//! ; a comment, like everything after ; or # on any line
//! [global]            options of all jobs below; later [global] sections add to it
//! direct=1
//! [job name]          one job: the [global] options so far, then its own
//! rw=randread
//! time_based          the same as time_based=1
//! ```
//!
//! Each option is implemented, or makes no difference here (`options::IGNORED`, with reasons), or is an error
//! that names it, its line, and an alternative: a half-understood job would measure something else. Numbers
//! mean the same as to fio (`value`).
//!
//! The inverse, [`Jobs::to_fio`], writes a file that the real fio accepts and that parses to the same jobs.
//! It is used to run fio in place of the engine, and in reports, as the command that repeats a test.
//!
//! Source: fio's HOWTO, "Job file format" and "Job file parameters"; its init.c and parse.c for comments,
//! sections and numbers.

mod draft;
mod options;
mod unsupported;
mod value;
mod write;

use super::Jobs;
use crate::{LabError, Result};
use draft::Draft;

/// Prefix of section names that are not jobs.
const GLOBAL: &str = "global";

impl Jobs {
    /// Parses a job file; `file` is its name, for errors.
    ///
    /// # Errors
    /// [`LabError::JobFile`] with the line, the problem there, and the fix.
    pub fn parse(text: &str, file: &str) -> Result<Jobs> {
        let mut global = Draft::default();
        let mut sections = sections(text).map_err(|wrong| wrong.in_file(file))?;
        let mut jobs = Vec::new();
        for section in &mut sections {
            // The base of numbers must be known before they are parsed.
            section.options.sort_by_key(|option| option.name != "kb_base");
            let is_global = section.name.starts_with(GLOBAL);
            let mut draft = global.clone();
            if !is_global {
                draft.job.name = section.name.to_owned();
            }
            for option in &section.options {
                options::set(&mut draft, option.name, option.value)
                    .map_err(|what| Wrong { line: option.line, what }.in_file(file))?;
            }
            if is_global {
                global = draft;
            } else {
                let job = draft.finish().map_err(|what| Wrong { line: section.line, what }.in_file(file))?;
                jobs.push(job);
            }
        }
        if jobs.is_empty() {
            let what = "it contains no job: a job starts with its name in brackets, [job]".into();
            return Err(Wrong { line: text.lines().count().max(1), what }.in_file(file));
        }
        Ok(Jobs(jobs))
    }
}

struct Wrong {
    line: usize,
    what: String,
}

impl Wrong {
    fn in_file(self, file: &str) -> LabError {
        LabError::JobFile { file: file.to_owned(), line: self.line, what: self.what }
    }
}

struct Section<'a> {
    line: usize,
    name: &'a str,
    options: Vec<Line<'a>>,
}

struct Line<'a> {
    line: usize,
    name: &'a str,
    value: Option<&'a str>,
}

fn sections(text: &str) -> std::result::Result<Vec<Section<'_>>, Wrong> {
    let mut sections: Vec<Section> = Vec::new();
    for (index, text) in text.lines().enumerate() {
        let line = index + 1;
        let text = text.split([';', '#']).next().unwrap_or("").trim();
        if text.is_empty() {
            continue;
        }
        if let Some(header) = text.strip_prefix('[') {
            let Some(name) = header.strip_suffix(']').filter(|name| !name.is_empty()) else {
                return Err(Wrong {
                    line,
                    what: format!("`{text}`: a section is a name in brackets, [job]"),
                });
            };
            sections.push(Section { line, name, options: Vec::new() });
            continue;
        }
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name.trim_end(), Some(value.trim_start())),
            None => (text, None),
        };
        let Some(section) = sections.last_mut() else {
            return Err(Wrong {
                line,
                what: format!("`{name}` comes before any section: put [global] or [a job's name] before it"),
            });
        };
        section.options.push(Line { line, name, value });
    }
    Ok(sections)
}
