//! Encodes configurations as lists, with pairs in OpenZFS's order.
//!
//! Unknown pairs ([`PoolConfig::other`]) are kept. Like OpenZFS, it omits cleared flags and missing objects.
//!
//! Source: OpenZFS `spa_config_generate`, `vdev_config_generate`, `vdev_top_config_generate`,
//! `vdev_aux_label_generate`.

use super::config::{AuxConfig, LabelConfig, PoolConfig, PoolState};
use super::vdev_config::VdevConfig;
use super::vdev_kind::{VdevClass, VdevKind};
use crate::nvlist::{NvValue, Nvlist};
use crate::units::{ObjectId, Txg};

#[derive(Default)]
struct Pairs(Nvlist);

impl Pairs {
    fn put(&mut self, name: &str, value: NvValue) -> &mut Self {
        self.0.insert(name, value);
        self
    }

    fn number(&mut self, name: &str, value: u64) -> &mut Self {
        self.put(name, NvValue::Uint64(value))
    }

    fn some(&mut self, name: &str, value: Option<u64>) -> &mut Self {
        if let Some(value) = value {
            self.number(name, value);
        }
        self
    }

    fn nonzero(&mut self, name: &str, value: u64) -> &mut Self {
        self.some(name, Some(value).filter(|&value| value != 0))
    }

    fn object(&mut self, name: &str, ObjectId(value): ObjectId) -> &mut Self {
        self.nonzero(name, value)
    }

    fn txg(&mut self, name: &str, Txg(value): Txg) -> &mut Self {
        self.nonzero(name, value)
    }

    fn flag(&mut self, name: &str, value: bool) -> &mut Self {
        self.nonzero(name, u64::from(value))
    }

    fn mark(&mut self, name: &str, value: bool) -> &mut Self {
        if value {
            self.put(name, NvValue::Boolean);
        }
        self
    }

    fn string(&mut self, name: &str, value: &str) -> &mut Self {
        self.put(name, NvValue::String(value.as_bytes().to_vec()))
    }

    fn text(&mut self, name: &str, value: Option<&String>) -> &mut Self {
        if let Some(value) = value {
            self.string(name, value);
        }
        self
    }

    fn numbers(&mut self, name: &str, values: impl Iterator<Item = u64>) -> &mut Self {
        let values: Vec<u64> = values.collect();
        if !values.is_empty() {
            self.put(name, NvValue::Uint64Array(values));
        }
        self
    }

    fn all_of(&mut self, other: &Nvlist) -> &mut Self {
        for (name, value) in other.iter().filter(|(name, _)| !self.0.contains(name)).collect::<Vec<_>>() {
            self.put(name, value.clone());
        }
        self
    }
}

impl LabelConfig {
    /// Encodes the label.
    pub fn encode(&self) -> Nvlist {
        match self {
            LabelConfig::Member(config) => config.encode(),
            LabelConfig::Spare(aux) => aux.encode(PoolState::Spare),
            LabelConfig::L2cache(aux) => aux.encode(PoolState::L2cache),
        }
    }
}

impl PoolConfig {
    /// Encodes a label, or the MOS's configuration if the tree is the root vdev's.
    pub fn encode(&self) -> Nvlist {
        let mut pairs = Pairs::default();
        pairs
            .number("version", self.version)
            .string("name", &self.name)
            .number("state", self.state.into())
            .number("txg", self.txg.0)
            .number("pool_guid", self.pool_guid.0)
            .some("errata", self.errata)
            .text("comment", self.comment.as_ref())
            .text("compatibility", self.compatibility.as_ref())
            .some("hostid", self.hostid)
            .text("hostname", self.hostname.as_ref())
            .some("top_guid", self.top_guid.map(|guid| guid.0))
            .some("guid", self.guid.map(|guid| guid.0))
            .flag("is_spare", self.is_spare)
            .flag("is_log", self.is_log);
        if let Some(split) = &self.split {
            pairs.put("splitcfg", NvValue::Nvlist(split.clone()));
        }
        let features = self.features_for_read.iter().map(|name| (name.clone(), NvValue::Boolean));
        pairs
            .mark("com.delphix:has_per_vdev_zaps", self.has_per_vdev_zaps)
            .numbers("hole_array", self.hole_array.iter().map(|id| id.0))
            .some("vdev_children", self.vdev_children)
            .some("split_guid", self.split_guid.map(|guid| guid.0))
            .put("vdev_tree", NvValue::Nvlist(self.vdev_tree.encode()))
            .put("features_for_read", NvValue::Nvlist(features.collect()))
            .some("create_txg", self.create_txg.map(|txg| txg.0))
            .all_of(&self.other);
        pairs.0
    }
}

impl AuxConfig {
    fn encode(&self, state: PoolState) -> Nvlist {
        let mut pairs = Pairs::default();
        pairs
            .number("version", self.version)
            .number("state", state.into())
            .number("guid", self.guid.0)
            .some("ashift", self.ashift.map(u64::from))
            .text("path", self.path.as_ref())
            .text("devid", self.devid.as_ref())
            .text("phys_path", self.phys_path.as_ref())
            .all_of(&self.other);
        pairs.0
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rank {
    Root,
    Top,
    Below,
    /// Spare or cache device, without an index among siblings.
    Auxiliary,
}

impl VdevConfig {
    /// Encodes a `vdev_tree` recursively, from a root or top-level vdev.
    pub fn encode(&self) -> Nvlist {
        self.encode_as(if self.kind == VdevKind::Root { Rank::Root } else { Rank::Top })
    }

    /// Encodes a spare or cache device for the MOS ([`VdevConfig::decode_array`]).
    pub fn encode_auxiliary(&self) -> Nvlist {
        self.encode_as(Rank::Auxiliary)
    }

    /// A copy for labels, without the pairs that only the MOS has.
    #[must_use]
    pub fn for_label(&self) -> VdevConfig {
        let none = ObjectId(0);
        VdevConfig {
            leaf_zap: none,
            top_zap: none,
            root_zap: none,
            resilver_defer: false,
            children: self.children.iter().map(VdevConfig::for_label).collect(),
            ..self.clone()
        }
    }

    fn encode_as(&self, rank: Rank) -> Nvlist {
        let mut pairs = Pairs::default();
        pairs.string("type", self.kind.name());
        if rank != Rank::Auxiliary {
            pairs.number("id", self.id);
        }
        pairs
            .number("guid", self.guid.0)
            .text("path", self.path.as_ref())
            .text("devid", self.devid.as_ref())
            .text("phys_path", self.phys_path.as_ref())
            .text("vdev_enc_sysfs_path", self.enclosure_path.as_ref());
        self.put_redundancy(&mut pairs);
        pairs
            .some("whole_disk", self.whole_disk.map(u64::from))
            .flag("not_present", self.not_present)
            .flag("is_spare", self.is_spare);
        if rank == Rank::Top {
            pairs
                .number("metaslab_array", self.metaslab_array.0)
                .number("metaslab_shift", self.metaslab_shift.into())
                .number("ashift", self.ashift.into())
                .number("asize", self.asize_bytes)
                .number("is_log", (self.class == VdevClass::Log).into())
                .flag("non_allocating", self.non_allocating)
                .flag("removing", self.removing);
        } else {
            pairs.nonzero("ashift", self.ashift.into());
        }
        pairs
            .object("DTL", self.dtl)
            .object("com.delphix:indirect_object", self.indirect_object)
            .object("com.delphix:indirect_births", self.indirect_births)
            .some("com.delphix:prev_indirect_vdev", self.prev_indirect_vdev.map(|id| id.0))
            .txg("create_txg", self.create_txg)
            .object("com.delphix:vdev_zap_leaf", self.leaf_zap)
            .object("com.delphix:vdev_zap_top", self.top_zap)
            .object("com.klarasystems:vdev_zap_root", self.root_zap)
            .mark("com.datto:resilver_defer", self.resilver_defer)
            .all_of(&self.other);
        self.put_below(&mut pairs);
        pairs.0
    }

    fn put_redundancy(&self, pairs: &mut Pairs) {
        pairs.nonzero("nparity", self.parity as u64);
        if let Some(draid) = &self.draid {
            let has_domains = draid.failure_groups > 1;
            let children = self.children.len() as u64 / draid.failure_groups.max(1);
            pairs
                .number("draid_ndata", draid.data)
                .number("draid_nspares", draid.spares)
                .number("draid_ngroups", draid.groups)
                .some("draid_nchildren", has_domains.then_some(children));
        }
        pairs
            .mark("raidz_expanding", self.raidz_expanding)
            .numbers("raidz_expand_txgs", self.raidz_expand_txgs.iter().map(|txg| txg.0))
            .some("top_guid", self.top_guid.map(|guid| guid.0))
            .some("spareid", self.spare_id);
    }

    /// Children; for a leaf, its state.
    fn put_below(&self, pairs: &mut Pairs) {
        if !matches!(self.kind, VdevKind::Missing | VdevKind::Hole) && !self.is_leaf() {
            let children = self.children.iter().map(|child| {
                child.encode_as(if self.kind == VdevKind::Root { Rank::Top } else { Rank::Below })
            });
            pairs.put("children", NvValue::NvlistArray(children.collect()));
            return;
        }
        pairs
            .flag("offline", self.offline)
            .txg("resilver_txg", self.resilver_txg)
            .txg("rebuild_txg", self.rebuild_txg)
            .flag("faulted", self.faulted)
            .flag("degraded", self.degraded)
            .flag("removed", self.removed)
            .flag("unspare", self.unspare)
            .flag("is_hole", self.kind == VdevKind::Hole)
            .text("aux_state", self.aux_state.as_ref())
            .some("orig_guid", self.orig_guid.map(|guid| guid.0));
    }
}
