//! Parses the words of `zfs send`.

use cenote_dataset::{Dataset, Mos};
use cenote_object::DatasetError;
use cenote_stream::send::{Extent, Replica, Resume, SendFlags, SendRequest, Since};

/// Reads options and the snapshot's name, separated by tabs.
pub(crate) async fn request(mos: &Mos, words: &str) -> Result<SendRequest, DatasetError> {
    let mut words = words.split('\t').filter(|word| !word.is_empty()).peekable();
    let mut flags = SendFlags::default();
    let (mut props, mut backup, mut holds, mut replicate, mut skip_missing) = Default::default();
    let (mut from, mut between) = (None, false);
    while let Some(options) = words.next_if(|word| word.starts_with('-')) {
        for option in options.chars().skip(1) {
            match option {
                'L' => flags.large_blocks = true,
                'e' => flags.embedded = true,
                'c' => flags.compressed = true,
                'w' => flags.raw = true,
                'p' => props = true,
                'b' => backup = true,
                'h' => holds = true,
                'R' => replicate = true,
                's' => skip_missing = true,
                'i' | 'I' => {
                    from = words.next();
                    between = option == 'I';
                }
                _ => panic!("no option -{option}"),
            }
        }
    }
    let dataset = mos.dataset(words.next().unwrap()).await?;
    let short = |name: &str| name.rsplit('@').next().unwrap().to_owned();
    let extent = if replicate {
        let (from, exclude) = (from.map(short), Vec::new());
        Extent::Replica(Replica { from, between, skip_missing, exclude })
    } else if between {
        let origin = dataset.dir().head().await?.origin().await?;
        let is_origin = origin.is_some_and(|origin| Some(origin.name()) == from);
        Extent::All(from.filter(|_| !is_origin).map(short))
    } else {
        Extent::One(since(mos, &dataset, from).await?)
    };
    let (resume, saved, redact) = (Resume::default(), false, None);
    let in_clear = false;
    Ok(SendRequest { dataset, extent, flags, props, backup, holds, in_clear, resume, saved, redact })
}

async fn since(mos: &Mos, dataset: &Dataset, from: Option<&str>) -> Result<Since, DatasetError> {
    let Some(from) = from else { return Ok(Since::Nothing) };
    let full =
        if from.starts_with(['@', '#']) { format!("{}{from}", dataset.dir().name()) } else { from.into() };
    let Some((marked, _)) = full.split_once('#') else {
        return mos.dataset(&full).await.map(Since::Snapshot);
    };
    let marks = mos.dataset(marked).await?.bookmarks().await?;
    Ok(Since::Bookmark(marks.into_iter().find(|mark| mark.name == full).unwrap()))
}
