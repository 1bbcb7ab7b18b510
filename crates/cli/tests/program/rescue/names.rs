//! Files that a destination can't store unchanged: long names, device nodes.

use super::*;

#[test]
fn files_with_long_names_get_shorter_ones_that_the_report_lists() {
    let pool = golden("names");
    let (to, output) = rescue(&pool.images(), "gnames", &["--dataset", "gnames/long"]);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{told}");
    let report = rows(to.path());
    let folder = to.path().join("gnames/long");
    let manifest = manifest(&pool, "gnames/long");
    let is_long = |path: &str| unescape(path).iter().any(|part| part.len() > 255);
    let long: Vec<_> = manifest.iter().filter(|(path, _)| is_long(path)).collect();
    assert!(long.len() > 2, "{long:?}");
    for (path, (kind, hash)) in long {
        let row = report.iter().find(|row| row[0] == "renamed" && row[2] == format!("/{path}"));
        let row = row.unwrap_or_else(|| panic!("{path} is not in the report: {report:?}"));
        let above = unescape(path).parent().unwrap().to_owned();
        let copy = folder.join(above).join(unescape(&row[5]));
        assert!(copy.symlink_metadata().is_ok(), "{}", copy.display());
        if kind == "f" {
            assert_eq!(&sha256(&copy), hash, "{path}");
        }
    }
    // A second run finds them under the same names.
    let path = to.path().to_str().unwrap();
    let again = cenote(&pool.images(), &["rescue", "--resume", "--dataset", "gnames/long", "gnames", path]);
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stdout));
    assert!(String::from_utf8_lossy(&again.stdout).contains("copied: 0 files"));
    assert_eq!(rows(to.path()).len(), report.len());
}

/// Without the privilege to create device nodes, as for everyone but root.
#[test]
fn device_nodes_that_only_root_can_make_are_noted_and_not_lost() {
    let pool = golden("single");
    let to = tempfile::tempdir().unwrap();
    let mut command = match rustix::process::geteuid().is_root() {
        true => {
            let mut command = Command::new("setpriv");
            command.args(["--bounding-set=-mknod", "--inh-caps=-mknod", env!("CARGO_BIN_EXE_cenote")]);
            command
        }
        false => Command::new(env!("CARGO_BIN_EXE_cenote")),
    };
    let Ok(output) = command.arg("-d").arg(pool.images()).args(["rescue", "single"]).arg(to.path()).output()
    else {
        eprintln!("skipped: no setpriv");
        return;
    };
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{told}{}", String::from_utf8_lossy(&output.stderr));
    let devices = ["single", "single/data"].into_iter().flat_map(|dataset| manifest(&pool, dataset));
    let devices = devices.filter(|(_, (kind, _))| kind == "b" || kind == "c").count();
    let report = rows(to.path());
    let noted = report.iter().filter(|row| row[0] == "not kept" && row[3].starts_with("device node")).count();
    assert!(devices > 0);
    assert!(noted >= devices, "{noted} of {devices}: {report:?}");
    assert!(!report.iter().any(|row| row[0] == "lost"), "{report:?}");
    assert!(told.contains("device nodes need root"), "{told}");
}
