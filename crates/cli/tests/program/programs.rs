//! `zfs program`: channel programs from the command line.

use std::process::Output;

use crate::common::disks::Disks;

const DONE: &str = "Channel program fully executed and";

/// Standard output, standard error and the status.
fn parts(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

#[test]
fn what_a_program_returns_is_shown_as_text_or_json() {
    let disks = Disks::new(&[128]);
    disks.cenote("zpool create tank a", &[]);
    let run = |words: &str, script: &[u8]| parts(&disks.run_with(&format!("zfs program {words}"), script));
    let script = b"args = ... return {args.argv[1], 2^10, [true] = {}, last = nil}";
    let (shown, errors, status) = run("tank - one", script);
    assert_eq!((errors.as_str(), status), ("", Some(0)));
    assert_eq!(
        shown,
        format!("{DONE} produced output:\n    return:\n        1: 'one'\n        2: 1024\n        true:\n")
    );
    let (shown, _, status) = run("-nj tank - one", script);
    let json: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let expected = serde_json::json!({"return": {"1": "one", "2": 1024, "true": {}}});
    assert_eq!((json, status), (expected, Some(0)));
    assert_eq!(run("tank -", b"").0, format!("{DONE} did not produce output.\n"));
    let latin = run("tank -", b"-- \xf6\nreturn {#'\xe4', ('\xe4'):byte()}");
    assert_eq!(latin.0, format!("{DONE} produced output:\n    return:\n        1: 1\n        2: 228\n"));
}

#[test]
fn programs_that_fail_and_limits_that_cannot_be_have_status_1() {
    let disks = Disks::new(&[128]);
    disks.cenote("zpool create tank a", &[]);
    for (words, script, expected) in [
        (
            "tank -",
            "error('why')",
            "execution failed:\n[string \"channel program\"]:1: why\nstack traceback:\n",
        ),
        ("-n tank -", "zfs.sync.snapshot('tank@s')", "requires passing sync=TRUE"),
        ("-t 1000 tank -", "while true do end", ":1: in main chunk\n1100 Lua instructions\n"),
        (
            "-m 100000 tank -",
            "a = {} while true do a[#a + 1] = #a .. '' end",
            "failed:\nMemory limit exhausted.\n",
        ),
        ("-m 200000000 tank -", "", "failed:\nInvalid instruction or memory limit.\n"),
        ("-t 0 tank -", "", "failed:\nInvalid instruction or memory limit.\n"),
        ("-t 100000001 tank -", "", "failed:\nInvalid instruction or memory limit.\n"),
        ("-m 9223372036854775808 tank -", "", "failed:\nReturn value too large.\n"),
        ("tank /nonexistent", "", "cannot open '/nonexistent': No such file or directory"),
    ] {
        let (shown, errors, status) =
            parts(&disks.run_with(&format!("zfs program {words}"), script.as_bytes()));
        assert!(errors.contains(expected), "{words}: {errors}");
        assert_eq!((shown.as_str(), status), ("", Some(1)), "{words}");
    }
    let (_, errors, _) = parts(&disks.run_with("zfs program tank -", b"return [[\xe4]]"));
    assert!(errors.contains("outside quotes, a script is UTF-8 text"), "{errors}");
    let (_, errors, status) = parts(&disks.run_with("zfs program -t ten tank -", b""));
    assert!(errors.contains("expected integer"), "{errors}");
    assert_eq!(status, Some(2));
}
