//! `cenote ls`.

use std::io::IsTerminal;

use cenote_dataset::ObjectId;
use cenote_fs::{Attr, FileKind, Filesystem, LastLink};

use super::Ls;
use super::line::{FileJson, colored, long_lines};
use super::place::{Place, Places, complain};
use crate::outcome::{CliError, Outcome};
use crate::render::escape_terminal;
use crate::session::{Session, print, print_json};

/// A file to be listed.
struct Listed {
    name: Vec<u8>,
    object: ObjectId,
    attr: Attr,
    target: Option<Vec<u8>>,
}

/// A folder to be listed.
struct Folder {
    object: ObjectId,
    /// From the place that was named; empty for that itself.
    below: Vec<u8>,
}

impl Ls {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let mut places = Places::new(session);
        let mut listing = Listing {
            colors: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
            titles: self.recursive || self.targets.len() > 1,
            json: session.json().then(Vec::new),
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
        if let Some(files) = &listing.json {
            print_json(files)?;
        }
        Ok(listing.outcome)
    }
}

struct Listing {
    ls: Ls,
    colors: bool,
    titles: bool,
    json: Option<Vec<FileJson>>,
    outcome: Outcome,
}

impl Listing {
    async fn place(&mut self, place: &Place) -> Result<(), CliError> {
        if !place.attr.is_dir() || self.ls.directory {
            let name = place.shown.clone().into_bytes();
            let file = describe(&place.filesystem, name, place.object, place.attr).await?;
            return self.show(place, b"", vec![file]);
        }
        let mut folders = vec![Folder { object: place.object, below: Vec::new() }];
        while let Some(folder) = folders.pop() {
            let files = self.read(place, &folder).await;
            if self.ls.recursive {
                let inner = files.iter().rev().filter(|file| file.attr.is_dir());
                folders
                    .extend(inner.map(|f| Folder { object: f.object, below: join(&folder.below, &f.name) }));
            }
            if self.titles && self.json.is_none() {
                let title = if folder.below.is_empty() {
                    place.shown.clone().into_bytes()
                } else {
                    place.below(&folder.below)
                };
                print(format!("{}:\n", escape_terminal(&title)))?;
            }
            self.show(place, &folder.below, files)?;
            if !folders.is_empty() && self.json.is_none() {
                print("\n")?;
            }
        }
        Ok(())
    }

    /// The files of a folder, sorted by name. What can't be read is said.
    async fn read(&mut self, place: &Place, folder: &Folder) -> Vec<Listed> {
        let fs = &place.filesystem;
        let mut problem = |below: &[u8], error| self.outcome = self.outcome.and(place.problem(below, error));
        let mut entries = Vec::new();
        match fs.read_dir(folder.object).await {
            Err(error) => problem(&folder.below, error),
            Ok(mut reader) => loop {
                match reader.next_batch().await {
                    Ok(Some(batch)) => entries.extend(batch),
                    Ok(None) => break,
                    Err(error) => problem(&folder.below, error),
                }
            },
        }
        entries.retain(|entry| self.ls.all || !entry.name.starts_with(b"."));
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let mut files = Vec::with_capacity(entries.len());
        for entry in entries {
            let file = match fs.attr(entry.object).await {
                Ok(attr) => describe(fs, entry.name.to_vec(), entry.object, attr).await,
                Err(error) => Err(error),
            };
            match file {
                Ok(file) => files.push(file),
                Err(error) => problem(&join(&folder.below, &entry.name), error),
            }
        }
        files
    }

    fn show(&mut self, place: &Place, below: &[u8], files: Vec<Listed>) -> Result<(), CliError> {
        if let Some(json) = &mut self.json {
            let of = |file: Listed| {
                // A single file is named in full already.
                let path = match place.attr.is_dir() && !self.ls.directory {
                    true => place.below(&join(below, &file.name)),
                    false => file.name,
                };
                FileJson::new(&path, file.object, &file.attr, file.target.as_deref())
            };
            json.extend(files.into_iter().map(of));
            return Ok(());
        }
        let inodes = files.iter().map(|file| file.object.to_string().len()).max().unwrap_or(0);
        let name = |file: &Listed| {
            let mut name = escape_terminal(&file.name);
            if self.colors {
                name = colored(name, &file.attr);
            }
            match &file.target {
                Some(target) if self.ls.long => format!("{name} -> {}", escape_terminal(target)),
                _ => name,
            }
        };
        let lines = match self.ls.long {
            true => long_lines(files.iter().map(|file| (&file.attr, name(file))), self.ls.human),
            false => files.iter().map(|file| name(file) + "\n").collect(),
        };
        let text = match self.ls.inode {
            false => lines,
            true => files
                .iter()
                .zip(lines.lines())
                .map(|(file, line)| format!("{:>inodes$} {line}\n", file.object.0))
                .collect(),
        };
        print(text)
    }
}

async fn describe(fs: &Filesystem, name: Vec<u8>, object: ObjectId, attr: Attr) -> cenote_fs::Result<Listed> {
    let target = if attr.kind() == FileKind::Symlink { Some(fs.read_link(object).await?) } else { None };
    Ok(Listed { name, object, attr, target })
}

fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() }
}
