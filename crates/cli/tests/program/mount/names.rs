//! Directories that change while listed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rustix::fs::{CWD, Dir, Mode, OFlags, RenameFlags, renameat_with};

use crate::mount::mounted::Pool;

/// The names of a directory, sorted.
pub fn list(dir: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(dir).unwrap().map(name).collect();
    names.sort();
    names
}

#[test]
fn a_name_that_is_there_all_the_time_is_listed_once() {
    let Some(pool) = Pool::new() else { return };
    let mounted = pool.mount("tank");
    let dir = mounted.path("dir");
    fs::create_dir(&dir).unwrap();
    let file = |kind: &str, n: usize| dir.join(format!("{kind}-{n:05}"));
    for n in 0..3000 {
        fs::write(file("stays", n), "").unwrap();
        fs::write(file("goes", n), "").unwrap();
    }
    let open = rustix::fs::open(&dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for (n, entry) in Dir::new(open.unwrap()).unwrap().enumerate() {
        *seen.entry(entry.unwrap().file_name().to_str().unwrap().into()).or_default() += 1;
        if n < 3000 {
            fs::remove_file(file("goes", n)).unwrap();
            fs::write(file("comes", n), "").unwrap();
        }
        if n % 100 == 0 {
            fs::rename(file("comes", n.min(2999)), file("came", n)).ok();
        }
    }
    let times = |name: String| seen.get(&name).copied().unwrap_or(0);
    for n in 0..3000 {
        assert_eq!(times(format!("stays-{n:05}")), 1, "stays-{n:05}");
        assert!(times(format!("goes-{n:05}")) <= 1 && times(format!("comes-{n:05}")) <= 1, "{n}");
    }
    let stays = list(&dir).iter().filter(|name| name.starts_with("stays")).count();
    assert_eq!(stays, 3000);
    fs::remove_dir_all(&dir).unwrap();
    mounted.unmount();
    pool.disks.zdb_is_content();
}

#[test]
fn names_move_as_renameat2_has_it() {
    let Some(pool) = Pool::new() else { return };
    let mounted = pool.mount("tank");
    let (a, b) = (mounted.path("a"), mounted.path("dir"));
    fs::write(&a, "file").unwrap();
    fs::create_dir(&b).unwrap();
    let rename = |flags| renameat_with(CWD, &a, CWD, &b, flags);
    assert_eq!(rename(RenameFlags::NOREPLACE), Err(rustix::io::Errno::EXIST));
    rename(RenameFlags::EXCHANGE).unwrap();
    assert!(a.is_dir() && fs::read_to_string(&b).unwrap() == "file");
    fs::rename(&a, mounted.path("moved")).unwrap();
    let whiteout = renameat_with(CWD, &b, CWD, mounted.path("c"), RenameFlags::WHITEOUT);
    whiteout.unwrap();
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let left = fs::symlink_metadata(&b).unwrap();
    assert!(left.file_type().is_char_device() && left.rdev() == 0);
    assert_eq!(list(&mounted.dir), ["c", "dir", "moved"]);
    // A directory can't go below itself.
    let below = fs::rename(mounted.path("moved"), mounted.path("moved/below")).unwrap_err();
    assert_eq!(below.raw_os_error(), Some(rustix::io::Errno::INVAL.raw_os_error()));
    mounted.unmount();
}

#[test]
fn a_long_name_is_refused_by_its_length() {
    let Some(pool) = Pool::new() else { return };
    let mounted = pool.mount("tank");
    let name = |len| mounted.path(&"n".repeat(len));
    fs::write(name(255), "x").unwrap();
    assert_eq!(fs::read_to_string(name(255)).unwrap(), "x");
    for refused in [fs::write(name(256), "x").map(|()| 0), fs::metadata(name(256)).map(|meta| meta.len())] {
        let errno = rustix::io::Errno::NAMETOOLONG.raw_os_error();
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(errno));
    }
    mounted.unmount();
}
