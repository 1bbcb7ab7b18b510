//! fio's job files: read into [`Jobs`], and written from them.
//!
//! ```text
//! ; a comment, as is what follows a ; or # in any line
//! [global]            options of all jobs below; further [global] sections add to it
//! direct=1
//! [job name]          one job: what [global] says so far, and then its own
//! rw=randread
//! time_based          the same as time_based=1
//! ```
//!
//! Idea: a job file that is understood half measures something else than it says. So each option is either taken over, or is in a short
//! list of those that make no difference here (`options::IGNORED`, with reasons), or is an error that names it, its line, and what
//! to write instead. Numbers mean what they mean to fio (`value`).
//!
//! The inverse, [`Jobs::to_fio`], gives a file that the real fio takes and that is read back here as the same jobs: it is how fio is run
//! beside our engine, and how reports say what to type to repeat them.
//!
//! Source: fio's HOWTO, "Job file format" and "Job file parameters"; its init.c and parse.c for comments, sections and numbers.

mod draft;
mod options;
mod unsupported;
mod value;
mod write;

use super::Jobs;
use crate::{LabError, Result};
use draft::Draft;

/// How the name of a section begins that is not a job.
const GLOBAL: &str = "global";

impl Jobs {
    /// The jobs of a job file; `file` is its name, for errors.
    ///
    /// # Errors
    /// [`LabError::JobFile`] with the line, what is wrong there, and what would be right.
    pub fn parse(text: &str, file: &str) -> Result<Jobs> {
        let mut global = Draft::default();
        let mut sections = sections(text).map_err(|wrong| wrong.in_file(file))?;
        let mut jobs = Vec::new();
        for section in &mut sections {
            // What numbers mean must be known before they are read.
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
            let what = "there is no job in it: a job begins with its name in brackets, [job]".into();
            return Err(Wrong { line: text.lines().count().max(1), what }.in_file(file));
        }
        Ok(Jobs(jobs))
    }
}

/// What is wrong, and in which line.
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

/// One option as written.
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
                what: format!("`{name}` stands before any section: put [global] or [a job's name] before it"),
            });
        };
        section.options.push(Line { line, name, value });
    }
    Ok(sections)
}
