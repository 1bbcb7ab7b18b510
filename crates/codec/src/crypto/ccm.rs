//! AES-CCM with a 12-byte nonce and a 16-byte tag: CBC-MAC over everything, then counter mode.
//!
//! ```text
//! B0   flags 0x3a (| 0x40 with AAD) | nonce 12 | data length 3       first block of the MAC
//! A_i  flags 0x02                   | nonce 12 | counter i    3      A_0 masks the tag, A_1.. the data
//! ```
//!
//! The MAC chains blocks, so AES latency limits it; to approach that limit the whole chain runs inside one
//! call of the cipher's back end. Counter mode and MAC alternate over pieces that fit in the first-level
//! cache.
//!
//! Source: RFC 3610, NIST SP 800-38C.

use super::{CryptoError, Iv, Mac};
use aes::cipher::consts::U16;
use aes::cipher::{
    BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser, InnerIvInit, KeyInit,
    StreamCipher, StreamCipherCoreWrapper,
};
use aes::{Aes128, Aes192, Aes256, Block};
use ctr::CtrCore;
use ctr::flavors::Ctr32BE;

/// Length and counter have three bytes.
const DATA_BYTES_MAX: usize = (1 << 24) - 1;
/// Shorter AADs have two length bytes.
const SHORT_AAD_BYTES: usize = 0xff00;
const PIECE_BYTES: usize = 16 << 10;

pub(super) enum Ccm {
    Aes128(Box<Aes128>),
    Aes192(Box<Aes192>),
    Aes256(Box<Aes256>),
}

impl Ccm {
    pub(super) fn new(key: &[u8]) -> Self {
        const LENGTH: &str = "the length was matched";
        match key.len() {
            16 => Ccm::Aes128(Box::new(Aes128::new_from_slice(key).expect(LENGTH))),
            24 => Ccm::Aes192(Box::new(Aes192::new_from_slice(key).expect(LENGTH))),
            _ => Ccm::Aes256(Box::new(Aes256::new_from_slice(key).expect(LENGTH))),
        }
    }

    pub(super) fn open(&self, iv: &Iv, mac: &Mac, aad: &[u8], data: &mut [u8]) -> Result<(), CryptoError> {
        let computed = self.run(iv, aad, data, Order::DecryptThenMac)?;
        aws_lc_rs::constant_time::verify_slices_are_equal(&computed, mac).map_err(|_| CryptoError::Mac)
    }

    pub(super) fn seal(&self, iv: &Iv, aad: &[u8], data: &mut [u8]) -> Result<Mac, CryptoError> {
        self.run(iv, aad, data, Order::MacThenEncrypt)
    }

    fn run(&self, iv: &Iv, aad: &[u8], data: &mut [u8], order: Order) -> Result<Mac, CryptoError> {
        if data.len() > DATA_BYTES_MAX {
            return Err(CryptoError::TooLong(data.len()));
        }
        Ok(match self {
            Ccm::Aes128(key) => crypt(&**key, iv, aad, data, order),
            Ccm::Aes192(key) => crypt(&**key, iv, aad, data, order),
            Ccm::Aes256(key) => crypt(&**key, iv, aad, data, order),
        })
    }
}

/// The MAC is over the plaintext.
#[derive(Clone, Copy)]
enum Order {
    MacThenEncrypt,
    DecryptThenMac,
}

fn crypt<C>(key: &C, iv: &Iv, aad: &[u8], data: &mut [u8], order: Order) -> Mac
where
    C: BlockCipherEncrypt<BlockSize = U16>,
{
    let mut mac = CbcMac::start(key, iv, aad, data.len());
    let first_counter = block(0x02, iv, 0);
    let mut stream =
        StreamCipherCoreWrapper::from_core(CtrCore::<&C, Ctr32BE>::inner_iv_init(key, &first_counter));
    let mut mask = Block::default();
    stream.apply_keystream(&mut mask);
    for piece in data.chunks_mut(PIECE_BYTES) {
        match order {
            Order::MacThenEncrypt => {
                mac.absorb(piece);
                stream.apply_keystream(piece);
            }
            Order::DecryptThenMac => {
                stream.apply_keystream(piece);
                mac.absorb(piece);
            }
        }
    }
    std::array::from_fn(|i| mac.state[i] ^ mask[i])
}

/// Flags, nonce and a 3-byte number, at most [`DATA_BYTES_MAX`].
fn block(flags: u8, iv: &Iv, number: usize) -> Block {
    let mut block = Block::default();
    block[0] = flags;
    block[1..13].copy_from_slice(iv);
    block[13..].copy_from_slice(&(number as u32).to_be_bytes()[1..]);
    block
}

struct CbcMac<'k, C> {
    key: &'k C,
    state: Block,
}

impl<'k, C: BlockCipherEncrypt<BlockSize = U16>> CbcMac<'k, C> {
    fn start(key: &'k C, iv: &Iv, aad: &[u8], data_bytes: usize) -> Self {
        let flags = if aad.is_empty() { 0x3a } else { 0x7a };
        let mut mac = CbcMac { key, state: Block::default() };
        mac.absorb(&block(flags, iv, data_bytes));
        if !aad.is_empty() {
            mac.absorb(&with_length(aad));
        }
        mac
    }

    /// Chains `data`. Zeros pad an incomplete block, which must be the last.
    fn absorb(&mut self, data: &[u8]) {
        let (blocks, tail) = data.as_chunks::<16>();
        self.key.encrypt_with_backend(Chain { state: &mut self.state, blocks });
        if !tail.is_empty() {
            let mut last = [0; 16];
            last[..tail.len()].copy_from_slice(tail);
            self.key.encrypt_with_backend(Chain { state: &mut self.state, blocks: &[last] });
        }
    }
}

fn with_length(aad: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(6 + aad.len());
    if aad.len() < SHORT_AAD_BYTES {
        framed.extend_from_slice(&(aad.len() as u16).to_be_bytes());
    } else {
        // AAD is part of a block, so its length fits in 32 bits.
        framed.extend_from_slice(&[0xff, 0xfe]);
        framed.extend_from_slice(&(aad.len() as u32).to_be_bytes());
    }
    framed.extend_from_slice(aad);
    framed
}

/// Runs the chain with the cipher's state in registers.
struct Chain<'a> {
    state: &'a mut Block,
    blocks: &'a [[u8; 16]],
}

impl BlockSizeUser for Chain<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for Chain<'_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let mut state = *self.state;
        for block in self.blocks {
            for (byte, input) in state.iter_mut().zip(block) {
                *byte ^= input;
            }
            backend.encrypt_block((&mut state).into());
        }
        *self.state = state;
    }
}
