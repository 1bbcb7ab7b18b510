//! The cache without a pool: which blocks become resident, and which stay.

use cenote_runtime::Runtime;

use super::*;

fn block(n: u64, class: Class) -> Identity {
    let mut words = [0; 16];
    let metadata = u64::from(class == Class::Metadata);
    (words[0], words[1], words[6], words[10], words[12]) =
        (8, 4096 * n, (metadata << 56) | (19 << 48), 1, n * n);
    let block = Identity::of(&Blkptr::from_words(words)).expect("no hole");
    assert_eq!(block.class, class);
    block
}

fn cache(policy: PolicyName, blocks: usize) -> BlockCache {
    BlockCache::new(CacheOptions { budget_bytes: blocks * (1000 + OVERHEAD_BYTES), policy, data: true })
}

/// Reads as [`BlockCache::read`] does. Returns whether it was a hit.
fn read(cache: &BlockCache, block: &Identity, now_ns: u64) -> bool {
    let hit = cache.find(block, now_ns, |_| ()).is_some();
    if !hit {
        cache.insert(block, vec![7; 1000].into(), Caching::default(), now_ns);
    }
    hit
}

#[test]
fn no_policy_exceeds_the_budget_and_each_holds_what_is_used_often() {
    for policy in PolicyName::ALL.into_iter().filter(|name| *name != PolicyName::Belady) {
        let cache = cache(policy, 40);
        let often: Vec<Identity> = (0..8).map(|n| block(n, Class::Metadata)).collect();
        let (mut hits, mut reads) = (0, 0);
        for n in 0..4000 {
            let now_ns = n * 100_000_000;
            read(&cache, &block(1000 + n, if n % 2 == 0 { Class::Data } else { Class::Metadata }), now_ns);
            reads += 1;
            hits += u64::from(read(&cache, &often[n as usize % 8], now_ns));
            let stats = cache.stats();
            assert!(stats.bytes <= stats.budget_bytes, "{policy}");
            let content = stats.data.content_bytes + stats.metadata.content_bytes;
            assert_eq!(
                (stats.blocks * 1000, stats.bytes),
                (content, content + stats.blocks * OVERHEAD_BYTES as u64)
            );
        }
        assert!(hits * 100 >= reads * 95, "{policy}: {hits} of {reads}");
    }
}

#[test]
fn an_indirect_block_is_cached_without_the_holes_at_its_end() {
    let cache = cache(PolicyName::OpenZfs, 400);
    let blocks: Vec<Identity> = (1..4).map(|n| block(n, Class::Metadata)).collect();
    for (block, used) in blocks.iter().zip([1, 129, 128 << 10]) {
        let content = [vec![7; used], vec![0; (128 << 10) - used]].concat();
        cache.insert(block, content.into(), Caching::default(), 1);
    }
    let cached = blocks.iter().map(|block| cache.find(block, 2, Bytes::len));
    assert_eq!(cached.collect::<Vec<_>>(), [Some(128), Some(256), Some(128 << 10)]);
    assert_eq!(cache.stats().metadata.content_bytes, 128 + 256 + (128 << 10));
}

#[test]
fn a_policy_can_be_changed_while_blocks_are_resident() {
    let cache = cache(PolicyName::Lru, 20);
    let blocks: Vec<Identity> = (0..20).map(|n| block(n, Class::Data)).collect();
    blocks.iter().for_each(|block| assert!(!read(&cache, block, 1)));
    for policy in [PolicyName::S3Fifo, PolicyName::Lirs, PolicyName::Zol062, PolicyName::OpenZfs] {
        cache.set_policy(policy);
        assert!(blocks.iter().all(|block| read(&cache, block, 2)), "{policy}");
    }
    cache.set_budget(5 * (1000 + OVERHEAD_BYTES));
    assert_eq!(cache.stats().blocks, 5);
    assert_eq!(blocks.iter().filter(|block| cache.find(block, 3, |_| ()).is_some()).count(), 5);
}

#[test]
fn what_is_larger_than_the_cache_does_not_push_others_out() {
    let cache = cache(PolicyName::OpenZfs, 4);
    let small = block(1, Class::Data);
    read(&cache, &small, 1);
    cache.insert(&block(2, Class::Data), vec![0; 10_000].into(), Caching::default(), 2);
    assert_eq!(cache.stats().blocks, 1);
    assert!(read(&cache, &small, 3));
}

#[test]
fn blocks_of_files_stay_out_unless_asked_for() {
    let cache = BlockCache::new(CacheOptions::metadata(1 << 20));
    let mut words = [0; 16];
    (words[0], words[1], words[6], words[10]) = (8, 4096, 19 << 48, 1);
    let data = Blkptr::from_words(words);
    assert!(cache.cached(&data).is_none());
    cache.set_data(true);
    assert!(cache.cached(&data).is_some());
}

#[test]
fn a_recording_has_every_look_up_until_it_is_dropped() {
    let cache = cache(PolicyName::Lru, 4);
    let mut words = [0; 16];
    (words[0], words[1], words[6], words[10]) = (8, 4096, (19 << 48) | 7, 1);
    let (bp, ctx) = (Blkptr::from_words(words), ReadContext::default());
    let wanted = Identity::of(&bp).expect("no hole");
    let look_up = |now_ns| cache.look_up(&wanted, &bp, &ctx, now_ns).is_some();
    assert!(!look_up(1));
    let recording = cache.look_ups().record();
    assert!(!look_up(2));
    cache.insert(&wanted, vec![7; 1000].into(), Caching::default(), 2);
    assert!(look_up(3));
    let seen: Vec<_> = recording.take().iter().map(|seen| (seen.now_ns, seen.bytes, seen.wish)).collect();
    assert_eq!(seen, [(2, 8 << 9, Wish::Miss), (3, 1000, Wish::Hit)]);
    drop(recording);
    assert!(look_up(4));
    assert!(!cache.look_ups().is_on());
}

#[test]
fn plain_text_of_encrypted_blocks_goes_with_the_key() {
    let cache = cache(PolicyName::OpenZfs, 8);
    let block = |n: u64, encrypted: u64| {
        let mut words = [0; 16];
        (words[0], words[1], words[6], words[10]) = (8, 4096 * n, (19 << 48) | (encrypted << 61), 1);
        Identity::of(&Blkptr::from_words(words)).expect("no hole")
    };
    let (open, secret) = (block(1, 0), block(2, 1));
    read(&cache, &open, 1);
    read(&cache, &secret, 1);
    cache.forget_encrypted();
    assert!(cache.find(&open, 2, |_| ()).is_some() && cache.find(&secret, 2, |_| ()).is_none());
    assert_eq!(cache.stats().blocks, 1);
}

#[test]
fn a_dataset_says_what_of_it_is_cached_and_what_a_cache_device_may_take() {
    for (primary, cached) in
        [(Scope::All, [true, true]), (Scope::Metadata, [false, true]), (Scope::None, [false, false])]
    {
        let cache = cache(PolicyName::Lru, 8);
        let insert = |n, class| {
            let block = block(n, class);
            cache.insert(
                &block,
                vec![7; 1000].into(),
                Caching { primary, secondary: Scope::Metadata, ..Caching::default() },
                n,
            );
            cache.find(&block, n, |_| ()).is_some()
        };
        assert_eq!([insert(1, Class::Data), insert(2, Class::Metadata)], cached, "{primary:?}");
        cache.set_budget(0);
        let stats = cache.stats();
        let [data, metadata] = cached.map(|cached| 1000 * u64::from(cached));
        assert_eq!((stats.evicted_l2_ineligible_bytes, stats.evicted_l2_eligible_bytes), (data, metadata));
    }
}

#[test]
fn blocks_that_are_moved_closer_together_stay_what_they_were() {
    let runtime = Runtime::real(Some(1));
    let cache = cache(PolicyName::Lru, 2000);
    let blocks: Vec<Identity> = (0..2000).map(|n| block(n, Class::Data)).collect();
    let content = |n: usize| Bytes::from(vec![n as u8; 1000]);
    for (n, block) in blocks.iter().enumerate() {
        cache.insert(block, content(n), Caching::default(), 1);
    }
    // A reader still holds one of the blocks, and three quarters of the others are gone.
    let read = cache.find(&blocks[4], 2, Bytes::clone).expect("it is there");
    for block in blocks.iter().enumerate().filter(|(n, _)| n % 4 != 0).map(|(_, block)| block) {
        cache.keeper.lock().policy.remove(block.id);
        cache.shard(block.id).write().remove(block.id);
    }
    let before = cache.stats();
    assert_eq!(runtime.block_on(cache.gather(&runtime)), 500 * 1000);
    assert_eq!(cache.stats(), before);
    for (n, block) in blocks.iter().enumerate() {
        assert_eq!(cache.find(block, 3, Bytes::clone), (n % 4 == 0).then(|| content(n)), "block {n}");
    }
    assert_eq!(read, content(4));
    assert_ne!(
        cache.find(&blocks[4], 3, Bytes::clone).map(|bytes| bytes.as_ptr()),
        Some(read.as_ptr()),
        "it was moved"
    );
}
