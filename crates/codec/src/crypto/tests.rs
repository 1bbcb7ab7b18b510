use super::*;
use cenote_testkit::{needs, shared_path};

fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

/// OpenZFS's test vectors, outside this repository.
fn vectors(name: &str) -> serde_json::Value {
    let path = shared_path(&format!("fixtures/crypto/{name}"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Runs every vector with our nonce and tag lengths; returns counts of valid and invalid ones.
fn run_vectors(name: &str, cipher: impl Fn(usize) -> Cipher) -> (usize, usize) {
    let (mut valid, mut invalid) = (0, 0);
    for group in vectors(name)["testGroups"].as_array().unwrap() {
        if group["ivSize"] != 96 || group["tagSize"] != 128 {
            continue;
        }
        for test in group["tests"].as_array().unwrap() {
            let field = |name: &str| hex(test[name].as_str().unwrap());
            let (key, message, aad) = (field("key"), field("msg"), field("aad"));
            let (Ok(iv), Ok(tag)) = (field("iv").try_into(), field("tag").try_into()) else { continue };
            let mut padded = [0; 32];
            padded[..key.len()].copy_from_slice(&key);
            let block_key = BlockKey::new(cipher(key.len()), &padded);

            let mut data = field("ct");
            let opened = block_key.open(&iv, &tag, &aad, &mut data);
            let id = &test["tcId"];
            if test["result"] == "valid" {
                assert_eq!((opened, &data), (Ok(()), &message), "{name} {id}");
                let sealed = block_key.seal(&iv, &aad, &mut data).unwrap();
                assert_eq!((sealed, data), (tag, field("ct")), "{name} {id}");
                valid += 1;
            } else {
                assert_eq!(opened, Err(CryptoError::Mac), "{name} {id}");
                assert!(data.iter().all(|byte| *byte == 0), "unauthenticated plaintext left in {name} {id}");
                invalid += 1;
            }
        }
    }
    (valid, invalid)
}

#[needs("fixtures/crypto")]
#[test]
fn ccm_agrees_with_wycheproof() {
    let cipher = |bytes| match bytes {
        16 => Cipher::Aes128Ccm,
        24 => Cipher::Aes192Ccm,
        _ => Cipher::Aes256Ccm,
    };
    let (valid, invalid) = run_vectors("aes_ccm_test.json", cipher);
    assert!(valid > 50 && invalid > 20, "{valid} valid, {invalid} invalid");
}

#[needs("fixtures/crypto")]
#[test]
fn gcm_agrees_with_wycheproof() {
    let cipher = |bytes| match bytes {
        16 => Cipher::Aes128Gcm,
        24 => Cipher::Aes192Gcm,
        _ => Cipher::Aes256Gcm,
    };
    let (valid, invalid) = run_vectors("aes_gcm_test.json", cipher);
    assert!(valid > 50 && invalid > 20, "{valid} valid, {invalid} invalid");
}

fn block_key(cipher: Cipher) -> BlockKey {
    BlockKey::new(cipher, &std::array::from_fn(|i| i as u8))
}

#[test]
fn ccm_holds_a_block_just_below_16_mib_and_refuses_one_of_16() {
    for cipher in [Cipher::Aes128Ccm, Cipher::Aes256Ccm] {
        let key = block_key(cipher);
        let mut data = vec![7; (16 << 20) - 512];
        let mac = key.seal(&[1; 12], b"", &mut data).unwrap();
        assert_ne!(data[..64], [7; 64]);
        assert_eq!(key.open(&[1; 12], &mac, b"", &mut data), Ok(()));
        assert!(data.iter().all(|byte| *byte == 7));

        let mut data = vec![7; 16 << 20];
        assert_eq!(key.seal(&[1; 12], b"", &mut data), Err(CryptoError::TooLong(16 << 20)));
    }
    let mut data = vec![7; 16 << 20];
    let key = block_key(Cipher::Aes256Gcm);
    let mac = key.seal(&[1; 12], b"", &mut data).unwrap();
    assert_eq!(key.open(&[1; 12], &mac, b"", &mut data), Ok(()));
}

#[test]
fn associated_data_of_every_length_class_is_covered() {
    // At 65,280 bytes CCM changes its length encoding.
    for cipher in Cipher::ALL {
        let key = block_key(cipher);
        for aad_bytes in [0, 1, 14, 15, 16, 0xfeff, 0xff00, 0x1_0001] {
            let mut aad = vec![5; aad_bytes];
            let mut data = b"some bytes that are no multiple of sixteen".to_vec();
            let mac = key.seal(&[2; 12], &aad, &mut data).unwrap();
            let mut copy = data.clone();
            assert_eq!(key.open(&[2; 12], &mac, &aad, &mut copy), Ok(()), "{cipher:?} {aad_bytes}");
            if let Some(last) = aad.last_mut() {
                *last ^= 1;
                assert_eq!(key.open(&[2; 12], &mac, &aad, &mut data), Err(CryptoError::Mac));
            }
        }
    }
}

fn wrapped(cipher: Cipher, version: KeyVersion, wrapping: &WrappingKey) -> WrappedKey {
    let mut master = [0; 32];
    master[..cipher.key_bytes()].fill(0x3c);
    let mut key =
        WrappedKey { cipher, version, guid: 77, iv: [9; 12], mac: [0; 16], master, hmac: [0x5a; 64] };
    key.seal(wrapping).unwrap();
    key
}

#[test]
fn a_wrapped_key_opens_with_its_own_wrapping_key_and_identity_only() {
    let wrapping = WrappingKey::from_raw(&[1; 32]).unwrap();
    let other = WrappingKey::from_raw(&[2; 32]).unwrap();
    for cipher in Cipher::ALL {
        for version in [KeyVersion::V0, KeyVersion::V1] {
            let key = wrapped(cipher, version, &wrapping);
            let master = key.unwrap(&wrapping).unwrap();
            assert_eq!((master.cipher(), master.guid()), (cipher, 77));
            assert_eq!(key.unwrap(&other).err(), Some(CryptoError::WrongKey));
            let stolen = WrappedKey { guid: 78, ..key };
            assert_eq!(stolen.unwrap(&wrapping).err(), Some(CryptoError::WrongKey));
        }
    }
}

#[test]
fn a_key_that_is_wrapped_anew_is_the_same_key() {
    let (old, new) = (WrappingKey::from_raw(&[1; 32]).unwrap(), WrappingKey::from_raw(&[2; 32]).unwrap());
    for cipher in Cipher::ALL {
        let mut next = 0;
        let master =
            MasterKey::random(cipher, |bytes| bytes.iter_mut().for_each(|b| (*b, next) = (next, next + 1)));
        let mut data = b"secret".to_vec();
        let mac = master.block_key(&[1; 8]).seal(&[3; 12], b"", &mut data).unwrap();
        let again = master.wrap(&old, [4; 12]).unwrap().unwrap(&old).unwrap().wrap(&new, [5; 12]).unwrap();
        assert_eq!(again.unwrap(&old).err(), Some(CryptoError::WrongKey));
        let again = again.unwrap(&new).unwrap();
        assert_eq!(again.mac(b"x"), master.mac(b"x"));
        assert_eq!(again.block_key(&[1; 8]).open(&[3; 12], &mac, b"", &mut data), Ok(()));
        assert_eq!(data, b"secret");
    }
}

#[test]
fn blocks_of_two_salts_have_different_keys() {
    let wrapping = WrappingKey::from_raw(&[1; 32]).unwrap();
    let master = wrapped(Cipher::Aes256Gcm, KeyVersion::V1, &wrapping).unwrap(&wrapping).unwrap();
    let mut data = b"secret".to_vec();
    let mac = master.block_key(&[1; 8]).seal(&[3; 12], b"", &mut data).unwrap();
    let mut copy = data.clone();
    assert_eq!(master.block_key(&[2; 8]).open(&[3; 12], &mac, b"", &mut copy), Err(CryptoError::Mac));
    assert_eq!(master.block_key(&[1; 8]).open(&[3; 12], &mac, b"", &mut data), Ok(()));
    assert_eq!(data, b"secret");
}

#[test]
fn wrapping_keys_come_from_what_the_user_types() {
    // RFC 6070 has other salt lengths only; this one comes from Python's hashlib.
    let salt = u64::from_le_bytes([1, 2, 3, 4, 5, 6, 7, 8]);
    let rounds = std::num::NonZeroU32::new(1000).unwrap();
    let typed = WrappingKey::from_passphrase(b"correct horse battery", salt, rounds);
    let same =
        WrappingKey::from_hex("a6895f050e873441419f7d3c58c101c0d8a5939457cbb7476d632c48430c659b").unwrap();
    let key = wrapped(Cipher::Aes128Ccm, KeyVersion::V1, &typed);
    assert!(key.unwrap(&same).is_ok());

    for bad in ["", "00", &"0".repeat(63), &"0".repeat(65), &"g".repeat(64), &"é".repeat(32)] {
        assert!(matches!(WrappingKey::from_hex(bad), Err(CryptoError::BadKeyFormat(_))), "{bad}");
    }
    assert!(WrappingKey::from_raw(&[0; 31]).is_err());
}
