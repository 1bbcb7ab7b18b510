//! Negotiation, from the client's side: TLS, structured replies, the export with its sizes.
//!
//! ```text
//!   greeting --> [STARTTLS --> TLS] --> STRUCTURED_REPLY --> GO: EXPORT, BLOCK_SIZE --> transmission
//! ```
//!
//! Bounds: replies to options of 64 KiB, a few for each option. The caller limits the time.
//!
//! Source: `proto.md`, "Newstyle negotiation", "Option types", "Block size constraints".

use bytes::{BufMut, BytesMut};
use cenote_disk::Stream;
use cenote_nbd::wire::{
    FIXED_NEWSTYLE, NBD_MAGIC, NO_ZEROES, OPTION_MAGIC, OPTION_REPLY_MAGIC, ReplyForm, can, info, option,
    reply,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::dial::Dial;
use crate::error::{ServerError, cleaned};

/// Largest reply to an option.
const REPLY_BYTES_MAX: u32 = 64 << 10;
/// Most pieces of information about an export.
const PIECES_MAX: usize = 64;
/// Largest smallest block: a pool's blocks are multiples of at most this (`ASHIFT_MAX` would be 64 KiB).
const BLOCK_BYTES_MAX: u32 = 16 << 10;
/// Largest payload unless the server says otherwise, and in any case.
const PAYLOAD_BYTES: u32 = 32 << 20;
/// The preferred block of servers that name none.
const PREFERRED_BYTES: u32 = 4096;

type Result<T> = std::result::Result<T, ServerError>;

/// Everything agreed about an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// In whole blocks.
    pub(crate) size_bytes: u64,
    flags: u16,
    /// Requests are multiples of it.
    pub(crate) block_bytes: u32,
    pub(crate) preferred_bytes: u32,
    /// Most data of a request, in whole blocks.
    pub(crate) payload_bytes: u32,
    pub(crate) form: ReplyForm,
}

impl Agreed {
    /// Whether the export has all these abilities ([`can`]).
    pub(crate) fn can(&self, ability: u16) -> bool {
        self.flags & ability == ability
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        match () {
            () if self.can(can::READ_ONLY) => Err(ServerError::ReadOnly),
            () if !self.can(can::FLUSH) => Err(ServerError::NoFlush),
            () => Ok(()),
        }
    }

    /// Whether requests made after an earlier agreement may be sent after this one.
    pub(crate) fn check_as_before(&self, before: &Agreed) -> Result<()> {
        let lasting = can::FLUSH | can::FUA | can::TRIM | can::WRITE_ZEROES;
        let lacks = before.flags & lasting & !self.flags != 0
            || self.can(can::READ_ONLY) && !before.can(can::READ_ONLY);
        match () {
            () if self.size_bytes < before.size_bytes => {
                Err(ServerError::Shrunk { before: before.size_bytes, now: self.size_bytes })
            }
            () if lacks || self.payload_bytes < before.payload_bytes => Err(ServerError::Changed),
            () if !before.block_bytes.is_multiple_of(self.block_bytes) => Err(ServerError::Changed),
            () => Ok(()),
        }
    }
}

/// Negotiates an export on a new connection.
pub(super) async fn negotiate(
    mut stream: Box<dyn Stream>,
    export: &str,
    dial: &dyn Dial,
) -> Result<(Box<dyn Stream>, Agreed)> {
    greet(&mut *stream).await?;
    if dial.is_tls() {
        match ask(&mut *stream, option::STARTTLS, b"").await? {
            (reply::ACK, _) => {}
            (kind, why) if reply::is_error(kind) => return Err(ServerError::NoTls { why: cleaned(&why) }),
            _ => return Err(ServerError::Protocol("its answer to STARTTLS is none")),
        }
        stream = dial.secure(stream).await.map_err(|error| ServerError::Tls(error.into()))?;
    }
    let form = match ask(&mut *stream, option::STRUCTURED_REPLY, b"").await? {
        (reply::ACK, _) => ReplyForm::Chunks,
        (reply::ERR_TLS_REQD, _) => return Err(ServerError::OnlyTls),
        (kind, _) if reply::is_error(kind) => ReplyForm::Simple,
        _ => return Err(ServerError::Protocol("its answer to STRUCTURED_REPLY is none")),
    };
    let agreed = go(&mut *stream, export, form).await?;
    Ok((stream, agreed))
}

async fn greet(stream: &mut dyn Stream) -> Result<()> {
    if stream.read_u64().await? != NBD_MAGIC {
        return Err(ServerError::Protocol("it is no NBD server"));
    }
    if stream.read_u64().await? != OPTION_MAGIC {
        return Err(ServerError::Protocol("it negotiates in the old style"));
    }
    let flags = stream.read_u16().await?;
    if flags & FIXED_NEWSTYLE == 0 {
        return Err(ServerError::TooOld);
    }
    stream.write_u32(u32::from(flags & (FIXED_NEWSTYLE | NO_ZEROES))).await?;
    Ok(stream.flush().await?)
}

async fn go(stream: &mut dyn Stream, export: &str, form: ReplyForm) -> Result<Agreed> {
    let mut data = BytesMut::with_capacity(8 + export.len());
    data.put_u32(export.len() as u32);
    data.put_slice(export.as_bytes());
    data.put_u16(1);
    data.put_u16(info::BLOCK_SIZE);
    send(stream, option::GO, &data).await?;
    let (mut about, mut sizes) = (None, None);
    for _ in 0..PIECES_MAX {
        match receive(stream, option::GO).await? {
            (reply::INFO, data) => note(&data, &mut about, &mut sizes)?,
            (reply::ACK, _) => {
                let (size, flags) = about.ok_or(ServerError::Protocol("it does not describe the export"))?;
                return agreed(size, flags, sizes, form);
            }
            (reply::ERR_UNSUP, _) => return Err(ServerError::TooOld),
            (reply::ERR_TLS_REQD, _) => return Err(ServerError::OnlyTls),
            (kind, why) if reply::is_error(kind) => return Err(ServerError::Refused { why: cleaned(&why) }),
            _ => return Err(ServerError::Protocol("its answer to GO is none")),
        }
    }
    Err(ServerError::Protocol("it never ends to describe the export"))
}

/// Notes one piece of information; unknown ones are for others.
fn note(data: &[u8], about: &mut Option<(u64, u16)>, sizes: &mut Option<[u32; 3]>) -> Result<()> {
    let malformed = ServerError::Protocol("its description of the export is malformed");
    let (kind, rest) = data.split_first_chunk::<2>().ok_or(malformed.clone())?;
    match u16::from_be_bytes(*kind) {
        info::EXPORT => {
            let (size, flags) = rest.split_first_chunk::<8>().ok_or(malformed.clone())?;
            let flags: [u8; 2] = flags.try_into().map_err(|_| malformed)?;
            *about = Some((u64::from_be_bytes(*size), u16::from_be_bytes(flags)));
        }
        info::BLOCK_SIZE => match rest.as_chunks::<4>() {
            (&[least, preferred, most], &[]) => {
                *sizes = Some([least, preferred, most].map(u32::from_be_bytes))
            }
            _ => return Err(malformed),
        },
        _ => {}
    }
    Ok(())
}

/// Without sizes, servers must take any range (`proto.md`: blocks of 1 byte, preferably 4 KiB).
fn agreed(size: u64, flags: u16, sizes: Option<[u32; 3]>, form: ReplyForm) -> Result<Agreed> {
    let [least, preferred, most] = sizes.unwrap_or([1, PREFERRED_BYTES, PAYLOAD_BYTES]);
    if !least.is_power_of_two() || !preferred.is_power_of_two() || preferred < least || most < least {
        return Err(ServerError::Protocol("its block sizes are no powers of two, or in the wrong order"));
    }
    if least > BLOCK_BYTES_MAX {
        return Err(ServerError::Blocks(least));
    }
    if flags & can::HAS_FLAGS == 0 {
        return Err(ServerError::Protocol("it does not say what the export can do"));
    }
    let payload_bytes = most.min(PAYLOAD_BYTES) / least * least;
    let size_bytes = size / u64::from(least) * u64::from(least);
    Ok(Agreed { size_bytes, flags, block_bytes: least, preferred_bytes: preferred, payload_bytes, form })
}

/// An option with a single reply.
async fn ask(stream: &mut dyn Stream, option: u32, data: &[u8]) -> Result<(u32, Vec<u8>)> {
    send(stream, option, data).await?;
    receive(stream, option).await
}

async fn send(stream: &mut dyn Stream, option: u32, data: &[u8]) -> Result<()> {
    let mut message = BytesMut::with_capacity(16 + data.len());
    message.put_u64(OPTION_MAGIC);
    message.put_u32(option);
    message.put_u32(data.len() as u32);
    message.put_slice(data);
    stream.write_all(&message).await?;
    Ok(stream.flush().await?)
}

async fn receive(stream: &mut dyn Stream, option: u32) -> Result<(u32, Vec<u8>)> {
    if stream.read_u64().await? != OPTION_REPLY_MAGIC {
        return Err(ServerError::Protocol("a reply to an option has the wrong magic"));
    }
    if stream.read_u32().await? != option {
        return Err(ServerError::Protocol("it answers another option"));
    }
    let (kind, len) = (stream.read_u32().await?, stream.read_u32().await?);
    if len > REPLY_BYTES_MAX {
        return Err(ServerError::Protocol("a reply to an option is too long"));
    }
    let mut data = vec![0; len as usize];
    stream.read_exact(&mut data).await?;
    Ok((kind, data))
}
