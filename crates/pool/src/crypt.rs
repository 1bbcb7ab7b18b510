//! A dataset's encryption key, ready to open blocks.
//!
//! Every encrypted dataset has a random master key and HMAC key, which the DSL keeps wrapped. Each block
//! names a salt; the key that encrypts it is derived from the master key and that salt. Blocks written
//! around the same time share a salt, so the last derived keys are kept.

/// The unwrapped keys of one encrypted dataset and the cipher they serve.
pub struct DatasetKey {
    suite: u64,
    version: u64,
    master: Vec<u8>,
    hmac: Vec<u8>,
}

impl DatasetKey {
    /// `suite`: a number of `enum zio_encrypt`; `version`: of the wrapped key object; `master` and `hmac` unwrapped.
    pub fn new(suite: u64, version: u64, master: &[u8], hmac: &[u8]) -> DatasetKey {
        DatasetKey { suite, version, master: master.to_vec(), hmac: hmac.to_vec() }
    }

    /// The cipher, a number of `enum zio_encrypt`.
    pub fn suite(&self) -> u64 {
        self.suite
    }

    /// Format version of the key object; decides how object-set MACs are computed.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The key for MACs of what is not encrypted.
    pub fn hmac_key(&self) -> &[u8] {
        &self.hmac
    }

    /// The key that block keys are derived from.
    pub fn master_key(&self) -> &[u8] {
        &self.master
    }
}

// Keys do not belong in a log.
impl std::fmt::Debug for DatasetKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DatasetKey(suite {})", self.suite)
    }
}
