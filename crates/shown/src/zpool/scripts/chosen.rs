//! Scripts for devices: `zpool status -c`, `zpool iostat -v -c`.
//!
//! Idea: the user's program runs them, with its user's rights and a few variables; the daemon only names the
//! devices. Scripts come from ~/.zpool.d and /etc/zfs/zpool.d, or from `ZPOOL_SCRIPTS_PATH` alone. Root
//! runs them only with `ZPOOL_SCRIPTS_AS_ROOT`; `ZPOOL_SCRIPTS_ENABLED=0` forbids them to all.
//!
//! Source: OpenZFS `zpool_iter.c` (`vdev_run_cmd`, `zpool_get_cmd_search_path`), `zpool_main.c`
//! (`print_zpool_script_list`), `libzfs_util.c` (`zpool_vdev_script_alloc_env`, `libzfs_envvar_is_set`).

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use cenote_control::answers::PoolHealth;
use cenote_format::units::Guid;
use parking_lot::Mutex;
use rustix::fs::{Access, access};

use super::{Output, Scripts};
use crate::zpool::status::devices;

/// `ZPOOL_SCRIPTS_DIR`.
const SYSTEM_FOLDER: &str = "/etc/zfs/zpool.d";
/// The search path of scripts.
const PATH: &str = "/bin:/sbin:/usr/bin:/usr/sbin";

const DEVICES_PER_PROCESSOR: usize = 5;

/// Scripts chosen by `-c`.
#[derive(Clone)]
pub struct Chosen {
    files: Arc<[PathBuf]>,
}

struct Device {
    pool: String,
    guid: Guid,
    path: String,
}

impl Chosen {
    /// The scripts with these names, comma-separated; names that no folder has are left out.
    ///
    /// # Errors
    /// The user may run none.
    pub fn of(names: &str) -> Result<Chosen, String> {
        if std::env::var_os("ZPOOL_SCRIPTS_ENABLED").is_some() && !is_set("ZPOOL_SCRIPTS_ENABLED") {
            return Err("Can't run -c, disabled by ZPOOL_SCRIPTS_ENABLED.".into());
        }
        if !may_run() {
            return Err("Can't run -c with root privileges unless ZPOOL_SCRIPTS_AS_ROOT is set.".into());
        }
        let folders = folders();
        // A name with a slash would lead out of the folders.
        let names = names.split(',').filter(|name| !name.is_empty() && !name.contains('/'));
        let file = |name: &str| {
            let mut places = folders.iter().map(|folder| folder.join(name));
            places.find(|place| place.is_file() && access(place, Access::EXEC_OK).is_ok())
        };
        Ok(Chosen { files: names.filter_map(file).collect() })
    }

    /// A function that runs them for each device of these pools, several devices at once. It blocks.
    pub fn runs<'p>(
        &self,
        pools: impl Iterator<Item = (&'p str, &'p PoolHealth)>,
    ) -> impl FnOnce() -> Scripts + Send + 'static {
        let mut all: Vec<Device> = Vec::new();
        for (pool, health) in pools {
            for (guid, path) in devices(health) {
                // A spare in use is listed twice.
                if !all.iter().any(|one| one.guid == guid && one.pool == pool) {
                    all.push(Device { pool: pool.into(), guid, path: path.into() });
                }
            }
        }
        let files = self.files.clone();
        move || Scripts::new(run_all(&files, &all))
    }
}

/// Runs scripts for all devices, several devices at once; each waits for its own scripts in turn.
fn run_all(files: &[PathBuf], devices: &[Device]) -> Vec<(Guid, Output)> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from) * DEVICES_PER_PROCESSOR;
    let (next, ran) = (Mutex::new(0..devices.len()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..workers.min(devices.len()) {
            scope.spawn(|| {
                loop {
                    let at = next.lock().next();
                    let Some(at) = at else { return };
                    let mut output = Output::default();
                    let lines = files.iter().filter_map(|file| run(file, &devices[at]));
                    lines.for_each(|lines| output.add(&lines));
                    ran.lock().push((at, output));
                }
            });
        }
    });
    let mut ran = ran.into_inner();
    ran.sort_by_key(|(at, _)| *at);
    ran.into_iter().map(|(at, output)| (devices[at].guid, output)).collect()
}

/// A list of the scripts, each with the lines that it prints with -h.
pub fn list(subcommand: &str) -> String {
    let mut out = format!("Available 'zpool {subcommand} -c' commands:\n");
    for folder in folders() {
        let mut names: Vec<_> =
            fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        for name in names {
            let file = folder.join(&name);
            if !file.is_file() || access(&file, Access::EXEC_OK).is_err() {
                continue;
            }
            let name = name.to_string_lossy();
            let about = if may_run() { lines_of(Command::new(&file).arg("-h")) } else { None };
            match about {
                // Root does not even ask them for their purpose.
                None if !may_run() => _ = writeln!(out, "  {name}"),
                about => about
                    .iter()
                    .flat_map(|lines| lines.lines())
                    .filter(|line| !line.trim().is_empty())
                    .for_each(|line| _ = writeln!(out, "  {name:<14}  {line}")),
            }
        }
    }
    out
}

fn may_run() -> bool {
    let is_root = rustix::process::getuid().is_root() || rustix::process::geteuid().is_root();
    !is_root || is_set("ZPOOL_SCRIPTS_AS_ROOT")
}

/// Whether a variable is a number above zero, `yes` or `on`.
fn is_set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| means_yes(&value))
}

fn means_yes(value: &str) -> bool {
    let digits: String = value.trim_start().chars().take_while(char::is_ascii_digit).collect();
    let is_number = digits.bytes().any(|digit| digit != b'0');
    is_number || value.eq_ignore_ascii_case("yes") || value.eq_ignore_ascii_case("on")
}

fn folders() -> Vec<PathBuf> {
    if let Some(path) = std::env::var_os("ZPOOL_SCRIPTS_PATH") {
        return std::env::split_paths(&path).filter(|folder| !folder.as_os_str().is_empty()).collect();
    }
    let own = std::env::var_os("HOME").map(|home| Path::new(&home).join(".zpool.d"));
    own.into_iter().chain([SYSTEM_FOLDER.into()]).collect()
}

/// The output of a script for a device; none if it fails.
fn run(file: &Path, device: &Device) -> Option<String> {
    let disk = whole_disk(Path::new(&device.path));
    let enclosure = disk.as_deref().and_then(enclosure);
    let text = |path: Option<PathBuf>| path.unwrap_or_default();
    let mut command = Command::new(file);
    command.env_clear().env("PATH", PATH).env("POOL_NAME", &device.pool).env("VDEV_PATH", &device.path);
    command.env("VDEV_UPATH", text(disk)).env("VDEV_ENC_SYSFS_PATH", text(enclosure));
    lines_of(&mut command)
}

fn lines_of(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The disk below a device: without links, without its partition, below the device mapper.
fn whole_disk(path: &Path) -> Option<PathBuf> {
    let real = fs::canonicalize(path).ok()?;
    let block = Path::new("/sys/class/block").join(real.file_name()?);
    let name = |path: &Path| path.file_name().map(|name| Path::new("/dev").join(name));
    if let Some(below) = fs::read_dir(block.join("slaves")).ok().and_then(|mut all| all.next()?.ok()) {
        return whole_disk(&Path::new("/dev").join(below.file_name()));
    }
    match block.join("partition").exists() {
        true => fs::canonicalize(&block).ok()?.parent().and_then(name),
        false => Some(real),
    }
}

/// The slot of a disk in an enclosure, in sysfs.
fn enclosure(disk: &Path) -> Option<PathBuf> {
    let device = Path::new("/sys/class/block").join(disk.file_name()?).join("device");
    let mut links = fs::read_dir(device).ok()?.flatten();
    let slot = links.find(|link| link.file_name().to_string_lossy().starts_with("enclosure_device"))?;
    fs::canonicalize(slot.path()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_says_yes_as_openzfs_reads_it() {
        for yes in ["1", "2", " 7x", "yes", "YES", "on", "On"] {
            assert!(means_yes(yes), "{yes:?}");
        }
        for no in ["", "0", "00", "no", "off", "yes!", "true", "-"] {
            assert!(!means_yes(no), "{no:?}");
        }
    }
}
