//! Negotiation: client and server agree on an export and on the form of messages.
//!
//! Idea: negotiation is one loop over options, each answered by a function. TLS resets everything agreed, as
//! the protocol demands: [`Handshake::run`] then returns, and the caller wraps the stream.
//!
//! Source: `proto.md`, "Newstyle negotiation", "Option types".

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use cenote_disk::{Ended, Errno, Failure, Limits, Result, Stream};
use cenote_runtime::Runtime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::export::{BASE_ALLOCATION, Export, Exports};
use crate::transmission::MAX_PAYLOAD_BYTES;
use crate::wire::{
    FIXED_NEWSTYLE, NBD_MAGIC, NO_ZEROES, OPTION_MAGIC, OPTION_REPLY_MAGIC, ReplyForm, can, info, option,
    reply,
};

/// Largest option data: a name and queries.
const OPTION_BYTES_MAX: u32 = 64 << 10;
/// Longest name the protocol allows.
const NAME_BYTES_MAX: usize = 4096;
const CONTEXTS_MAX: usize = 16;
/// Options per negotiation. No honest client needs this many.
const OPTIONS_MAX: usize = 1_000;

/// TLS policy of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// TLS, required before anything else.
    Plain,
    /// TLS, without which nothing is said.
    OnlyTls,
    /// The stream is already TLS.
    WithinTls,
}

/// Result of a negotiation.
pub struct Chosen {
    /// The export.
    pub export: Arc<dyn Export>,
    /// Its name.
    pub name: String,
    /// Form of replies.
    pub form: ReplyForm,
    /// Contexts for block status, numbered from 0.
    pub contexts: Vec<String>,
}

/// End of a negotiation.
pub enum Outcome {
    /// An export was chosen.
    Chosen(Chosen),
    /// The client starts TLS. Negotiation begins anew.
    StartTls,
    /// The client left.
    Left,
}

/// A negotiation in progress.
pub struct Handshake<'a> {
    stream: &'a mut dyn Stream,
    exports: &'a dyn Exports,
    offer: Offer,
    is_fixed: bool,
    has_zeroes: bool,
    form: ReplyForm,
    /// Chosen contexts and their export.
    contexts: Option<(String, Vec<String>)>,
}

impl<'a> Handshake<'a> {
    /// For a client that has just connected or just started TLS.
    pub fn new(stream: &'a mut dyn Stream, exports: &'a dyn Exports, offer: Offer) -> Handshake<'a> {
        let (form, contexts) = Default::default();
        Handshake { stream, exports, offer, is_fixed: true, has_zeroes: true, form, contexts }
    }

    /// Negotiates to the end, within one time limit.
    ///
    /// # Errors
    /// Protocol error, timeout, or the connection is lost.
    pub async fn run(mut self, runtime: &Runtime, limits: &Limits) -> Result<Outcome> {
        let haggle = async {
            if self.offer != Offer::WithinTls {
                self.greet().await?;
            }
            for _ in 0..OPTIONS_MAX {
                if let Some(outcome) = self.step().await? {
                    return Ok(outcome);
                }
            }
            Err(Ended::Protocol("it chooses no export"))
        };
        runtime.timeout(limits.patience, haggle).await.unwrap_or(Err(Ended::Stalled))
    }

    async fn greet(&mut self) -> Result<()> {
        let mut greeting = BytesMut::with_capacity(18);
        greeting.put_u64(NBD_MAGIC);
        greeting.put_u64(OPTION_MAGIC);
        greeting.put_u16(FIXED_NEWSTYLE | NO_ZEROES);
        self.stream.write_all(&greeting).await?;
        let flags = self.stream.read_u32().await?;
        if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
            return Err(Ended::Protocol("it sets flags that were not offered"));
        }
        self.is_fixed = flags & u32::from(FIXED_NEWSTYLE) != 0;
        self.has_zeroes = flags & u32::from(NO_ZEROES) == 0;
        Ok(())
    }

    /// Answers one option. Returns the outcome if it was the last.
    async fn step(&mut self) -> Result<Option<Outcome>> {
        if self.stream.read_u64().await? != OPTION_MAGIC {
            return Err(Ended::Protocol("an option has the wrong magic"));
        }
        let (option, len) = (self.stream.read_u32().await?, self.stream.read_u32().await?);
        if len > OPTION_BYTES_MAX {
            self.skip(len).await?;
            self.say(option, reply::ERR_TOO_BIG, b"the option is too long").await?;
            return Ok(None);
        }
        let mut data = vec![0; len as usize];
        self.stream.read_exact(&mut data).await?;
        let needs_tls = self.offer == Offer::OnlyTls;
        match option {
            option::ABORT => {
                // The client may have disconnected.
                self.say(option, reply::ACK, b"").await.ok();
                return Ok(Some(Outcome::Left));
            }
            option::EXPORT_NAME => return self.export_name(&data, needs_tls).await.map(Some),
            option::STARTTLS if needs_tls && data.is_empty() => {
                self.say(option, reply::ACK, b"").await?;
                return Ok(Some(Outcome::StartTls));
            }
            option::STARTTLS if !data.is_empty() => {
                self.say(option, reply::ERR_INVALID, b"STARTTLS has no data").await?;
            }
            option::STARTTLS => {
                let (kind, why) = match self.offer {
                    Offer::WithinTls => (reply::ERR_INVALID, "TLS is in use already"),
                    _ => (reply::ERR_POLICY, "this server was started without certificates"),
                };
                self.say(option, kind, why.as_bytes()).await?;
            }
            _ if needs_tls => {
                self.say(option, reply::ERR_TLS_REQD, b"this server talks within TLS only").await?;
            }
            option::LIST => self.list(&data).await?,
            option::INFO | option::GO => return self.info(option, &data).await,
            option::STRUCTURED_REPLY => {
                // Extended headers include structured replies and stay in force.
                if self.form == ReplyForm::Extended {
                    self.say(option, reply::ERR_EXT_HEADER_REQD, b"extended headers are in force").await?;
                } else {
                    self.agree(option, &data, ReplyForm::Chunks).await?;
                }
            }
            option::EXTENDED_HEADERS => self.agree(option, &data, ReplyForm::Extended).await?,
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.meta_context(option, &data).await?,
            _ => self.say(option, reply::ERR_UNSUP, b"this server does not know the option").await?,
        }
        Ok(None)
    }

    async fn agree(&mut self, option: u32, data: &[u8], form: ReplyForm) -> Result<()> {
        if !data.is_empty() {
            return self.say(option, reply::ERR_INVALID, b"this option has no data").await;
        }
        self.form = form;
        self.say(option, reply::ACK, b"").await
    }

    /// The oldest form of request: errors cannot be reported, so they end the connection.
    async fn export_name(&mut self, data: &[u8], needs_tls: bool) -> Result<Outcome> {
        if needs_tls {
            return Err(Ended::Protocol("it asks for an export without TLS"));
        }
        let name = name(data).ok_or(Ended::Protocol("its name of an export is not one"))?;
        let Ok(export) = self.exports.open(name).await else {
            return Err(Ended::Protocol("it asks for an export that it can't have"));
        };
        let mut head = BytesMut::with_capacity(134);
        head.put_u64(export.size_bytes());
        head.put_u16(abilities(&*export, self.form));
        if self.has_zeroes {
            head.put_bytes(0, 124);
        }
        self.stream.write_all(&head).await?;
        Ok(Outcome::Chosen(self.chosen(export, name)))
    }

    fn chosen(&mut self, export: Arc<dyn Export>, name: &str) -> Chosen {
        let contexts = self.contexts.take().filter(|(of, _)| of == name);
        let contexts = contexts.map(|(_, contexts)| contexts).unwrap_or_default();
        Chosen { export, name: name.into(), form: self.form, contexts }
    }

    async fn list(&mut self, data: &[u8]) -> Result<()> {
        if !data.is_empty() {
            return self.say(option::LIST, reply::ERR_INVALID, b"LIST has no data").await;
        }
        let mut all = BytesMut::new();
        for export in self.exports.list().await {
            let mut entry = BytesMut::with_capacity(4 + export.name.len() + export.description.len());
            entry.put_u32(export.name.len() as u32);
            entry.put_slice(export.name.as_bytes());
            entry.put_slice(export.description.as_bytes());
            put_reply(&mut all, option::LIST, reply::SERVER, &entry);
        }
        put_reply(&mut all, option::LIST, reply::ACK, b"");
        Ok(self.stream.write_all(&all).await?)
    }

    async fn info(&mut self, option: u32, data: &[u8]) -> Result<Option<Outcome>> {
        let Some((name, wanted)) = name_and_wishes(data) else {
            self.say(option, reply::ERR_INVALID, b"the request for information is malformed").await?;
            return Ok(None);
        };
        let export = match self.exports.open(name).await {
            Ok(export) => export,
            Err(failure) => {
                self.refuse(option, &failure).await?;
                return Ok(None);
            }
        };
        let mut all = BytesMut::new();
        let mut put = |kind: u16, rest: &[u8]| {
            let mut piece = BytesMut::with_capacity(2 + rest.len());
            piece.put_u16(kind);
            piece.put_slice(rest);
            put_reply(&mut all, option, reply::INFO, &piece);
        };
        let mut about = BytesMut::with_capacity(10);
        about.put_u64(export.size_bytes());
        about.put_u16(abilities(&*export, self.form));
        put(info::EXPORT, &about);
        if wanted.contains(&info::NAME) {
            put(info::NAME, name.as_bytes());
        }
        if wanted.contains(&info::DESCRIPTION) {
            put(info::DESCRIPTION, export.description().as_bytes());
        }
        let mut sizes = BytesMut::with_capacity(12);
        let least = export.least_bytes();
        sizes.put_u32(least);
        sizes.put_u32(export.block_bytes().max(least).max(512));
        sizes.put_u32(MAX_PAYLOAD_BYTES);
        put(info::BLOCK_SIZE, &sizes);
        put_reply(&mut all, option, reply::ACK, b"");
        self.stream.write_all(&all).await?;
        Ok((option == option::GO).then(|| Outcome::Chosen(self.chosen(export, name))))
    }

    async fn meta_context(&mut self, option: u32, data: &[u8]) -> Result<()> {
        let sets = option == option::SET_META_CONTEXT;
        if sets {
            self.contexts = None;
        }
        if sets && self.form == ReplyForm::Simple {
            let why = b"contexts need structured replies or extended headers";
            return self.say(option, reply::ERR_INVALID, why).await;
        }
        let Some((name, queries)) = name_and_queries(data) else {
            return self.say(option, reply::ERR_INVALID, b"the list of contexts is malformed").await;
        };
        let export = match self.exports.open(name).await {
            Ok(export) => export,
            Err(failure) => return self.refuse(option, &failure).await,
        };
        let mut found: Vec<String> = Vec::new();
        // A list without queries means the contexts of every export.
        let queries = if queries.is_empty() && !sets { &[BASE_ALLOCATION][..] } else { &queries };
        for query in queries {
            let mut more = export.contexts(query).await;
            if *query == BASE_ALLOCATION || (*query == "base:" && !sets) {
                more.push(BASE_ALLOCATION.into());
            }
            for context in more {
                if !found.contains(&context) && (found.len() < CONTEXTS_MAX || !sets) {
                    found.push(context);
                }
            }
        }
        let mut replies = BytesMut::new();
        for (id, context) in found.iter().enumerate() {
            let mut piece = BytesMut::with_capacity(4 + context.len());
            piece.put_u32(if sets { id as u32 } else { 0 });
            piece.put_slice(context.as_bytes());
            put_reply(&mut replies, option, reply::META_CONTEXT, &piece);
        }
        put_reply(&mut replies, option, reply::ACK, b"");
        self.stream.write_all(&replies).await?;
        if sets {
            self.contexts = Some((name.into(), found));
        }
        Ok(())
    }

    async fn refuse(&mut self, option: u32, failure: &Failure) -> Result<()> {
        let kind = if failure.errno == Errno::Perm { reply::ERR_POLICY } else { reply::ERR_UNKNOWN };
        self.say(option, kind, failure.message.as_bytes()).await
    }

    async fn say(&mut self, option: u32, kind: u32, data: &[u8]) -> Result<()> {
        if !self.is_fixed {
            return Err(Ended::Protocol("it uses options that it says it does not know"));
        }
        let mut message = BytesMut::with_capacity(20 + data.len());
        put_reply(&mut message, option, kind, data);
        Ok(self.stream.write_all(&message).await?)
    }

    async fn skip(&mut self, len: u32) -> Result<()> {
        let mut rest = (&mut *self.stream).take(len.into());
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
        Ok(())
    }
}

fn put_reply(out: &mut BytesMut, option: u32, kind: u32, data: &[u8]) {
    out.put_u64(OPTION_REPLY_MAGIC);
    out.put_u32(option);
    out.put_u32(kind);
    out.put_u32(data.len() as u32);
    out.put_slice(data);
}

fn abilities(export: &dyn Export, form: ReplyForm) -> u16 {
    let changes = match export.is_read_only() {
        true => can::READ_ONLY,
        false if export.has_fast_zero() => can::FUA | can::TRIM | can::WRITE_ZEROES | can::FAST_ZERO,
        false => can::FUA | can::TRIM | can::WRITE_ZEROES,
    };
    let chunks = if form == ReplyForm::Simple { 0 } else { can::DF };
    can::HAS_FLAGS | can::FLUSH | can::MULTI_CONN | can::CACHE | changes | chunks
}

fn name(data: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(data).ok()?;
    (name.len() <= NAME_BYTES_MAX).then_some(name)
}

fn word(data: &mut &[u8]) -> Option<u32> {
    let (word, rest) = data.split_first_chunk::<4>()?;
    *data = rest;
    Some(u32::from_be_bytes(*word))
}

fn text<'a>(data: &mut &'a [u8]) -> Option<&'a str> {
    let len = word(data)? as usize;
    let (text, rest) = data.split_at_checked(len)?;
    *data = rest;
    name(text)
}

/// Parses the data of INFO and GO: a name and requested information types.
fn name_and_wishes(mut data: &[u8]) -> Option<(&str, Vec<u16>)> {
    let name = text(&mut data)?;
    let (count, wishes) = data.split_first_chunk::<2>()?;
    let wishes: Vec<u16> = wishes.as_chunks::<2>().0.iter().map(|wish| u16::from_be_bytes(*wish)).collect();
    let is_whole =
        wishes.len() == usize::from(u16::from_be_bytes(*count)) && (data.len() - 2).is_multiple_of(2);
    is_whole.then_some((name, wishes))
}

/// Parses the data of LIST_META_CONTEXT and SET_META_CONTEXT: a name and queries.
fn name_and_queries(mut data: &[u8]) -> Option<(&str, Vec<&str>)> {
    let name = text(&mut data)?;
    let count = word(&mut data)?;
    // Each query takes at least four bytes, so the data bounds the count.
    let queries: Option<Vec<&str>> = (0..count).map(|_| text(&mut data)).collect();
    queries.filter(|_| data.is_empty()).map(|queries| (name, queries))
}
