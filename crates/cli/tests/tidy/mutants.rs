//! The known faults of `proof/mutants` are patches: the code that they change must still be there.

use std::fs;

use super::{assert_none, root};

const FOLDER: &str = "crates/world/mutants";

/// A file that a patch changes, and the lines that it expects there, by hunk.
type Expected = (String, Vec<String>);

fn expected(patch: &str) -> Vec<Expected> {
    let mut all = Vec::<Expected>::new();
    for line in patch.split_inclusive('\n') {
        if let Some(path) = line.strip_prefix("--- ") {
            // A new file is `/dev/null` here.
            all.push((path.trim_end().trim_start_matches("a/").into(), Vec::new()));
        } else if let Some((_, hunks)) = all.last_mut() {
            match line.split_at(1) {
                ("@", _) => hunks.push(String::new()),
                (" " | "-", rest) => hunks.iter_mut().last().into_iter().for_each(|hunk| hunk.push_str(rest)),
                _ => {}
            }
        }
    }
    all
}

#[test]
fn known_faults_can_still_be_put_into_the_code() {
    let mut patches: Vec<_> =
        fs::read_dir(root().join(FOLDER)).unwrap().map(|it| it.unwrap().path()).collect();
    patches.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
    assert!(patches.len() >= 70, "{FOLDER} is missing");
    let mut broken = Vec::new();
    for patch in patches {
        let name = patch.file_name().unwrap().to_string_lossy().into_owned();
        let files = expected(&fs::read_to_string(&patch).unwrap());
        assert!(files.iter().any(|(_, hunks)| !hunks.is_empty()), "{name} changes nothing");
        for (path, hunks) in files {
            let code = fs::read_to_string(root().join(&path)).unwrap_or_default();
            broken
                .extend(hunks.iter().filter(|hunk| !code.contains(*hunk)).map(|_| format!("{name}: {path}")));
        }
    }
    assert_none("mutants apply", broken);
}
