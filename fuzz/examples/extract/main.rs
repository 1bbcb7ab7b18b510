//! Fills the corpus from real pools: `cargo run -p cenote-fuzz --example extract -- IMAGES...` (files or
//! folders, any number).
//!
//! Takes the first few structures of every kind that differ in size, and writes them to `fuzz/corpus/TARGET`.
//! Pools on one disk also yield a `tree`: see `cenote_fuzz::targets::stack`.

#![allow(clippy::print_stderr, clippy::print_stdout, reason = "a program that only prints")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use cenote_codec::compress::{Compression, ZstdLevel};
use cenote_dataset::{ImportOptions, Mos, import};
use cenote_format::blkptr::Blkptr;
use cenote_format::dnode::ObjectType;
use cenote_format::label::{BOOT_ENV_OFFSET, VDEV_PHYS_OFFSET};
use cenote_format::nvlist::{NvValue, Nvlist};
use cenote_format::uberblock::Uberblock;
use cenote_format::units::{BlockId, ObjectId};
use cenote_fuzz::corpus;
use cenote_fuzz::flatten::{Room, flatten};
use cenote_fuzz::targets::stack::join;
use cenote_object::{Object, Objset, Zap};
use cenote_pool::label::read_labels;
use cenote_pool::{FoundPool, ReadContext, Zbookmark, discover};
use cenote_runtime::Runtime;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Inputs kept per target and pool, and their longest length.
const KEPT: usize = 2;
const LONGEST: usize = 4096;
/// Longest input that is useless when truncated.
const LONGEST_WHOLE: usize = 16 << 10;
/// Longest tree: each case copies it.
const LONGEST_TREE: usize = 9 << 20;

fn main() -> Result<(), Failure> {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let runtime = Runtime::real(None);
    made_up()?;
    runtime.block_on(async {
        for found in discover(&runtime, &paths).await.pools {
            let mut out = Extract { pool: found.name().to_owned(), kept: BTreeMap::new() };
            out.labels(&found).await;
            match import(&runtime, &found, &ImportOptions::default()).await {
                Ok(mos) => out.everything(&mos).await?,
                Err(error) => eprintln!("{}: {error}", found.name()),
            }
        }
        Ok(())
    })
}

/// Flattens a pool on one disk.
async fn tree(mos: &Mos) -> Option<Vec<u8>> {
    let pool = mos.pool();
    if pool.tree().found().devices.len() != 1 || !pool.tree().config().vdevs.iter().all(|vdev| vdev.is_leaf())
    {
        return None;
    }
    // Blocks may take the whole disk.
    let room = Room { extents: std::iter::once(0..u64::MAX).collect(), keep_space_maps: false };
    let flat = flatten(pool, room).await;
    let blocks: Vec<u8> = flat.blocks.iter().flat_map(|block| &block.bytes).copied().collect();
    let uberblock = Uberblock { rootbp: flat.rootbp, ..*pool.uberblock() };
    Some(join(&mos.config().encode(), &uberblock.encode(), &blocks))
}

struct Extract {
    pool: String,
    kept: BTreeMap<&'static str, Vec<usize>>,
}

impl Extract {
    /// Keeps a complete input, unless it is too long or its size is known.
    fn keep_whole(&mut self, target: &'static str, data: &[u8], longest: usize) {
        let sizes = self.kept.entry(target).or_default();
        if data.is_empty() || data.len() > longest || sizes.len() >= KEPT || sizes.contains(&data.len()) {
            return;
        }
        sizes.push(data.len());
        let folder = corpus::folder(target);
        let path = folder.join(format!("{}-{}", self.pool, sizes.len()));
        let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, data));
        written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// Keeps the start of an input.
    fn keep(&mut self, target: &'static str, data: &[u8]) {
        self.keep_whole(target, &data[..data.len().min(LONGEST)], LONGEST);
    }

    async fn labels(&mut self, found: &FoundPool) {
        if let Some(uberblock) = found.uberblocks.first() {
            self.keep("uberblock", &uberblock.encode());
        }
        let Some(device) = found.devices.values().next() else { return };
        for label in read_labels(&*device.device).await {
            let Some(list) = label.config else { continue };
            let packed = list.encode();
            self.keep_whole("label_config", &packed, LONGEST_WHOLE);
            self.keep_whole("nvlist", &packed, LONGEST_WHOLE);
            let slot = label.uberblocks.first().map(|uberblock| uberblock.encode()).unwrap_or_default();
            let mut both = slot;
            both.resize(1024, 0);
            both.extend(packed);
            self.keep_whole("label", &both, LONGEST_WHOLE);
        }
        if let Ok(raw) = device.device.read_at(VDEV_PHYS_OFFSET, 2048).await {
            self.keep("nvlist", &raw);
        }
        if let Ok(raw) = device.device.read_at(BOOT_ENV_OFFSET, 512).await {
            self.keep("boot_env", &raw);
        }
    }

    async fn everything(&mut self, mos: &Mos) -> Result<(), Failure> {
        self.keep_whole("label_config", &mos.config().encode(), LONGEST_WHOLE);
        if let Some(scan) = mos.directory()?.lookup(b"scan").await? {
            self.keep("scan", &scan.words().flat_map(u64::to_le_bytes).collect::<Vec<u8>>());
        }
        self.objset(mos.objset()).await?;
        for dataset in mos.all_datasets().await?.iter().take(4) {
            if let Ok(objset) = dataset.objset().await {
                self.objset(&objset).await?;
            }
        }
        if let Some(image) = tree(mos).await {
            let packed = zstd(&image)?;
            if image.len() > LONGEST_TREE {
                return Ok(());
            }
            println!("{}: a tree of {} bytes, {} packed", self.pool, image.len(), packed.len());
            let folder = corpus::folder("tree");
            std::fs::create_dir_all(&folder)?;
            std::fs::write(folder.join(format!("{}.zst", self.pool)), packed)?;
        }
        Ok(())
    }

    async fn objset(&mut self, objset: &Objset) -> Result<(), Failure> {
        let ctx = ReadContext::new(Zbookmark { dataset: objset.dataset_id(), ..Zbookmark::default() })
            .with_key(objset.key().cloned());
        if let Ok(head) = objset.pool().read(objset.bp(), &ctx).await {
            self.keep("objset", &head);
        }
        self.log(objset, &objset.phys().zil_header.log, &ctx).await;
        if let Some(meta) = objset.meta() {
            self.object(&meta).await;
        }
        let mut dnodes = objset.dnodes(ObjectId(1), objset.last_object());
        while let Some(batch) = dnodes.next_batch().await {
            for (id, dnode) in batch?.dnodes {
                self.object(&Object::new(objset.clone(), id, dnode)).await;
            }
        }
        Ok(())
    }

    async fn log(&mut self, objset: &Objset, bp: &Blkptr, ctx: &ReadContext) {
        if bp.is_hole() {
            return;
        }
        if let Ok(block) = objset.pool().log_blocks().read(bp, ctx).await {
            self.keep_whole("zil", &block, LONGEST_WHOLE);
            self.keep_whole("crypt_layout", &block, LONGEST_WHOLE);
            self.keep_whole("embedded_checksum", &block, LONGEST_WHOLE);
        }
    }

    async fn object(&mut self, object: &Object) {
        let (dnode, bonus) = (object.dnode(), object.dnode().bonus());
        for target in bonus_targets(dnode.bonus_type) {
            self.keep(target, bonus);
        }
        let Ok(bp) = object.blkptr(0, BlockId(0)).await else { return };
        if bp.is_gang()
            && let Ok(header) = object.objset().pool().as_stored().gang_header(&bp, &context(object)).await
        {
            self.keep("gang", &header.encode());
        }
        if dnode.levels > 1
            && let Some(top) = dnode.blkptrs().find(|bp| !bp.is_hole())
            && let Ok(indirect) = object.objset().pool().read(&top, &context(object)).await
        {
            self.keep("blkptr", &indirect[..indirect.len().min(1024)]);
        }
        if bp.is_hole() {
            return;
        }
        self.packed(object, &bp).await;
        let Ok((first, _)) = object.read_block(BlockId(0)).await else { return };
        for target in data_targets(dnode.object_type) {
            match *target {
                "zap_block0" => self.keep_whole(target, &first, LONGEST_WHOLE),
                "space_map" => self.keep(target, &[&[9], &first[..first.len().min(1024)]].concat()),
                _ => self.keep(target, &first),
            }
        }
        if dnode.object_type == ObjectType::DDT_ZAP
            && let Ok(zap) = Zap::open(object.clone()).await
            && let Ok(entries) = zap.to_vec().await
        {
            entries.iter().filter_map(|entry| entry.value.as_bytes()).for_each(|v| self.keep("ddt", v));
        }
        if dnode.object_type.is_zap()
            && let Ok((leaf, _)) = object.read_block(BlockId(1)).await
        {
            self.keep_whole("zap_leaf", &leaf, LONGEST_WHOLE);
        }
    }

    /// Keeps a block in its on-disk form, for the decompressors.
    async fn packed(&mut self, object: &Object, bp: &Blkptr) {
        let target = match Compression::ALL.get(usize::from(bp.compression_id())) {
            Some(Compression::Lzjb) => "lzjb",
            Some(Compression::Zle) => "zle",
            Some(Compression::Lz4) => "lz4",
            Some(Compression::Zstd) => "zstd",
            Some(c) if c.name().starts_with("gzip") => "gzip",
            _ => return,
        };
        if bp.uses_crypt() {
            return;
        }
        if let Ok(raw) = object.objset().pool().as_stored().read(bp, &context(object)).await {
            self.keep_whole(target, &raw, LONGEST);
        }
    }
}

fn context(object: &Object) -> ReadContext {
    object.objset().context(object.id(), 0, BlockId(0))
}

fn bonus_targets(object_type: ObjectType) -> &'static [&'static str] {
    match object_type {
        ObjectType::DSL_DIR | ObjectType::DSL_DATASET | ObjectType::DEADLIST_HDR => &["dsl"],
        ObjectType::BPOBJ_HDR => &["bpobj"],
        ObjectType::SPACE_MAP_HEADER => &["space_map"],
        ObjectType::SPA_HISTORY_OFFSETS => &["history"],
        ObjectType::ZNODE => &["znode", "acl"],
        ObjectType::SA => &["sa"],
        _ => &[],
    }
}

fn data_targets(object_type: ObjectType) -> &'static [&'static str] {
    match object_type {
        ObjectType::DNODE => &["dnode", "crypt_layout"],
        ObjectType::BPOBJ => &["bpobj", "blkptr"],
        ObjectType::SPACE_MAP => &["space_map"],
        ObjectType::SPA_HISTORY => &["history"],
        ObjectType::PACKED_NVLIST => &["nvlist"],
        ObjectType::FUID => &["fuid"],
        ObjectType::OLDACL | ObjectType::ACL => &["acl"],
        // Unnamed types: mappings of removed vdevs, dedup logs, block reference counts.
        ObjectType(0xc0..) if !object_type.is_zap() => &["indirect", "ddt_log", "brt"],
        other if other.is_zap() => &["zap_block0"],
        _ => &[],
    }
}

fn zstd(image: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut packed = vec![0; zstd_safe::compress_bound(image.len())];
    let len = zstd_safe::compress(&mut packed[..], image, 19).map_err(zstd_safe::get_error_name)?;
    packed.truncate(len);
    Ok(packed)
}

/// Inputs for structures that are rare in pools.
fn made_up() -> Result<(), Failure> {
    let keep = |target: &str, data: &[u8]| -> Result<(), Failure> {
        std::fs::create_dir_all(corpus::folder(target))?;
        Ok(std::fs::write(corpus::folder(target).join("made-up"), data)?)
    };
    let scan: [u64; 24] = std::array::from_fn(|i| if i < 2 { 1 } else { 1 << i });
    keep("scan", &scan.map(u64::to_le_bytes).concat())?;
    keep("errlog", b"36:2:0:1f")?;
    let text = "a line, and a line like it; ".repeat(150) + &"\0".repeat(600);
    for (target, compression) in
        [("zle", Compression::Zle), ("gzip", Compression::Gzip6), ("zstd", Compression::Zstd)]
    {
        let packed = compression.compress(&text.as_bytes()[..4096], 4096, ZstdLevel::DEFAULT)?;
        keep(target, &packed.unwrap_or_default())?;
    }
    let mut domain = Nvlist::new();
    domain
        .insert("fuid_idx", NvValue::Uint64(1))
        .insert("fuid_domain", NvValue::String(b"S-1-5-21".to_vec()));
    domain.insert("fuid_offset", NvValue::Uint64(0));
    let mut table = Nvlist::new();
    table.insert("fuid_nvlist", NvValue::NvlistArray(vec![domain]));
    keep("fuid", &table.encode())?;
    // Four registrations (length, byte swap, number), and layouts made of them.
    let words: [u64; 8] = [0x0008_0000_0000, 0x0010_0000_0001, 0x0000_0003_0002, 3, 0, 1, 2, 2];
    let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    keep("sa_registry", &[&words[..], &0x002f_505a_u32.to_le_bytes(), &[0, 8], &[0; 58]].concat())
}
