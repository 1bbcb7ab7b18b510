//! CHAP: each side proves that it knows a secret without revealing it.
//!
//! ```text
//!   initiator: CHAP_A=algorithms     target: CHAP_A=one CHAP_I=id CHAP_C=challenge
//!   initiator: CHAP_N=name CHAP_R=hash(id, secret, challenge)  (and CHAP_I, CHAP_C of its own)
//!                                    target: (CHAP_N, CHAP_R)
//! ```
//!
//! Source: RFC 7143, section 12.1.3; RFC 1994.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest;
use md5::{Digest, Md5};

/// Size of our challenges.
pub const CHALLENGE_BYTES: usize = 16;
/// Longest challenge accepted from an initiator.
const CHALLENGE_BYTES_MAX: usize = 1024;

/// CHAP hash algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// `5`, which every initiator supports.
    Md5,
    /// `7`
    Sha256,
}

impl Algorithm {
    /// Chooses the first supported algorithm of an initiator's list.
    pub fn choose(list: &str) -> Option<Algorithm> {
        list.split(',').find_map(|number| match number {
            "5" => Some(Algorithm::Md5),
            "7" => Some(Algorithm::Sha256),
            _ => None,
        })
    }

    /// Its number in the protocol.
    pub fn number(self) -> &'static str {
        match self {
            Algorithm::Md5 => "5",
            Algorithm::Sha256 => "7",
        }
    }

    /// Computes the response to a challenge.
    pub fn response(self, id: u8, secret: &str, challenge: &[u8]) -> Vec<u8> {
        let said = [&[id], secret.as_bytes(), challenge].concat();
        match self {
            Algorithm::Md5 => Md5::digest(said).to_vec(),
            Algorithm::Sha256 => digest::digest(&digest::SHA256, &said).as_ref().to_vec(),
        }
    }

    /// Verifies a response.
    pub fn is_right(self, id: u8, secret: &str, challenge: &[u8], response: &[u8]) -> bool {
        verify_slices_are_equal(&self.response(id, secret, challenge), response).is_ok()
    }
}

/// Formats a binary value as text.
pub fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    std::iter::once("0x".to_owned()).chain(digits).collect()
}

/// Parses a binary value in either notation.
pub fn binary(text: &str) -> Option<Vec<u8>> {
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        let digits = digits.as_bytes();
        if !digits.len().is_multiple_of(2) || digits.len() > 2 * CHALLENGE_BYTES_MAX {
            return None;
        }
        let digit = |digit: u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
        return digits.as_chunks::<2>().0.iter().map(|[a, b]| Some(digit(*a)? << 4 | digit(*b)?)).collect();
    }
    let digits = text.strip_prefix("0b").or_else(|| text.strip_prefix("0B"))?.trim_end_matches('=');
    if digits.len() > 2 * CHALLENGE_BYTES_MAX {
        return None;
    }
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for digit in digits.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (bits, count) = ((bits << 6 | u32::from(value)) & 0xffff, count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_values_are_read_in_both_notations() {
        assert_eq!(binary("0x00fF").unwrap(), [0, 255]);
        assert_eq!(binary("0bAP8=").unwrap(), [0, 255]);
        assert_eq!(binary("0bSGVsbG8h").unwrap(), b"Hello!");
        assert_eq!(binary(&hex(b"abc")).unwrap(), b"abc");
        assert!(binary("0x0").is_none() && binary("0b*").is_none() && binary("12").is_none());
    }
}
