//! The streams of a request.
//!
//! Idea: a request becomes a [`Plan`]: at most one head, which describes properties and snapshots, and
//! streams in order. A single stream has a head only with `-p`, `-h` or `-b`; `-R` and `-I` always have one.
//! A plan that is [`Ready`] can be measured and sent; until then no data is read.
//!
//! ```text
//!   request --gather--> file systems, snapshots, properties --order--> streams
//!   plan    BEGIN list END   stream  stream ...   END
//! ```
//!
//! Source: OpenZFS `libzfs_sendrecv.c` (`zfs_send_one_cb_impl`, `zfs_send_cb_impl`, `send_prelim_records`).

use bytes::Bytes;
use cenote_boxed::boxed;
use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_format::stream::{Begin, DRR_BYTES, End, HeaderType, MAX_NVLIST_BYTES, Record, StreamFeatures};

use super::error::{Result, SendError};
use super::package::{Family, Order, gather};
use super::request::{Extent, Notice, SendRequest, Step};
use super::source::SendSource;
use super::{Progress, Stream};
use crate::StreamWriter;

/// Streams to make, in order.
#[derive(Debug)]
pub struct Plan {
    head: Option<(Begin, Bytes)>,
    steps: Vec<Step>,
    /// Notices for the user.
    pub notices: Vec<Notice>,
    request: SendRequest,
}

impl Plan {
    /// Plans a request.
    ///
    /// # Errors
    /// A requested snapshot is missing; damage.
    #[boxed]
    pub async fn of(request: SendRequest) -> Result<Plan> {
        let mut notices = Vec::new();
        let (head, steps) = match &request.extent {
            Extent::One(since) => {
                let has_head = request.props || request.holds || request.backup;
                let head = match has_head {
                    true => Some(head(&request, None, &gather(&request, &mut notices).await?)?),
                    false => None,
                };
                (head, vec![Step { dataset: request.dataset.clone(), since: since.clone() }])
            }
            Extent::All(from) => {
                let family = match request.props || request.holds {
                    true => gather(&request, &mut notices).await?,
                    false => Family::default(),
                };
                let head = head(&request, from.as_deref(), &family)?;
                (Some(head), Order::of_one(&request, from.as_deref(), &mut notices).await?)
            }
            Extent::Replica(replica) => {
                let family = gather(&request, &mut notices).await?;
                let head = head(&request, replica.from.as_deref(), &family)?;
                (Some(head), Order::of_family(&request, replica, family, &mut notices).await?)
            }
        };
        Ok(Plan { head, steps, notices, request })
    }

    /// The streams.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Reads the metadata of all streams. The result does not need the plan any more, nor the state of the
    /// pool that it was made from.
    ///
    /// # Errors
    /// A snapshot can't be read, or not be sent so.
    #[boxed]
    pub async fn ready(&self) -> Result<Ready> {
        let mut streams = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            streams.push(Stream::of(self.source(step).await?).await?);
        }
        Ok(Ready { head: self.head.clone(), streams })
    }

    async fn source(&self, step: &Step) -> Result<SendSource> {
        let source = SendSource::open(&step.dataset, &step.since, self.request.flags).await?;
        let source = source.resumed(self.request.resume).await?;
        let source = match &self.request.redact {
            Some(mark) => source.redacted(mark).await?,
            None => source,
        };
        if self.request.saved { source.saved().await } else { Ok(source) }
    }
}

/// Streams ready to send, in order.
#[derive(Debug)]
pub struct Ready {
    head: Option<(Begin, Bytes)>,
    streams: Vec<Stream>,
}

impl Ready {
    /// For callers that hold all snapshots: keeps nothing else of the pool.
    #[must_use]
    pub fn not_keeping(self) -> Ready {
        Ready { streams: self.streams.into_iter().map(Stream::not_keeping).collect(), ..self }
    }

    /// The streams, one for each step of the plan.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// Bytes besides those of the streams.
    pub fn head_bytes(&self) -> u64 {
        let records = 3 * DRR_BYTES as u64;
        self.head.as_ref().map_or(0, |(_, list)| records + list.len() as u64)
    }

    /// Writes everything.
    ///
    /// # Errors
    /// Those of [`Stream::send`].
    #[boxed]
    pub async fn send(&self, writer: &mut StreamWriter, progress: &Progress) -> Result<()> {
        if let Some((begin, list)) = &self.head {
            writer.write(&Record::Begin(begin.clone()), list).await?;
            writer.write(&Record::End(End::default()), &[]).await?;
        }
        for stream in &self.streams {
            stream.send(writer, progress).await?;
        }
        if self.head.is_some() {
            writer.write(&Record::End(End::default()), &[]).await?;
        }
        writer.flush().await?;
        Ok(())
    }
}

/// The head of a package; its list is empty if it describes no file system.
fn head(request: &SendRequest, from: Option<&str>, family: &Family) -> Result<(Begin, Bytes)> {
    let name = request.dataset.name();
    let snapshot = request.dataset.snapshot_name().unwrap_or_default();
    let mut list = Nvlist::new();
    let text = |text: &str| NvValue::String(text.as_bytes().to_vec());
    if let Some(from) = from {
        list.insert("fromsnap", text(from));
    }
    list.insert("tosnap", text(snapshot));
    if !matches!(request.extent, Extent::Replica(_)) {
        list.insert("not_recursive", NvValue::Boolean);
    }
    if request.flags.raw {
        list.insert("raw", NvValue::Boolean);
    }
    list.insert("fss", NvValue::Nvlist(family.list()));
    let list = if family.is_empty() { Vec::new() } else { list.encode() };
    if list.len() as u64 > MAX_NVLIST_BYTES {
        return Err(SendError::TooManyProperties { name: name.to_owned() });
    }
    let begin = Begin {
        payload_bytes: list.len() as u32,
        header: HeaderType::Compound,
        features: if request.holds { StreamFeatures::HOLDS } else { StreamFeatures::default() },
        to_name: name.into(),
        ..Begin::default()
    };
    Ok((begin, list.into()))
}
