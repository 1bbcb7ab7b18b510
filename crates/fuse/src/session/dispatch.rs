//! From a request to a call of [`Vfs`], and from its result to a reply.
//!
//! Each operation's structure is listed where it is read; integers have 4 bytes unless marked 8.

use std::time::Duration;

use crate::abi::{self, Opcode, fattr};
use crate::reply::{DirBuffer, Reply, decode_device};
use crate::request::{Body, Request};
use crate::vfs::{
    Entry, Errno, NewNode, Node, ReadFlags, RenameFlags, Result, SetAttr, Time, TimeOrNow, Vfs, WriteFlags,
    XattrMode,
};
use crate::waiting::Waiting;

const S_IFDIR: u32 = 0o040000;
const S_IFREG: u32 = 0o100000;

/// `None`: no reply.
pub async fn dispatch<V: Vfs>(vfs: &V, waiting: &Waiting, request: &Request) -> Option<Result<Reply>> {
    let Some(opcode) = Opcode::from_number(request.opcode) else { return Some(Err(Errno::NOSYS)) };
    match opcode {
        Opcode::Forget => {
            if let Ok(references) = request.body().u64() {
                vfs.forget(request.node, references).await;
            }
            None
        }
        Opcode::BatchForget => {
            // A truncated list counts up to its end.
            forget_many(vfs, request.body()).await.ok();
            None
        }
        // `fuse_interrupt_in`: unique (8) of the interrupted request.
        Opcode::Interrupt => match request.body().u64() {
            Ok(unique) if waiting.interrupt(unique) => None,
            Ok(_) => Some(Err(Errno::AGAIN)),
            Err(_) => None,
        },
        _ => Some(answer(vfs, request, opcode).await),
    }
}

/// Whether an operation takes little time besides its waits.
pub fn is_short(request: &Request) -> bool {
    matches!(Opcode::from_number(request.opcode), Some(Opcode::Fsync | Opcode::Fsyncdir))
}

/// `fuse_batch_forget_in`: count, padding; then for each nodeid (8), nlookup (8).
async fn forget_many<V: Vfs>(vfs: &V, mut body: Body<'_>) -> Result<()> {
    let (count, _) = (body.u32()?, body.u32()?);
    for _ in 0..count {
        let (node, references) = (Node(body.u64()?), body.u64()?);
        vfs.forget(node, references).await;
    }
    Ok(())
}

async fn answer<V: Vfs>(vfs: &V, request: &Request, opcode: Opcode) -> Result<Reply> {
    let Request { node, caller, .. } = *request;
    let mut body = request.body();
    let valid = || vfs.valid_for(node);
    let found = |entry: Entry| Ok(Reply::empty().entry(&entry, valid()));
    match opcode {
        Opcode::Lookup => match vfs.lookup(caller, node, body.name()?).await? {
            Some(entry) => found(entry),
            None if valid().is_zero() => Err(Errno::NOENT),
            None => Ok(Reply::no_entry(valid())),
        },
        Opcode::Getattr => Ok(Reply::attr(&vfs.getattr(node).await?)),
        Opcode::Statx => Ok(Reply::statx(&vfs.getattr(node).await?)),
        Opcode::Setattr => Ok(Reply::attr(&vfs.setattr(caller, node, set_attr(body)?).await?)),
        Opcode::Readlink => Ok(Reply::data(vec![vfs.readlink(node).await?])),
        Opcode::Symlink => {
            let (name, target) = (body.name()?, body.name()?);
            found(vfs.symlink(caller, node, name, target).await?)
        }
        Opcode::Mknod => {
            // mode, rdev, umask, padding; name.
            let (mode, device, umask, _) = (body.u32()?, body.u32()?, body.u32()?, body.u32()?);
            let new = NewNode { mode, umask, device: decode_device(device) };
            found(vfs.mknod(caller, node, body.name()?, new).await?)
        }
        Opcode::Mkdir => {
            // mode, umask; name.
            let (mode, umask) = (body.u32()?, body.u32()?);
            let new = NewNode { mode: mode & 0o7777 | S_IFDIR, umask, device: (0, 0) };
            found(vfs.mknod(caller, node, body.name()?, new).await?)
        }
        Opcode::Tmpfile => {
            // flags, mode, umask, open_flags; a meaningless name.
            let (_, mode, umask) = (body.u32()?, body.u32()?, body.u32()?);
            let new = NewNode { mode: mode & 0o7777 | S_IFREG, umask, device: (0, 0) };
            let entry = vfs.tmpfile(caller, node, new).await?;
            // `fuse_open_out`: fh (8), open_flags, backing_id.
            Ok(Reply::empty().entry(&entry, valid()).zeros(16))
        }
        Opcode::Unlink => done(vfs.unlink(caller, node, body.name()?).await),
        Opcode::Rmdir => done(vfs.rmdir(caller, node, body.name()?).await),
        Opcode::Rename => {
            // newdir (8); old name, new name.
            let to = Node(body.u64()?);
            let (old, new) = (body.name()?, body.name()?);
            done(vfs.rename(caller, (node, old), (to, new), RenameFlags::Replace).await)
        }
        Opcode::Rename2 => {
            // newdir (8), flags, padding; old name, new name.
            let (to, flags, _) = (Node(body.u64()?), body.u32()?, body.u32()?);
            let (old, new) = (body.name()?, body.name()?);
            done(vfs.rename(caller, (node, old), (to, new), rename_flags(flags)?).await)
        }
        Opcode::Link => {
            // oldnodeid (8); name. The header's node is the directory.
            let old = Node(body.u64()?);
            found(vfs.link(caller, old, node, body.name()?).await?)
        }
        Opcode::Read => {
            // fh (8), offset (8), size, read_flags, lock_owner (8), flags, padding.
            body.skip(8)?;
            let (offset_bytes, len_bytes) = (body.u64()?, body.u32()?);
            Ok(Reply::data(vfs.read(node, offset_bytes, len_bytes, read_flags(&mut body)).await?))
        }
        Opcode::Write => {
            // fh (8), offset (8), size, write_flags, lock_owner (8), flags, padding; data.
            body.skip(8)?;
            let (offset_bytes, len_bytes, flags) = (body.u64()?, body.u32()?, body.u32()?);
            let data = request.tail(len_bytes as usize)?;
            let has = |flag| flags & flag != 0;
            let flags = WriteFlags {
                kill_suid_sgid: has(abi::WRITE_KILL_SUIDGID),
                from_cache: has(abi::WRITE_CACHE),
            };
            vfs.write(caller, node, offset_bytes, data, flags).await?;
            Ok(Reply::empty().u32(len_bytes).u32(0))
        }
        Opcode::Fsync | Opcode::Fsyncdir => {
            // fh (8), fsync_flags, padding.
            body.skip(8)?;
            let data_only = body.u32()? & abi::FSYNC_FDATASYNC != 0;
            done(vfs.fsync(node, data_only).await)
        }
        Opcode::Syncfs => done(vfs.syncfs().await),
        Opcode::Readdir => list(vfs, node, body, false, valid()).await,
        Opcode::Readdirplus => list(vfs, node, body, true, valid()).await,
        Opcode::Statfs => Ok(Reply::statfs(&vfs.statfs(node).await?)),
        Opcode::Getxattr => {
            // size, padding; name.
            let (room_bytes, _) = (body.u32()?, body.u32()?);
            sized(vfs.getxattr(caller, node, body.name()?).await?, room_bytes)
        }
        Opcode::Listxattr => {
            let room_bytes = body.u32()?;
            sized(vfs.listxattr(caller, node).await?, room_bytes)
        }
        Opcode::Setxattr => {
            // size, flags, setxattr_flags, padding; name; value.
            let (len_bytes, flags) = (body.u32()?, body.u32()?);
            let kill_sgid = body.u32()? & abi::SETXATTR_ACL_KILL_SGID != 0;
            body.skip(4)?;
            let name = body.name()?;
            let value = request.tail(len_bytes as usize)?;
            let mode = match flags {
                0 => XattrMode::Any,
                1 => XattrMode::Create,
                2 => XattrMode::Replace,
                _ => return Err(Errno::INVAL),
            };
            done(vfs.setxattr(caller, node, name, value, mode, kill_sgid).await)
        }
        Opcode::Removexattr => done(vfs.removexattr(caller, node, body.name()?).await),
        Opcode::Fallocate => {
            // fh (8), offset (8), length (8), mode, padding.
            body.skip(8)?;
            let (offset_bytes, len_bytes, mode) = (body.u64()?, body.u64()?, body.u32()?);
            done(vfs.fallocate(caller, node, offset_bytes, len_bytes, mode).await)
        }
        Opcode::Lseek => {
            // fh (8), offset (8), whence, padding.
            body.skip(8)?;
            let (offset_bytes, whence) = (body.u64()?, body.u32()?);
            let hole = match whence {
                3 => false,
                4 => true,
                _ => return Err(Errno::INVAL),
            };
            Ok(Reply::empty().u64(vfs.seek(node, offset_bytes, hole).await?))
        }
        Opcode::CopyFileRange => {
            // fh_in, off_in, nodeid_out, fh_out, off_out, len, flags (8 each).
            body.skip(8)?;
            let (from, to) = (body.u64()?, Node(body.u64()?));
            body.skip(8)?;
            let (at, len_bytes) = (body.u64()?, body.u64()?);
            // The reply has 32 bits.
            let len_bytes = len_bytes.min(1 << 30);
            let copied = vfs.copy_file_range(caller, (node, from), (to, at), len_bytes).await?;
            Ok(Reply::empty().u32(copied as u32).u32(0))
        }
        Opcode::Ioctl => ioctl(vfs, request, body).await,
        // `fuse_open_out`: fh (8), open_flags, backing_id. Without FOPEN_KEEP_CACHE and FOPEN_CACHE_DIR the
        // kernel drops its cache. It reads an empty file only if it caches nothing of it.
        Opcode::Open if vfs.reads_anew() => {
            let flags = match is_read_only(body.u32()?) && vfs.getattr(node).await?.size_bytes == 0 {
                true => abi::FOPEN_DIRECT_IO,
                false => 0,
            };
            Ok(Reply::empty().zeros(8).u32(flags).zeros(4))
        }
        Opcode::Opendir if vfs.reads_anew() => Ok(Reply::empty().zeros(16)),
        // Nodes need no handles (ENOSYS to OPEN and OPENDIR turns them off), MKNOD makes files, and the
        // kernel checks permissions itself.
        Opcode::Open | Opcode::Opendir | Opcode::Create | Opcode::Flush | Opcode::Access => Err(Errno::NOSYS),
        Opcode::Release | Opcode::Releasedir | Opcode::Destroy => Ok(Reply::empty()),
        Opcode::Init | Opcode::Interrupt | Opcode::Forget | Opcode::BatchForget => Err(Errno::INVAL),
    }
}

fn done(result: Result<()>) -> Result<Reply> {
    result.map(|()| Reply::empty())
}

/// `fuse_read_in`, as for files: fh (8), offset (8), size, ...
async fn list<V: Vfs>(vfs: &V, dir: Node, mut body: Body<'_>, plus: bool, valid: Duration) -> Result<Reply> {
    body.skip(8)?;
    let (cookie, room_bytes) = (body.u64()?, body.u32()?);
    let mut buffer = DirBuffer::new((room_bytes as usize).min(abi::MAX_WRITE_BYTES), plus, valid);
    vfs.readdir(dir, cookie, read_flags(&mut body), &mut buffer).await?;
    Ok(buffer.into_reply())
}

fn is_read_only(flags: u32) -> bool {
    flags & abi::opened::ACCMODE == 0
}

/// The end of `fuse_read_in`, after the size: read_flags, lock_owner (8), flags of the open file. Missing
/// before version 7.9.
fn read_flags(body: &mut Body<'_>) -> ReadFlags {
    let flags = body.skip(12).and_then(|()| body.u32()).unwrap_or(0);
    ReadFlags { keeps_atime: flags & abi::opened::NOATIME != 0 }
}

/// Room 0 asks for the size only. `fuse_getxattr_out`: size, padding.
fn sized(value: bytes::Bytes, room_bytes: u32) -> Result<Reply> {
    match room_bytes {
        0 => Ok(Reply::empty().u32(value.len() as u32).u32(0)),
        room if value.len() > room as usize => Err(Errno::RANGE),
        _ => Ok(Reply::data(vec![value])),
    }
}

/// `fuse_setattr_in` (88 bytes): valid, padding, fh (8), size (8), lock_owner (8), atime (8), mtime (8),
/// ctime (8), atimensec, mtimensec, ctimensec, mode, unused, uid, gid, unused.
fn set_attr(mut body: Body<'_>) -> Result<SetAttr> {
    let (valid, _, _) = (body.u32()?, body.u32()?, body.u64()?);
    let (size, _) = (body.u64()?, body.u64()?);
    let seconds = [body.u64()? as i64, body.u64()? as i64, body.u64()? as i64];
    let nanoseconds = [body.u32()?, body.u32()?, body.u32()?];
    let (mode, _) = (body.u32()?, body.u32()?);
    let (uid, gid) = (body.u32()?, body.u32()?);
    let has = |bit: u32| valid & bit != 0;
    let time = |n: usize| Time { seconds: seconds[n], nanoseconds: nanoseconds[n] };
    let settable = |n: usize, set: u32, now: u32| match () {
        () if has(now) => Some(TimeOrNow::Now),
        () => has(set).then(|| TimeOrNow::Time(time(n))),
    };
    Ok(SetAttr {
        mode: has(fattr::MODE).then_some(mode & 0o7777),
        uid: has(fattr::UID).then_some(uid),
        gid: has(fattr::GID).then_some(gid),
        size_bytes: has(fattr::SIZE).then_some(size),
        atime: settable(0, fattr::ATIME, fattr::ATIME_NOW),
        mtime: settable(1, fattr::MTIME, fattr::MTIME_NOW),
        ctime: has(fattr::CTIME).then(|| time(2)),
        kill_suid_sgid: has(fattr::KILL_SUIDGID),
    })
}

/// `RENAME_NOREPLACE` 1, `RENAME_EXCHANGE` 2, `RENAME_WHITEOUT` 4.
fn rename_flags(flags: u32) -> Result<RenameFlags> {
    match flags {
        0 => Ok(RenameFlags::Replace),
        1 => Ok(RenameFlags::NoReplace),
        2 => Ok(RenameFlags::Exchange),
        4 => Ok(RenameFlags::Whiteout { no_replace: false }),
        5 => Ok(RenameFlags::Whiteout { no_replace: true }),
        _ => Err(Errno::INVAL),
    }
}

/// `fuse_ioctl_in`: fh (8), flags, cmd, arg (8), in_size, out_size; data. `fuse_ioctl_out`: result, flags,
/// in_iovs, out_iovs; data.
async fn ioctl<V: Vfs>(vfs: &V, request: &Request, mut body: Body<'_>) -> Result<Reply> {
    body.skip(8)?;
    let (flags, command) = (body.u32()?, body.u32()?);
    body.skip(8)?;
    let (in_bytes, out_bytes) = (body.u32()?, body.u32()?);
    if flags & abi::IOCTL_UNRESTRICTED != 0 {
        return Err(Errno::NOTTY);
    }
    let input = body.rest().get(..in_bytes as usize).ok_or(Errno::INVAL)?;
    let output = vfs.ioctl(request.caller, request.node, command, input).await?;
    if output.len() > out_bytes as usize {
        return Err(Errno::INVAL);
    }
    Ok(Reply { fields: Reply::empty().zeros(16).fields, data: vec![output.into()] })
}
