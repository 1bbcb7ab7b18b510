//! `zfs project`: the projects of files in mounted file systems.
//!
//! It runs in the client's process with the user's rights, on any mounted file system. Links within folders
//! are not followed, and pipes and devices are not opened.
//!
//! Source: OpenZFS `zfs_project.c`, zfs-project(8).

mod attr;

use std::collections::VecDeque;
use std::fs::{File, OpenOptions, read_dir, symlink_metadata};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use attr::FileAttr;
use cenote_control::text::escape_terminal;
use cenote_shown::json::document;
use clap::Args;
use rustix::fs::OFlags;
use serde_json::{Map, Value, json};

use crate::outcome::{CliError, Outcome, Say};
use crate::session::{Session, print, print_bytes, print_json};

/// `zfs project`
#[derive(Debug, Args)]
#[command(
    after_help = "Without -c, -C, -p or -s, shows the project and inherit flag (P) of files, and of entries \
        in folders.\n\n\
        Example: cenote zfs project -p 7 -rs /tank/home/build"
)]
pub struct Project {
    /// Only the folder itself, without its entries
    #[arg(short = 'd', overrides_with = "recursive")]
    pub only_folder: bool,
    /// Include nested folders
    #[arg(short = 'r')]
    pub recursive: bool,
    /// Report files that lack the flag or whose project is not the folder's
    #[arg(short = 'c', conflicts_with_all = ["clear", "set_flag"])]
    pub check: bool,
    /// With -c, print only names, each followed by a NUL byte
    #[arg(short = '0', requires = "check")]
    pub nul: bool,
    /// Clear the flag and the project
    #[arg(short = 'C', conflicts_with_all = ["set_flag", "only_folder", "project"])]
    pub clear: bool,
    /// With -C, keep the project
    #[arg(short = 'k', requires = "clear")]
    pub keep: bool,
    /// Set this project; with -c, compare with it
    #[arg(short = 'p', value_name = "ID", value_parser = project_id)]
    pub project: Option<u32>,
    /// Set the flag: new entries of a folder inherit its project
    #[arg(short = 's', conflicts_with = "only_folder")]
    pub set_flag: bool,
    /// Files and folders
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// A number as C writes it: decimal, hexadecimal or octal.
fn project_id(typed: &str) -> Result<u32, String> {
    let parsed = match typed.strip_prefix("0x").or_else(|| typed.strip_prefix("0X")) {
        Some(hex) => u32::from_str_radix(hex, 16),
        None if typed.len() > 1 && typed.starts_with('0') => u32::from_str_radix(&typed[1..], 8),
        None => typed.parse(),
    };
    parsed.ok().filter(|id| *id != u32::MAX).ok_or_else(|| format!("a project is less than {}", u32::MAX))
}

/// The work done on each file.
enum Action {
    List,
    Check(u32),
    Clear,
    Set(u32),
}

impl Project {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        if self.set_flag && self.check {
            return Err(CliError::Usage("-c and -s exclude each other".into()));
        }
        let (mut outcome, mut documents) = (Outcome::Done, Map::new());
        for path in &self.files {
            let done = self.visit(session, path, &mut documents);
            outcome = outcome.and(done.map_or_else(|error| error.say(), |()| Outcome::Done));
        }
        if session.json() {
            print_json(&document("zfs project", "files", documents))?;
        }
        Ok(outcome)
    }

    /// Visits a file, or a folder with its contents.
    fn visit(
        &self,
        session: &Session,
        path: &Path,
        documents: &mut Map<String, Value>,
    ) -> Result<(), CliError> {
        let at = |path: &Path| CliError::io(path.display().to_string());
        let top = std::fs::metadata(path).map_err(at(path))?;
        let usage = |why: &str| Err(CliError::Usage(format!("{}: {why}", path.display())));
        if !top.is_file() && !top.is_dir() {
            return usage("only files and folders have projects");
        }
        if !top.is_dir() && (self.only_folder || self.recursive) {
            return usage("-d and -r are for folders");
        }
        let opened = open(path, OFlags::empty()).map_err(at(path))?;
        let own = FileAttr::of(&opened).map_err(at(path))?;
        let action = match self.project {
            _ if self.clear => Action::Clear,
            project if self.check => Action::Check(project.unwrap_or(own.project())),
            project if self.set_flag => Action::Set(project.unwrap_or(own.project())),
            Some(project) => Action::Set(project),
            None => Action::List,
        };
        self.act(session, path, &opened, &action, documents)?;
        let lists = matches!(action, Action::List | Action::Check(_));
        if !top.is_dir() || self.only_folder || !(self.recursive || lists) {
            return Ok(());
        }
        let mut folders = VecDeque::from([path.to_owned()]);
        while let Some(folder) = folders.pop_front() {
            let entries = match read_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries.map_err(at(&folder))?,
            };
            for entry in entries {
                let path = entry.map_err(at(&folder))?.path();
                // The file may be gone by now.
                let Ok(found) = symlink_metadata(&path) else { continue };
                if !found.is_file() && !found.is_dir() {
                    continue;
                }
                match open(&path, OFlags::NOFOLLOW) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    file => self.act(session, &path, &file.map_err(at(&path))?, &action, documents)?,
                }
                if self.recursive && found.is_dir() {
                    folders.push_back(path);
                }
            }
        }
        Ok(())
    }

    fn act(
        &self,
        session: &Session,
        path: &Path,
        file: &File,
        action: &Action,
        documents: &mut Map<String, Value>,
    ) -> Result<(), CliError> {
        let at = || CliError::io(path.display().to_string());
        let attr = FileAttr::of(file).map_err(at())?;
        let (project, inherits) = (attr.project(), attr.inherits());
        let shown = escape_terminal(path.as_os_str().as_encoded_bytes());
        let wanted = match action {
            Action::List if session.json() => {
                documents.insert(shown, json!({"project": project, "inherits": inherits}));
                return Ok(());
            }
            Action::List => {
                return print(format!("{project:5} {} {shown}\n", if inherits { 'P' } else { '-' }));
            }
            Action::Check(wanted) if project == *wanted && inherits => return Ok(()),
            Action::Check(wanted) if session.json() => {
                let found = json!({"project": project, "wanted": wanted, "inherits": inherits});
                documents.insert(shown, found);
                return Ok(());
            }
            Action::Check(_) if self.nul => {
                return print_bytes([path.as_os_str().as_encoded_bytes(), b"\0"].concat());
            }
            Action::Check(wanted) => {
                let mut lines = String::new();
                if project != *wanted {
                    lines += &format!("{shown} - project ID is not set properly ({project}/{wanted})\n");
                }
                if !inherits {
                    lines += &format!("{shown} - project inherit flag is not set\n");
                }
                return print(lines);
            }
            Action::Clear => attr.in_project(if self.keep { project } else { 0 }, false),
            Action::Set(wanted) => attr.in_project(*wanted, inherits || self.set_flag),
        };
        let is_so = wanted.project() == project && wanted.inherits() == inherits;
        if is_so { Ok(()) } else { wanted.set(file).map_err(at()) }
    }
}

/// Opens a file or folder. If it has become a pipe meanwhile, the open does not block.
fn open(path: &Path, more: OFlags) -> io::Result<File> {
    let flags = OFlags::NOCTTY | OFlags::NONBLOCK | more;
    OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)
}

#[cfg(test)]
mod tests {
    use super::project_id;

    #[test]
    fn projects_are_numbers_as_c_writes_them() {
        for (typed, id) in [("0", 0), ("7", 7), ("0x10", 16), ("010", 8), ("4294967294", u32::MAX - 1)] {
            assert_eq!(project_id(typed), Ok(id), "{typed}");
        }
        for typed in ["", "-1", "x", "4294967295", "4294967296", "0x"] {
            assert!(project_id(typed).is_err(), "{typed}");
        }
    }
}
