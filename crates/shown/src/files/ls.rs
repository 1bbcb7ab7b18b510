//! `ls`: the files of targets, as their parts arrive.

mod recursive;

use std::io::Write;

use cenote_control::ControlError;
use cenote_control::files::{File, Files};
use cenote_control::text::quoted;

use super::line::{FileJson, FileLine, Shape};
use crate::output::Output;
use recursive::Recursive;

/// Content and form of the output.
#[derive(Debug, Clone, Copy, Default)]
pub struct Layout {
    /// How lines look.
    pub shape: Shape,
    /// Each file as a complete target that ends in a NUL byte.
    pub print0: bool,
    /// A folder's path before its files.
    pub titles: bool,
    /// Everything below folders.
    pub recursive: bool,
}

/// The listing so far.
pub struct Listing<W> {
    layout: Layout,
    out: Output<W>,
    /// The target being received.
    target: Option<usize>,
    /// Its files, which share their columns.
    files: Option<Files>,
    below: Option<Recursive>,
}

impl<W: Write> Listing<W> {
    /// An empty listing.
    pub fn new(out: Output<W>, layout: Layout) -> Listing<W> {
        Listing { layout, out, target: None, files: None, below: None }
    }

    /// Takes a part.
    ///
    /// # Errors
    /// The writer fails, or the temporary file that sorts nested folders.
    pub fn take(&mut self, part: Files) -> Result<(), ControlError> {
        // The previous target may have ended with an error.
        if self.target.replace(part.target).is_some_and(|last| last != part.target) {
            (self.files, self.below) = (None, None);
        }
        let is_folder = |file: &File| file.attr.is_some_and(|attr| attr.is_dir());
        let begins_below = || part.files.first().is_some_and(|file| file.path.is_empty() && is_folder(file));
        if self.below.is_none() && self.layout.recursive && begins_below() {
            let is_json = matches!(self.out, Output::Json(_));
            self.below = Some(Recursive::new(self.layout.shape, self.layout.print0, is_json));
        }
        let is_last = part.is_last;
        match (&mut self.below, &mut self.files) {
            (Some(below), _) => below.take(&part)?,
            (None, Some(files)) => files.files.extend(part.files),
            (None, files) => *files = Some(part),
        }
        if is_last { self.end_target() } else { Ok(()) }
    }

    /// Ends the listing.
    ///
    /// # Errors
    /// The writer fails.
    pub fn end(self) -> Result<(), ControlError> {
        self.out.end()
    }

    /// Writes the files of a target received completely.
    fn end_target(&mut self) -> Result<(), ControlError> {
        if let Some(below) = self.below.take() {
            return below.end(&mut self.out);
        }
        let Some(files) = self.files.take() else { return Ok(()) };
        let is_folder = !files.files.first().is_some_and(|file| file.path.is_empty());
        if let Output::Json(array) = &mut self.out {
            let mut all = files.files.iter();
            let pushed = all.try_for_each(|file| array.push(&FileJson::new(&files.full_path(file), file)));
            return pushed.map_err(ControlError::io("standard output"));
        }
        if self.layout.titles && is_folder {
            self.out.bytes(format!("{}:\n", quoted(&files.place)).as_bytes())?;
        }
        if self.layout.print0 {
            let paths = files.files.iter().flat_map(|file| [files.full_path(file), vec![0]].concat());
            self.out.bytes(&paths.collect::<Vec<u8>>())?;
        } else {
            let name = |file: &File| if is_folder { file.path.clone() } else { files.place.clone() };
            let shape = self.layout.shape;
            let lines: Vec<FileLine> = files.files.iter().map(|file| shape.line(&name(file), file)).collect();
            self.out.bytes(shape.columns(&lines).as_bytes())?;
        }
        self.out.flush()
    }
}
