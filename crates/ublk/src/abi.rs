//! Commands and structures of the driver. All integers are in host byte order.
//!
//! ```text
//!   control command   | dev_id 4 | queue_id 2 | len 2 | addr 8 | data 16 |
//!   device info, 64   | queues 2 | depth 2 | state 2 | - 2 | max_io_buf_bytes 4 | dev_id 4 | pid 4 | - 4 |
//!                     | flags 8 | ublksrv_flags 8: ours | - 24 |
//!   parameters, 60    | len 4 | types 4 | basic 32 | discard 20 |
//!   request, 24       | op and flags 4 | sectors 4 | first sector 8 | addr 8 |
//!   I/O command, 16   | queue 2 | tag 2 | result 4 | addr 8 |
//! ```
//!
//! Linux 6.0 to 6.3 use plain command numbers; since 6.4 ioctl(2) encoding, and plain numbers may be
//! disabled.
//!
//! Source: Linux `include/uapi/linux/ublk_cmd.h`.

use bytes::{Buf, BufMut};
use cenote_disk::Disk;

/// Unit of sizes and offsets.
pub const SECTOR_BYTES: u64 = 512;
/// `UBLK_MAX_QUEUE_DEPTH`
pub const DEPTH_MAX: usize = 4096;
/// `sizeof(struct ublksrv_ctrl_dev_info)`
pub const INFO_BYTES: usize = 64;
/// Parameters up to and including discard.
pub const PARAMS_BYTES: usize = 60;
/// `sizeof(struct ublksrv_io_desc)`
pub const DESCRIPTOR_BYTES: usize = 24;
/// Most data per request.
pub const IO_BYTES_MAX: u32 = 1 << 20;
/// Most sectors to discard or zero at once: 1 GiB.
const CLEARED_SECTORS_MAX: u32 = 1 << 21;
/// Preferred request size.
const BEST_BYTES: u32 = 128 << 10;

/// `UBLK_F_NEED_GET_DATA`
pub const NEED_GET_DATA: u64 = 1 << 2;
/// `UBLK_F_CMD_IOCTL_ENCODE`
pub const CMD_IOCTL_ENCODE: u64 = 1 << 6;
/// `UBLK_F_UPDATE_SIZE`
pub const UPDATE_SIZE: u64 = 1 << 10;
/// `UBLK_IO_RES_NEED_GET_DATA`
pub const RES_NEED_GET_DATA: i32 = 1;

/// Commands to `/dev/ublk-control`: `UBLK_CMD_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)] // names of the kernel
pub enum Control {
    GetDevInfo = 0x02,
    AddDev = 0x04,
    DelDev = 0x05,
    StartDev = 0x06,
    StopDev = 0x07,
    SetParams = 0x08,
    GetFeatures = 0x13,
    UpdateSize = 0x15,
}

/// Commands to `/dev/ublkcN`: `UBLK_IO_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)] // names of the kernel
pub enum Io {
    FetchReq = 0x20,
    CommitAndFetchReq = 0x21,
    NeedGetData = 0x22,
}

/// Encoding of command numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// Plain: Linux 6.0 to 6.3.
    Legacy,
    /// ioctl(2) encoding: `UBLK_U_*`.
    Encoded,
}

impl Numbers {
    /// Number of a control command.
    pub fn control(self, command: Control) -> u32 {
        let is_read_only = matches!(command, Control::GetDevInfo | Control::GetFeatures);
        self.number(command as u8, if is_read_only { READ } else { READ | WRITE }, 32)
    }

    /// Number of an I/O command.
    pub fn io(self, command: Io) -> u32 {
        self.number(command as u8, READ | WRITE, 16)
    }

    fn number(self, number: u8, direction: u32, bytes: u32) -> u32 {
        match self {
            Numbers::Legacy => number.into(),
            Numbers::Encoded => direction << 30 | bytes << 16 | u32::from(b'u') << 8 | u32::from(number),
        }
    }
}

/// `_IOC_READ`, `_IOC_WRITE`
const READ: u32 = 2;
const WRITE: u32 = 1;

/// Operands of a control command.
#[derive(Debug, Clone, Copy)]
pub struct Subject {
    /// Device; `u32::MAX`: none yet.
    pub device: u32,
    /// Command-specific number.
    pub data: u64,
}

impl Subject {
    /// `struct ublksrv_ctrl_cmd`
    pub fn encode(self, address: u64, len: u16) -> [u8; 80] {
        let mut body = [0; 80];
        let mut fields = &mut body[..];
        fields.put_u32_ne(self.device);
        // No queue.
        fields.put_u16_ne(u16::MAX);
        fields.put_u16_ne(len);
        fields.put_u64_ne(address);
        fields.put_u64_ne(self.data);
        body
    }
}

/// `struct ublksrv_io_cmd`
pub fn io_command(queue: u16, tag: u16, result: i32, address: u64) -> [u8; 80] {
    let mut body = [0; 80];
    let mut fields = &mut body[..];
    fields.put_u16_ne(queue);
    fields.put_u16_ne(tag);
    fields.put_i32_ne(result);
    fields.put_u64_ne(address);
    body
}

/// Device information kept by the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// Number of queues.
    pub queues: u16,
    /// Requests per queue.
    pub depth: u16,
    /// Device number.
    pub device: u32,
    /// `UBLK_F_*`
    pub flags: u64,
    /// `ublksrv_flags`: opaque to the driver.
    pub owner: u64,
}

impl Info {
    /// `struct ublksrv_ctrl_dev_info`
    pub fn encode(&self) -> [u8; INFO_BYTES] {
        let mut bytes = [0; INFO_BYTES];
        let mut fields = &mut bytes[..];
        fields.put_u16_ne(self.queues);
        fields.put_u16_ne(self.depth);
        // State, padding.
        fields.put_u32_ne(0);
        fields.put_u32_ne(IO_BYTES_MAX);
        fields.put_u32_ne(self.device);
        // PID, padding.
        fields.put_u64_ne(0);
        fields.put_u64_ne(self.flags);
        fields.put_u64_ne(self.owner);
        bytes
    }

    /// Inverse of [`Info::encode`].
    pub fn decode(bytes: &[u8; INFO_BYTES]) -> Info {
        let mut fields = &bytes[..];
        let (queues, depth) = (fields.get_u16_ne(), fields.get_u16_ne());
        fields.advance(8);
        let device = fields.get_u32_ne();
        fields.advance(8);
        Info { queues, depth, device, flags: fields.get_u64_ne(), owner: fields.get_u64_ne() }
    }
}

/// Geometry of a block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// In whole sectors.
    pub size_bytes: u64,
    /// Physical block, a power of two: writing less means reading first.
    pub block_bytes: u32,
    /// Whether it refuses writes.
    pub is_read_only: bool,
}

impl Shape {
    /// Shape of a disk.
    pub fn of(disk: &dyn Disk) -> Shape {
        let is_read_only = disk.is_read_only();
        Shape { size_bytes: disk.size_bytes(), block_bytes: disk.block_bytes(), is_read_only }
    }

    /// `struct ublk_params`: logical blocks are sectors, physical blocks the disk's.
    pub fn params(&self) -> [u8; PARAMS_BYTES] {
        const TYPE_BASIC: u32 = 1;
        const TYPE_DISCARD: u32 = 1 << 1;
        const ATTR_READ_ONLY: u32 = 1;
        const ATTR_VOLATILE_CACHE: u32 = 1 << 2;
        const ATTR_FUA: u32 = 1 << 3;
        let block_bytes = self.block_bytes.max(SECTOR_BYTES as u32);
        let mut bytes = [0; PARAMS_BYTES];
        let mut fields = &mut bytes[..];
        fields.put_u32_ne(PARAMS_BYTES as u32);
        let (types, attributes) = match self.is_read_only {
            true => (TYPE_BASIC, ATTR_READ_ONLY),
            false => (TYPE_BASIC | TYPE_DISCARD, ATTR_VOLATILE_CACHE | ATTR_FUA),
        };
        fields.put_u32_ne(types);
        fields.put_u32_ne(attributes);
        // Shifts: logical, physical, optimal, minimal block.
        let block_shift = block_bytes.ilog2() as u8;
        fields.put_slice(&[9, block_shift, block_shift.max(BEST_BYTES.ilog2() as u8), block_shift]);
        fields.put_u32_ne(IO_BYTES_MAX / SECTOR_BYTES as u32);
        // chunk_sectors: none.
        fields.put_u32_ne(0);
        fields.put_u64_ne(self.size_bytes / SECTOR_BYTES);
        // virt_boundary_mask
        fields.put_u64_ne(0);
        // Discard: alignment, granularity, most sectors; most sectors to zero; most ranges.
        fields.put_u32_ne(0);
        fields.put_u32_ne(block_bytes);
        fields.put_u32_ne(CLEARED_SECTORS_MAX);
        fields.put_u32_ne(CLEARED_SECTORS_MAX);
        fields.put_u16_ne(1);
        bytes
    }
}

/// A request from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// `UBLK_IO_OP_*`
    pub op: u8,
    /// `UBLK_IO_F_*`
    pub flags: u32,
    /// Sector count.
    pub sectors: u32,
    /// First sector.
    pub first: u64,
}

impl Descriptor {
    /// `UBLK_IO_OP_READ`
    pub const READ: u8 = 0;
    /// `UBLK_IO_OP_WRITE`
    pub const WRITE: u8 = 1;

    /// `struct ublksrv_io_desc`
    pub fn decode(bytes: &[u8; DESCRIPTOR_BYTES]) -> Descriptor {
        let mut fields = &bytes[..];
        let op_and_flags = fields.get_u32_ne();
        let (sectors, first) = (fields.get_u32_ne(), fields.get_u64_ne());
        Descriptor { op: op_and_flags as u8, flags: op_and_flags & !0xff, sectors, first }
    }

    /// Byte count.
    pub fn bytes(&self) -> usize {
        self.sectors as usize * SECTOR_BYTES as usize
    }

    /// Bytes to write.
    pub fn brings(&self) -> usize {
        if self.op == Descriptor::WRITE { self.bytes() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_numbers_of_the_header() {
        let encoded = |command| Numbers::Encoded.control(command);
        assert_eq!(encoded(Control::GetDevInfo), 0x8020_7502);
        assert_eq!(encoded(Control::AddDev), 0xc020_7504);
        assert_eq!(encoded(Control::DelDev), 0xc020_7505);
        assert_eq!(encoded(Control::GetFeatures), 0x8020_7513);
        assert_eq!(encoded(Control::UpdateSize), 0xc020_7515);
        assert_eq!(Numbers::Encoded.io(Io::FetchReq), 0xc010_7520);
        assert_eq!(Numbers::Encoded.io(Io::NeedGetData), 0xc010_7522);
        assert_eq!((Numbers::Legacy.control(Control::StartDev), Numbers::Legacy.io(Io::FetchReq)), (6, 0x20));
    }

    #[test]
    fn fields_are_where_the_driver_looks() {
        let command = Subject { device: 7, data: 0x1234 }.encode(0xabcd, 64);
        assert_eq!(command[..8], [&7u32.to_ne_bytes()[..], &[0xff, 0xff], &64u16.to_ne_bytes()].concat()[..]);
        assert_eq!(command[8..24], [0xabcdu64.to_ne_bytes(), 0x1234u64.to_ne_bytes()].concat()[..]);
        let command = io_command(2, 9, -5, 0xabcd);
        assert_eq!(command[..4], [2u16.to_ne_bytes(), 9u16.to_ne_bytes()].concat()[..]);
        assert_eq!(command[4..16], [&(-5i32).to_ne_bytes()[..], &0xabcdu64.to_ne_bytes()].concat()[..]);

        let info = Info { queues: 4, depth: 128, device: 3, flags: NEED_GET_DATA, owner: 0xfeed };
        let bytes = info.encode();
        assert_eq!(bytes[8..12], IO_BYTES_MAX.to_ne_bytes());
        assert_eq!(bytes[24..40], [4u64.to_ne_bytes(), 0xfeedu64.to_ne_bytes()].concat()[..]);
        assert_eq!(Info::decode(&bytes), info);
    }

    #[test]
    fn a_device_says_what_it_can() {
        let shape = Shape { size_bytes: 1 << 30, block_bytes: 16 << 10, is_read_only: false };
        let params = shape.params();
        let number = |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| params[at + byte]));
        assert_eq!((number(0), number(4), number(8)), (60, 3, 12), "length, types, attributes");
        assert_eq!(params[12..16], [9, 14, 17, 14]);
        assert_eq!((number(16), number(24), number(28)), (2048, 1 << 21, 0), "largest request, size");
        assert_eq!((number(44), number(48), number(52)), (16 << 10, 1 << 21, 1 << 21), "discard, zeroing");
        assert_eq!(params[56..60], [1u16.to_ne_bytes(), [0, 0]].concat()[..], "segments");
        let params = Shape { is_read_only: true, ..shape }.params();
        assert_eq!(params[4..12], [1u32.to_ne_bytes(), 1u32.to_ne_bytes()].concat()[..], "no discard");
    }

    #[test]
    fn requests_are_read_from_their_descriptors() {
        let mut bytes = [0; DESCRIPTOR_BYTES];
        bytes[..4].copy_from_slice(&(1u32 | 1 << 13).to_ne_bytes());
        bytes[4..8].copy_from_slice(&8u32.to_ne_bytes());
        bytes[8..16].copy_from_slice(&0x1_0000_0000u64.to_ne_bytes());
        let expected = Descriptor { op: 1, flags: 1 << 13, sectors: 8, first: 1 << 32 };
        assert_eq!(Descriptor::decode(&bytes), expected);
    }
}
