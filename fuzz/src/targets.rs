//! All targets, one per line: parsers by crate, clients, state files, then the whole stack.

use crate::Target;

mod blocks;
mod codec;
mod config;
pub mod doors;
mod filesystem;
pub mod forged;
mod network;
mod receive;
pub mod stack;
mod state;
mod tables;
mod zap;

use bytes::Bytes;
use cenote_format::bytes::Endian;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Every target.
pub const TARGETS: &[Target] = &[
    // Pool configuration.
    Target { name: "nvlist", run: config::nvlist, spare_bytes: 64 * KIB },
    Target { name: "label_config", run: config::label_config, spare_bytes: MIB },
    Target { name: "label", run: config::label, spare_bytes: 2 * MIB },
    Target { name: "uberblock", run: config::uberblock, spare_bytes: 64 * KIB },
    Target { name: "boot_env", run: config::boot_env, spare_bytes: 64 * KIB },
    // Blocks of block pointers.
    Target { name: "blkptr", run: blocks::blkptr, spare_bytes: 64 * KIB },
    Target { name: "gang", run: blocks::gang, spare_bytes: 64 * KIB },
    Target { name: "dnode", run: blocks::dnode, spare_bytes: 64 * KIB },
    Target { name: "objset", run: blocks::objset, spare_bytes: 64 * KIB },
    Target { name: "zil", run: blocks::zil, spare_bytes: 64 * KIB },
    // Pool objects.
    Target { name: "zap_block0", run: zap::block0, spare_bytes: 64 * KIB },
    Target { name: "zap_leaf", run: zap::leaf, spare_bytes: 64 * KIB },
    Target { name: "dsl", run: tables::dsl, spare_bytes: 64 * KIB },
    Target { name: "bpobj", run: tables::bpobj, spare_bytes: 64 * KIB },
    Target { name: "space_map", run: tables::space_map, spare_bytes: 64 * KIB },
    Target { name: "indirect", run: tables::indirect, spare_bytes: 64 * KIB },
    Target { name: "ddt", run: tables::ddt, spare_bytes: 64 * KIB },
    Target { name: "ddt_log", run: tables::ddt_log, spare_bytes: 64 * KIB },
    Target { name: "brt", run: tables::brt, spare_bytes: 64 * KIB },
    Target { name: "history", run: tables::history, spare_bytes: 64 * KIB },
    Target { name: "errlog", run: tables::errlog, spare_bytes: 64 * KIB },
    Target { name: "scan", run: tables::scan, spare_bytes: 64 * KIB },
    // File systems.
    Target { name: "sa", run: filesystem::sa, spare_bytes: 64 * KIB },
    Target { name: "sa_registry", run: filesystem::sa_registry, spare_bytes: MIB },
    Target { name: "znode", run: filesystem::znode, spare_bytes: 64 * KIB },
    Target { name: "acl", run: filesystem::acl, spare_bytes: 64 * KIB },
    Target { name: "fuid", run: filesystem::fuid, spare_bytes: 64 * KIB },
    // Codecs.
    Target { name: "lzjb", run: codec::lzjb, spare_bytes: MIB },
    Target { name: "zle", run: codec::zle, spare_bytes: MIB },
    Target { name: "lz4", run: codec::lz4, spare_bytes: MIB },
    Target { name: "gzip", run: codec::gzip, spare_bytes: MIB },
    Target { name: "zstd", run: codec::zstd, spare_bytes: 4 * MIB },
    Target { name: "embedded_checksum", run: codec::embedded_checksum, spare_bytes: 64 * KIB },
    Target { name: "crypt_layout", run: codec::crypt_layout, spare_bytes: 64 * KIB },
    // Network disk clients. A request may have 32 MiB even if the common limit is less.
    Target { name: "nbd", run: network::nbd, spare_bytes: 40 * MIB },
    Target { name: "iscsi", run: network::iscsi, spare_bytes: 16 * MIB },
    // Local clients. A request may declare 16 MiB.
    Target { name: "socket", run: doors::socket, spare_bytes: 20 * MIB },
    Target { name: "fuse", run: doors::fuse, spare_bytes: 256 * MIB },
    Target { name: "vhost", run: doors::vhost, spare_bytes: 40 * MIB },
    // State files and configuration.
    Target { name: "state_pools", run: state::pools, spare_bytes: MIB },
    Target { name: "state_reservations", run: state::reservations, spare_bytes: MIB },
    Target { name: "state_tokens", run: state::tokens, spare_bytes: MIB },
    Target { name: "state_config", run: state::config, spare_bytes: MIB },
    Target { name: "state_accounts", run: state::iscsi_accounts, spare_bytes: MIB },
    Target { name: "state_rules", run: state::rules, spare_bytes: MIB },
    Target { name: "state_ha", run: state::ha, spare_bytes: MIB },
    Target { name: "state_witness", run: state::witness, spare_bytes: MIB },
    Target { name: "state_smart", run: state::smart, spare_bytes: MIB },
    Target { name: "state_options", run: state::options, spare_bytes: MIB },
    // All layers together.
    Target { name: "tree", run: stack::tree, spare_bytes: 64 * MIB },
    // The stack with forged structures, read and changed by commands.
    Target { name: "forged_read", run: forged::read, spare_bytes: 256 * MIB },
    Target { name: "forged_write", run: forged::write, spare_bytes: 256 * MIB },
    // Streams with changed records, received.
    Target { name: "receive", run: receive::receive, spare_bytes: 512 * MIB },
];

const ENDIANS: [Endian; 2] = [Endian::Little, Endian::Big];

/// Parses in both byte orders.
fn both(data: &[u8], mut parse: impl FnMut(Bytes, Endian)) {
    let block = Bytes::copy_from_slice(data);
    for endian in ENDIANS {
        parse(block.clone(), endian);
    }
}

/// Uses a value, so that its computation is not optimised away.
fn consume<T>(value: T) {
    std::hint::black_box(value);
}
