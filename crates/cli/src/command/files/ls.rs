//! `cenote ls`.

mod recursive;

use cenote_format::units::ObjectId;
use cenote_fs::{Attr, FileKind, Filesystem, LastLink};

use super::Ls;
use super::line::{FileJson, FileLine, colored, in_columns};
use super::place::{PoolFile, PoolFiles, complain};
use crate::outcome::{CliError, Outcome};
use crate::render::quoted;
use crate::session::{JsonArray, Session, print, print_bytes};
use crate::streams::{streams, variable};

/// A file to be listed.
struct Listed {
    name: Vec<u8>,
    object: ObjectId,
    attr: Attr,
    target: Option<Vec<u8>>,
}

/// How files are shown.
#[derive(Clone, Copy)]
struct Shape {
    json: bool,
    print0: bool,
    all: bool,
    long: bool,
    human: bool,
    inodes: bool,
    colors: bool,
}

impl Shape {
    /// A file's line, under its name or path.
    fn line(&self, name: &[u8], object: ObjectId, attr: &Attr, target: Option<&[u8]>) -> FileLine {
        let mut shown = quoted(name);
        if self.colors {
            shown = colored(shown, attr);
        }
        match target {
            _ if !self.long => FileLine::short(object, shown),
            None => FileLine::long(object, attr, shown, self.human),
            Some(target) => {
                let shown = format!("{shown} -> {}", quoted(target));
                FileLine::long(object, attr, shown, self.human)
            }
        }
    }
}

impl Ls {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let mut places = PoolFiles::new(session);
        let shape = Shape {
            json: session.json(),
            print0: self.print0,
            all: self.all,
            long: self.long,
            human: self.human,
            inodes: self.inode,
            colors: streams().stdout_screen().is_some() && variable("NO_COLOR").is_none(),
        };
        let mut listing = Listing {
            shape,
            titles: !self.print0 && self.targets.len() > 1,
            json: session.json().then(JsonArray::new),
            outcome: Outcome::Done,
            ls: self,
        };
        for target in listing.ls.targets.clone() {
            let listed = match places.find(&target, LastLink::Keep).await {
                Ok(place) => listing.place(&place).await,
                Err(error) => Err(error),
            };
            if let Err(error) = listed {
                let outcome = complain(&target, error)?;
                listing.outcome = listing.outcome.and(outcome);
            }
        }
        if let Some(files) = listing.json {
            files.end()?;
        }
        Ok(listing.outcome)
    }
}

struct Listing {
    ls: Ls,
    shape: Shape,
    titles: bool,
    json: Option<JsonArray>,
    outcome: Outcome,
}

impl Listing {
    async fn place(&mut self, place: &PoolFile) -> Result<(), CliError> {
        if !place.attr.is_dir() || self.ls.directory {
            let name = place.shown.clone();
            let file = describe(&place.filesystem, name, place.object, place.attr).await?;
            return self.show(vec![file], <[u8]>::to_vec);
        }
        if self.ls.recursive {
            let outcome = recursive::list(place, self.shape, self.json.as_mut()).await?;
            self.outcome = self.outcome.and(outcome);
            return Ok(());
        }
        let files = self.read(place).await;
        if self.titles && self.json.is_none() {
            print(format!("{}:\n", quoted(&place.shown)))?;
        }
        self.show(files, |name| place.below(name))
    }

    /// The files of a folder, sorted by name. Unreadable ones are reported.
    async fn read(&mut self, place: &PoolFile) -> Vec<Listed> {
        let fs = &place.filesystem;
        let mut problem = |below: &[u8], error| self.outcome = self.outcome.and(place.problem(below, error));
        let mut entries = Vec::new();
        match fs.read_dir(place.object).await {
            Err(error) => problem(b"", error),
            Ok(mut reader) => loop {
                match reader.next_batch().await {
                    Ok(Some(batch)) => entries.extend(batch),
                    Ok(None) => break,
                    Err(error) => problem(b"", error),
                }
            },
        }
        entries.retain(|entry| self.shape.all || !entry.name.starts_with(b"."));
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let mut files = Vec::with_capacity(entries.len());
        for entry in entries {
            let file = match fs.attr(entry.object).await {
                Ok(attr) => describe(fs, entry.name.to_vec(), entry.object, attr).await,
                Err(error) => Err(error),
            };
            match file {
                Ok(file) => files.push(file),
                Err(error) => problem(&entry.name, error),
            }
        }
        files
    }

    /// `path` gives the path printed in JSON for a name.
    fn show(&mut self, files: Vec<Listed>, path: impl Fn(&[u8]) -> Vec<u8>) -> Result<(), CliError> {
        if self.shape.print0 && self.json.is_none() {
            return print_bytes(
                files.iter().flat_map(|file| [path(&file.name), vec![0]].concat()).collect::<Vec<u8>>(),
            );
        }
        let Some(json) = &mut self.json else {
            let line =
                |file: &Listed| self.shape.line(&file.name, file.object, &file.attr, file.target.as_deref());
            let lines: Vec<FileLine> = files.iter().map(line).collect();
            // Names are escaped already; the colours are ours.
            return print_bytes(in_columns(&lines, self.shape.inodes));
        };
        for file in files {
            json.push(&FileJson::new(&path(&file.name), file.object, &file.attr, file.target.as_deref()))?;
        }
        Ok(())
    }
}

async fn describe(fs: &Filesystem, name: Vec<u8>, object: ObjectId, attr: Attr) -> cenote_fs::Result<Listed> {
    let target = if attr.kind() == FileKind::Symlink { Some(fs.read_link(object).await?) } else { None };
    Ok(Listed { name, object, attr, target })
}
