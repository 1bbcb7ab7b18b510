//! Intent-log blocks: allocated first, written once, verified against their chain.

use crate::lab::{FIRST_TXG, Lab, Layout, props, simulate};
use bytes::Bytes;
use cenote_codec::crypto::{Cipher, MasterKey};
use cenote_format::dnode::ObjectType;
use cenote_pool::alloc::AllocClass;
use cenote_pool::{DatasetKey, Durable, PoolError, ReadContext, WriteProps, Zbookmark};
use std::sync::Arc;

const CHAIN: [u64; 4] = [0x1234, 0x5678, 54, 1];

/// A log block with one record, whose body is `text`.
fn log_block(text: &[u8; 96]) -> Bytes {
    let mut block = vec![0; 8192];
    block[136..144].copy_from_slice(&(184u64 + 128).to_ne_bytes());
    block[184..192].copy_from_slice(&1u64.to_ne_bytes());
    block[192..200].copy_from_slice(&128u64.to_ne_bytes());
    block[216..312].copy_from_slice(text);
    block.into()
}

#[test]
fn a_log_block_is_written_where_its_pointer_says() {
    for (seed, cipher) in [(80, None), (81, Some(Cipher::Aes256Gcm)), (82, Some(Cipher::Aes128Ccm))] {
        simulate(seed, async |rt| {
            let lab = Lab::of(&rt, Layout::Mirror(2), 12).await;
            let key =
                cipher.map(|cipher| Arc::new(DatasetKey::new(MasterKey::new(cipher, 7, &[3; 32], &[4; 64]))));
            let object_type = ObjectType::INTENT_LOG;
            let props = WriteProps { object_type, class: Some(AllocClass::Log), key: key.clone(), ..props() };
            let bp = lab.pool.log_blocks().allocate(&lab.space, 8192, CHAIN, &props, FIRST_TXG).unwrap();
            assert_eq!((bp.checksum(), bp.psize().0, bp.is_encrypted()), (CHAIN, 8192, key.is_some()));
            let ctx = ReadContext::default().with_key(key.clone());
            let place = Zbookmark::default();
            // The chain ends at an unwritten block.
            assert!(matches!(lab.pool.log_blocks().read(&bp, &ctx).await, Err(PoolError::Checksum { .. })));
            assert_eq!(lab.checksum_errors(), 0, "a disk was blamed");

            let text: &[u8; 96] = &std::array::from_fn(|index| b'a' + (index % 26) as u8);
            let block = log_block(text);
            lab.pool
                .log_blocks()
                .write(&bp, block.clone(), key.as_deref(), place, Durable::AtOnce)
                .await
                .unwrap();
            let read = lab.pool.log_blocks().read(&bp, &ctx).await.unwrap();
            assert!(read[..144] == block[..144] && read[184..] == block[184..]);
            let stored = lab.pool.as_stored().read(&bp, &ctx).await.unwrap();
            assert_eq!(stored[216..312] == *text, key.is_none());

            let wrong = lab
                .pool
                .log_blocks()
                .write(&bp, block.slice(..4096), key.as_deref(), place, Durable::AtOnce)
                .await;
            assert!(matches!(wrong, Err(PoolError::BadWrite { .. })));
        });
    }
}
