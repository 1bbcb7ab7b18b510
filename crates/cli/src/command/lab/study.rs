//! Common parts of the studies: the folder for the report, the progress line, Ctrl-C, the output.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cenote_shown::lab::study::{running, text};
use cenote_study::{Answer, Progress, Study};

use crate::message::say;
use crate::outcome::{CliError, Outcome};
use crate::session::{Progress as Line, Session, print, print_json, text_line, unless_interrupted};

/// Runs a study, and writes its report into the new folder `out`, if given.
pub async fn run<S: Study>(session: &Session, study: S, out: Option<PathBuf>) -> Result<Outcome, CliError> {
    let failed = |out: &Path| CliError::io(out.display().to_string());
    if let Some(out) = &out {
        std::fs::create_dir(out).map_err(failed(out))?;
    }
    let answer = unless_interrupted(answer(session, study), || "nothing was written".into()).await?;
    if let Some(out) = &out {
        write(&answer, out).map_err(failed(out))?;
    }
    match session.json() {
        // In the order of names, like other documents of the lab.
        true => {
            print_json(&serde_json::to_value(&answer).map_err(|error| CliError::io("JSON")(error.into()))?)?
        }
        false => print(text(&answer.report()))?,
    }
    Ok(Outcome::Done)
}

async fn answer<S: Study>(session: &Session, study: S) -> Result<S::Answer, CliError> {
    let (line, rt) = (text_line(), session.runtime());
    let start = rt.now();
    let answer = study.run(rt, &mut |progress| show(&line, rt.now() - start, progress)).await;
    let answer = answer.map_err(|error| CliError::Refused(error.to_string()))?;
    line.finish();
    Ok(answer)
}

/// Shows the progress of a study after `elapsed`.
fn show(line: &Line, elapsed: Duration, progress: Progress<'_>) {
    match progress {
        Progress::Running { run, runs, load, part } => {
            line.message(running(run, runs, load, part, elapsed));
        }
        Progress::Ended { load, result } => line.hide(|| say!("{load}: {result}")),
    }
}

/// Writes the report and its tables into a folder.
fn write(answer: &impl Answer, out: &Path) -> std::io::Result<()> {
    std::fs::write(out.join("report.md"), text(&answer.report()))?;
    answer.attachments().into_iter().try_for_each(|table| std::fs::write(out.join(table.name), table.text))
}
