//! Command line and output of `cenote ls`.

mod recursive;

use std::sync::Arc;

use cenote_control::files::ls::{Depth, Ls as Request};
use cenote_control::files::{File, Files};
use parking_lot::Mutex;

use self::recursive::Recursive;
use super::Ls;
use super::line::{FileJson, FileLine, colored, in_columns};
use crate::outcome::{CliError, Outcome};
use crate::render::quoted;
use crate::session::{JsonArray, Session, print, print_bytes};
use crate::streams::streams;

/// How files are shown.
#[derive(Clone, Copy)]
struct Shape {
    json: bool,
    print0: bool,
    long: bool,
    human: bool,
    inodes: bool,
    colors: bool,
}

impl Shape {
    /// A file's line, under its name or path.
    fn line(&self, name: &[u8], file: &File) -> FileLine {
        let attr = &file.attr.unwrap_or_default();
        let mut shown = quoted(name);
        if self.colors {
            shown = colored(shown, attr);
        }
        match &file.link {
            _ if !self.long => FileLine::short(file.object, shown),
            None => FileLine::long(file.object, attr, shown, self.human),
            Some(link) => {
                let shown = format!("{shown} -> {}", quoted(link));
                FileLine::long(file.object, attr, shown, self.human)
            }
        }
    }
}

/// The listing so far.
struct Listing {
    shape: Shape,
    /// Print a folder's path before its files.
    titles: bool,
    json: Option<JsonArray>,
    /// List everything below folders.
    recursive: bool,
    /// The target being received.
    target: Option<usize>,
    /// Its files, which share their columns.
    files: Option<Files>,
    below: Option<Recursive>,
}

impl Ls {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let shape = Shape {
            json: session.json(),
            print0: self.print0,
            long: self.long,
            human: self.human,
            inodes: self.inode,
            colors: streams().stdout_screen().is_some() && std::env::var_os("NO_COLOR").is_none(),
        };
        let recursive = self.recursive && !self.directory;
        let listing = Listing {
            shape,
            titles: !self.print0 && self.targets.len() > 1,
            json: session.json().then(JsonArray::new),
            recursive,
            target: None,
            files: None,
            below: None,
        };
        let depth = match (self.directory, recursive) {
            (true, _) => Depth::Itself,
            (false, true) => Depth::All { links: shape.long || shape.json },
            (false, false) => Depth::Files,
        };
        let request = Request { targets: self.targets, all: self.all, depth };
        let listing = Arc::new(Mutex::new(listing));
        let answered = session.control().run_in_parts(request, &listing, Listing::take).await;
        let mut listing = listing.lock();
        let outcome = answered?.outcome;
        listing.json.take().map_or(Ok(()), JsonArray::end)?;
        Ok(outcome)
    }
}

impl Listing {
    fn take(&mut self, part: Files) -> Result<(), CliError> {
        // The previous target may have ended with an error.
        if self.target.replace(part.target).is_some_and(|last| last != part.target) {
            (self.files, self.below) = (None, None);
        }
        let is_folder = |file: &File| file.attr.is_some_and(|attr| attr.is_dir());
        let begins_below = || part.files.first().is_some_and(|file| file.path.is_empty() && is_folder(file));
        if self.below.is_none() && self.recursive && begins_below() {
            self.below = Some(Recursive::new(self.shape));
        }
        let is_last = part.is_last;
        match (&mut self.below, &mut self.files) {
            (Some(below), _) => below.take(&part)?,
            (None, Some(files)) => files.files.extend(part.files),
            (None, files) => *files = Some(part),
        }
        if is_last { self.end_target() } else { Ok(()) }
    }

    /// Prints the files of a target received completely.
    fn end_target(&mut self) -> Result<(), CliError> {
        if let Some(below) = self.below.take() {
            return below.end(self.json.as_mut());
        }
        let Some(files) = self.files.take() else { return Ok(()) };
        let is_folder = !files.files.first().is_some_and(|file| file.path.is_empty());
        if let Some(json) = &mut self.json {
            for file in &files.files {
                json.push(&FileJson::new(
                    &files.full_path(file),
                    file.object,
                    &file.attr.unwrap_or_default(),
                    file.link.as_deref(),
                ))?;
            }
            return Ok(());
        }
        if self.titles && is_folder {
            print(format!("{}:\n", quoted(&files.place)))?;
        }
        if self.shape.print0 {
            let paths = files.files.iter().flat_map(|file| [files.full_path(file), vec![0]].concat());
            return print_bytes(paths.collect::<Vec<u8>>());
        }
        let name = |file: &File| if is_folder { file.path.clone() } else { files.place.clone() };
        let lines: Vec<FileLine> =
            files.files.iter().map(|file| self.shape.line(&name(file), file)).collect();
        // Names are escaped already; the colours are ours.
        print_bytes(in_columns(&lines, self.shape.inodes))
    }
}
