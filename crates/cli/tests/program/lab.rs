//! `cenote lab`: requests that can't work are refused before anything is written, and reports state how the
//! results were measured.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

/// Runs `cenote lab WORDS` in a folder.
fn lab(folder: &Path, words: &str) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_cenote"));
    program.arg("lab").args(words.split_whitespace()).current_dir(folder).output().unwrap()
}

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// A folder that contains the target and the results.
fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("place")).unwrap();
    dir
}

#[test]
fn what_cannot_work_is_refused_before_anything_is_written() {
    let dir = place();
    fs::write(dir.path().join("job.fio"), "[a]\nrw=randread\nsize=1m\n").unwrap();
    let options = [
        ("--seconds 0", 2, "at least 1"),
        ("--repeats 0", 2, "at least 1"),
        ("--size 1000000T", 1, "nothing was written"),
        ("--size 100", 2, "--size"),
    ];
    let mut commands = Vec::new();
    for suite in ["pools", "vm", "depth"] {
        commands.extend(
            options.map(|(option, status, words)| (format!("run {suite} {option} place"), status, words)),
        );
    }
    commands.push(("run bonnie --size 1000000T place".into(), 1, "nothing was written"));
    commands.push(("run scan --files 0 place".into(), 2, "--files"));
    commands.push(("run metadata --size 1G place".into(), 2, "does not use"));
    commands.push(("job --repeats 0 job.fio place".into(), 2, "--repeats"));
    for (command, status, words) in commands {
        let output = lab(dir.path(), &command);
        let (_, errors) = said(&output);
        assert_eq!(output.status.code(), Some(status), "{command}: {errors}");
        assert!(errors.contains(words), "{command}: {errors}");
        let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["job.fio", "place"], "{command}: no result was begun");
        assert_eq!(fs::read_dir(dir.path().join("place")).unwrap().count(), 0, "{command}");
    }
}

#[test]
fn recovery_without_openzfs_is_refused_at_once_and_a_link_to_cenote_is_not_openzfs() {
    let dir = place();
    let bin = dir.path().join("bin");
    fs::create_dir(&bin).unwrap();
    for name in ["zpool", "zfs"] {
        symlink(env!("CARGO_BIN_EXE_cenote"), bin.join(name)).unwrap();
    }
    if Path::new("/sys/module/zfs").exists() {
        eprintln!("skipped: the module of OpenZFS is loaded here");
        return;
    }
    let mut program = Command::new(env!("CARGO_BIN_EXE_cenote"));
    program.args(["lab", "run", "recovery", "--quick", "place"]).current_dir(dir.path()).env("PATH", &bin);
    let output = program.output().unwrap();
    let (_, errors) = said(&output);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("recovery creates pools with OpenZFS's own programs"), "{errors}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "no result was started");
}

#[test]
fn recovery_of_cenotes_own_pools_repairs_all_that_was_injured_and_leaves_nothing() {
    if !crate::common::can_mount() {
        return;
    }
    let dir = place();
    let output = lab(dir.path(), "run recovery --engine cenote --quick --size 64M --repeats 1 place");
    let (text, errors) = said(&output);
    assert!(output.status.success(), "{text}{errors}");
    let place = fs::canonicalize(dir.path().join("place")).unwrap();
    for test in ["mirror-50", "raidz1-50"] {
        let figure = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(test) && line.contains(name));
            let line = line.unwrap_or_else(|| panic!("no {name} of {test}: {text}"));
            line.split_whitespace().rev().take(2).collect::<Vec<_>>().into_iter().rev().collect::<String>()
        };
        for name in ["Zeros scrub time", "Wiped resilver time", "Copy time", "Well evacuate time"] {
            assert_ne!(figure(name), "0ns");
        }
        for name in ["Lost resilver may fail", "Well evacuate may fail", "Failing evacuate read"] {
            assert!(!figure(name).is_empty(), "{name}");
        }
        assert_ne!(figure("Zeros scrub repaired"), "0B");
        assert_eq!(figure("Scattered scrub injured"), "500KiB");
    }
    assert!(text.contains("mirror-50") && text.contains("Wiped rebuild time"), "{text}");
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0, "the test's files are gone");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(&*place.to_string_lossy()), "{mounts}");
}

#[test]
fn a_study_of_two_folders_answers_first_and_claims_nothing_that_it_cannot_know() {
    let dir = place();
    fs::create_dir(dir.path().join("other")).unwrap();
    let run = |words: &str| {
        let output = lab(dir.path(), words);
        let (text, errors) = said(&output);
        assert!(output.status.success(), "{words}: {text}{errors}");
        (text, errors)
    };
    let small = "--quick --size 4M --seconds 1 --repeats 1";
    let (text, errors) = run(&format!("run vm {small} a=place b=other"));
    assert!(errors.contains("a and b are on the same file system"), "{errors}");
    let summary = &text.split("SUMMARY").nth(1).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    let answer = summary.find("No target is clearly best").expect(summary);
    for later in [
        "a and b are on the same file system",
        "quick run",
        "comparisons of headline figures were made",
        "were measured with",
    ] {
        assert!(summary.find(later).is_some_and(|at| at > answer), "{later}: {summary}");
    }
    assert!(!text.contains("is best"), "one run each names no winner: {text}");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let machine = ["The machine was not quiet", "The machine was quiet", "Whether the machine was quiet"];
    assert!(machine.iter().any(|words| text.contains(words)), "{text}");
    let result = result_of(dir.path(), "vm-");
    assert!(!dir.path().join(&result).join(".reserve").exists(), "the reserve goes with a finished run");

    // The same test with another size, then an unrelated test.
    run(&format!("run vm {} --out again a=place b=other", small.replace("4M", "8M")));
    let again = result_of(&dir.path().join("again"), "vm-");
    let (compared, _) = run(&format!("compare {result} again/{again}"));
    assert!(
        compared.contains("different options") && compared.contains("data set 4.00 MiB against 8.00 MiB"),
        "{compared}"
    );
    let json = lab(dir.path(), &format!("--json compare {result} again/{again}"));
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["findings"][0]["id"], "compare.options");
    assert!(json["comparisons"].as_array().unwrap().len() > 2);
    run("run scan --files 50 --repeats 1 --out scan a=place");
    let scan = result_of(&dir.path().join("scan"), "scan-");
    let output = lab(dir.path(), &format!("compare {result} scan/{scan}"));
    let (text, errors) = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(errors.contains("no test in common"), "{errors}");
}

/// The only result in a folder whose name has this prefix.
fn result_of(folder: &Path, prefix: &str) -> String {
    let names =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let mut found: Vec<String> = names.filter(|name| name.starts_with(prefix)).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn policies_are_compared_on_metadata_in_the_simulator() {
    let dir = place();
    let out = dir.path().join("arc");
    let words = "--json arc --inodes 200 --cache-size 1M --test 6 --policy zol-0.6.2,zol-0.6.3 --out arc";
    let run = || {
        // The folder is missing the first time.
        let _ = fs::remove_dir_all(&out);
        let (text, errors) = said(&lab(dir.path(), words));
        serde_json::from_str::<serde_json::Value>(&text).expect(&errors)
    };
    let shown = run();
    let runs = shown["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    for run in runs {
        assert!(run["inodes"].as_u64().unwrap() >= 200 && run["seconds"].as_f64().unwrap() > 0.0, "{run}");
    }
    // The same seed yields the same history.
    assert_eq!(run(), shown);
    let report = fs::read_to_string(out.join("report.md")).unwrap();
    assert!(report.contains("Test 6: Copying a dataset of many empty files as rsync does"), "{report}");
    assert!(report.contains("**zol-0.6.3**"), "{report}");
    let panels = fs::read_to_string(out.join("test6-zol-0.6.3.tsv")).unwrap();
    assert!(panels.lines().count() > 10 && panels.starts_with("seconds\tinodes\treads\t"), "{panels}");
}
