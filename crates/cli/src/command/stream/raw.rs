//! `cenote stream raw`: a volume's stream onto an image.

use std::fs::File;
use std::path::PathBuf;

use cenote_control::stream::raw::Raw as Request;
use clap::Args;

use super::source;
use crate::outcome::{CliError, Outcome};
use crate::session::{Session, print, print_json};

/// `cenote stream raw`
#[derive(Debug, Args)]
#[command(
    after_help = "A full stream replaces the image, an increment changes it. Prints the guid of the last \
        snapshot: give it with -g to apply the next increment to this image only.\n\n\
        Examples:\n  \
        cenote zfs send -c tank/vm@1 | cenote stream raw /dev/sdd\n  \
        cenote zfs send -c -I @1 tank/vm@3 | cenote stream raw -g 16731506615198184313 /dev/sdd"
)]
pub struct Raw {
    /// Print a sentence, not the guid alone
    #[arg(short = 'v')]
    pub verbose: bool,
    /// Accepted for scripts: memory is bounded anyway
    #[arg(short = 'b', value_name = "BUFFERS", hide = true)]
    pub buffers: Option<u64>,
    /// Refuse a stream that does not begin at this snapshot
    #[arg(short = 'g', value_name = "GUID")]
    pub guid: Option<u64>,
    /// The image file, made if it is missing, or a block device
    pub image: PathBuf,
    /// The stream [default: standard input]
    pub file: Option<PathBuf>,
}

impl Raw {
    /// Runs the command.
    pub async fn run(self, session: &Session) -> Result<Outcome, CliError> {
        let (source, mut files) = source(self.file.as_deref())?;
        let shown = self.image.display().to_string();
        let image = File::options().write(true).create(true).truncate(false).open(self.image);
        files.push(image.map_err(CliError::io(shown.clone()))?.into());
        let image_file = files.len() - 1;
        let request = Request { source, image: shown, image_file, from_guid: self.guid };
        let answered = session.control().run_with_files(request, files).await?;
        let guid = answered.answer.guid;
        match (session.json(), self.verbose) {
            (true, _) => print_json(&answered.answer)?,
            (_, true) => print(format!("now at guid {guid}\n"))?,
            _ => print(format!("{guid}\n"))?,
        }
        Ok(answered.outcome)
    }
}
