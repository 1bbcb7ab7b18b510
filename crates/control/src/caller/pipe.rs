//! Reads and writes a caller's descriptors without blocking a thread on the other side.
//!
//! Idea: a verb that streams awaits a pipe like any other event, so it can report progress and be dropped.
//! The caller may share the descriptor with other processes, so its flags stay unchanged.
//!
//! ```text
//!   reading    any pollable descriptor      read after poll(2) reports data
//!   writing    a pipe                       opened again, with flags of its own
//!              a pipe that can't be         PIPE_BUF bytes at a time: if there is room, it is for this much
//!              a socket                     send(2) with MSG_DONTWAIT
//!   either     a file, or a device          read and written at once: never waits for a peer
//! ```
//!
//! Source: pipe(7), send(2), poll(2).

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustix::pipe::fcntl_setpipe_size;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

/// Writes of this size to a pipe are atomic; a writable pipe has room for one.
const PIPE_BUF: usize = 4096;
/// The default limit of a user's pipe size (`/proc/sys/fs/pipe-max-size`).
const PIPE_BYTES: usize = 1 << 20;
/// Zeros written at a time for holes.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The destination of a stream.
pub struct Outlet {
    file: Waiting,
    kind: Kind,
}

/// The source of a stream.
pub struct Inlet {
    file: Waiting,
    /// Ends the stream.
    until: BoxFuture<'static, ()>,
}

enum Waiting {
    Ready(AsyncFd<File>),
    Never(File),
}

impl Waiting {
    #[expect(deprecated, reason = "it is wrong of types that lend descriptors they don't own; a file does")]
    fn of(file: File) -> io::Result<Waiting> {
        AsyncFd::new(file).map(Waiting::Ready)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Our own descriptor: non-blocking writes.
    Own,
    SharedPipe,
    Socket,
}

impl Outlet {
    /// From the caller's descriptor.
    ///
    /// # Errors
    /// A pipe without a reader; a descriptor that can't be inspected.
    pub fn new(file: File) -> io::Result<Outlet> {
        let (file, kind) = match FileType::from_raw_mode(fstat(&file)?.st_mode) {
            FileType::Fifo => {
                fcntl_setpipe_size(&file, PIPE_BYTES).ok();
                match own_end(&file) {
                    Ok(own) => (own, Kind::Own),
                    // A named pipe can't be opened without a reader.
                    Err(Errno::NXIO) => return Err(io::ErrorKind::BrokenPipe.into()),
                    Err(_) => (file, Kind::SharedPipe),
                }
            }
            FileType::Socket => (file, Kind::Socket),
            _ => return Ok(Outlet { file: Waiting::Never(file), kind: Kind::Own }),
        };
        Ok(Outlet { file: Waiting::of(file)?, kind })
    }

    /// Writes as many zeros.
    ///
    /// # Errors
    /// Those of writing.
    pub async fn write_zeros(&mut self, mut count: u64) -> io::Result<()> {
        while count > 0 {
            let zeros = &ZEROS[..count.min(ZEROS.len() as u64) as usize];
            self.write_all(zeros).await?;
            count -= zeros.len() as u64;
        }
        Ok(())
    }
}

/// Opens the same pipe's write end again.
fn own_end(pipe: &File) -> Result<File, Errno> {
    let path = format!("/proc/self/fd/{}", pipe.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    open(path, flags, Mode::empty()).map(File::from)
}

impl Kind {
    fn write(self, file: &File, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Kind::Own => (&*file).write(bytes),
            Kind::Socket => Ok(send(file, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?),
            Kind::SharedPipe if !is_ready(file, PollFlags::OUT)? => Err(io::ErrorKind::WouldBlock.into()),
            Kind::SharedPipe => (&*file).write(&bytes[..bytes.len().min(PIPE_BUF)]),
        }
    }
}

fn is_ready(file: impl AsFd, events: PollFlags) -> io::Result<bool> {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    Ok(poll(&mut [PollFd::new(&file, events)], Some(&now))? > 0)
}

impl AsyncWrite for Outlet {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Outlet { file, kind } = self.get_mut();
        let file = match file {
            Waiting::Ready(file) => file,
            Waiting::Never(file) => return Poll::Ready(file.write(bytes)),
        };
        loop {
            let mut guard = ready!(file.poll_write_ready(context))?;
            if let Ok(done) = guard.try_io(|file| kind.write(file.get_ref(), bytes)) {
                return Poll::Ready(done);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Inlet {
    /// From the caller's descriptor. When `until` ends, reads fail.
    ///
    /// # Errors
    /// The descriptor can't be inspected.
    pub fn new(file: File, until: BoxFuture<'static, ()>) -> io::Result<Inlet> {
        let file = match FileType::from_raw_mode(fstat(&file)?.st_mode) {
            kind @ (FileType::Fifo | FileType::Socket) => {
                if kind == FileType::Fifo {
                    fcntl_setpipe_size(&file, PIPE_BYTES).ok();
                }
                Waiting::of(file)?
            }
            _ => Waiting::Never(file),
        };
        Ok(Inlet { file, until })
    }
}

impl AsyncRead for Inlet {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Inlet { file, until } = self.get_mut();
        if until.as_mut().poll(context).is_ready() {
            *until = Box::pin(std::future::ready(()));
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let mut read = |mut file: &File| file.read(buffer.initialize_unfilled());
        let count = match file {
            Waiting::Never(file) => read(file)?,
            Waiting::Ready(file) => loop {
                let mut guard = ready!(file.poll_read_ready(context))?;
                let read = guard.try_io(|file| match is_ready(file.get_ref(), PollFlags::IN)? {
                    true => read(file.get_ref()),
                    false => Err(io::ErrorKind::WouldBlock.into()),
                });
                if let Ok(count) = read {
                    break count?;
                }
            },
        };
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use cenote_runtime::Runtime;
    use tokio::io::AsyncReadExt;

    use super::*;

    fn ends() -> [(File, File); 2] {
        let (reader, writer) = io::pipe().unwrap();
        let (other, socket) = UnixStream::pair().unwrap();
        let file = |fd: OwnedFd| File::from(fd);
        [(file(reader.into()), file(writer.into())), (file(other.into()), file(socket.into()))]
    }

    #[test]
    fn a_full_pipe_does_not_keep_the_thread_that_writes() {
        let runtime = Runtime::real(Some(1));
        for (mut reader, writer) in ends() {
            runtime.block_on(async {
                let mut outlet = Outlet::new(writer).unwrap();
                let all = vec![7; 8 << 20];
                let mut writes = std::pin::pin!(outlet.write_all(&all));
                let waits = runtime.timeout(Duration::from_millis(50), &mut writes).await;
                assert!(waits.is_err(), "8 MiB do not fit");
                let reads = std::thread::spawn(move || {
                    let mut got = vec![0; 8 << 20];
                    reader.read_exact(&mut got).unwrap();
                    got
                });
                writes.await.unwrap();
                assert!(reads.join().unwrap() == vec![7; 8 << 20]);
            });
        }
    }

    #[test]
    fn a_pipe_that_cannot_be_opened_again_is_written_in_pieces_that_fit() {
        let runtime = Runtime::real(Some(1));
        let [(mut reader, writer), _] = ends();
        runtime.block_on(async {
            let file = Waiting::of(writer).unwrap();
            let mut outlet = Outlet { file, kind: Kind::SharedPipe };
            let all = vec![9; 1 << 20];
            let mut writes = std::pin::pin!(outlet.write_all(&all));
            assert!(runtime.timeout(Duration::from_millis(50), &mut writes).await.is_err());
            let reads = std::thread::spawn(move || reader.read_exact(&mut vec![0; 1 << 20]));
            writes.await.unwrap();
            reads.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_reader_that_goes_away_is_a_broken_pipe() {
        let runtime = Runtime::real(Some(1));
        for goes_before in [false, true] {
            for (reader, writer) in ends() {
                runtime.block_on(async {
                    let mut reader = Some(reader).filter(|_| !goes_before);
                    let mut outlet = Outlet::new(writer).unwrap();
                    drop(reader.take());
                    let error = outlet.write_all(&[0; 100]).await.unwrap_err();
                    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
                });
            }
        }
    }

    #[test]
    fn reading_ends_with_the_writer_or_when_it_is_told_to() {
        let runtime = Runtime::real(Some(1));
        for (reader, mut writer) in ends() {
            runtime.block_on(async {
                let (stop, stopped) = futures::channel::oneshot::channel::<()>();
                let until = Box::pin(async move { _ = stopped.await });
                let mut inlet = Inlet::new(reader.try_clone().unwrap(), until).unwrap();
                writer.write_all(b"begin").unwrap();
                let mut got = [0; 5];
                inlet.read_exact(&mut got).await.unwrap();
                assert_eq!(&got, b"begin");
                assert!(runtime.timeout(Duration::from_millis(20), inlet.read(&mut got)).await.is_err());
                stop.send(()).unwrap();
                assert!(inlet.read(&mut got).await.is_err() && inlet.read(&mut got).await.is_err());
                let until = Box::pin(std::future::pending());
                let mut inlet = Inlet::new(reader, until).unwrap();
                writer.write_all(b"end").unwrap();
                drop(writer);
                let mut all = Vec::new();
                inlet.read_to_end(&mut all).await.unwrap();
                assert_eq!(all, b"end");
            });
        }
    }
}
