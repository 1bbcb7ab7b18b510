//! Signatures of requests: AWS Signature Version 4, in the header `Authorization`.
//!
//! Source: "Authenticating Requests: Using the Authorization Header (AWS Signature Version 4)" of Amazon's S3
//! documentation, and its example.

use aws_lc_rs::digest::{Context, SHA256, digest};
use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use chrono::DateTime;

use super::credentials::Credentials;
use crate::store::Body;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const SERVICE: &str = "s3";

/// The signed parts of a request.
pub(super) struct Signed<'a> {
    pub(super) method: &'a str,
    pub(super) host: &'a str,
    /// Encoded.
    pub(super) path: &'a str,
    /// In the order of names.
    pub(super) query: &'a [(&'static str, String)],
    /// `None`: not signed.
    pub(super) body: Option<&'a Body>,
    pub(super) region: &'a str,
    pub(super) unix_secs: u64,
}

impl Signed<'_> {
    pub(super) fn canonical_query(&self) -> String {
        let pairs = self.query.iter().map(|(name, value)| format!("{name}={}", encoded(value, false)));
        pairs.collect::<Vec<_>>().join("&")
    }

    /// `Host`, and the headers that prove the signer's identity.
    pub(super) fn headers(&self, credentials: &Credentials) -> Vec<(&'static str, String)> {
        let when = DateTime::from_timestamp(self.unix_secs as i64, 0).unwrap_or_default();
        let (time, day) = (when.format("%Y%m%dT%H%M%SZ").to_string(), when.format("%Y%m%d").to_string());
        let mut headers = vec![
            ("host", self.host.to_owned()),
            ("x-amz-content-sha256", self.body.map_or("UNSIGNED-PAYLOAD".into(), hash)),
            ("x-amz-date", time.clone()),
        ];
        if let Some(token) = &credentials.token {
            headers.push(("x-amz-security-token", token.to_string()));
        }
        let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        let mut canonical = format!("{}\n{}\n{}\n", self.method, self.path, self.canonical_query());
        for (name, value) in &headers {
            canonical += &format!("{name}:{value}\n");
        }
        canonical += &format!("\n{names}\n{}", headers[1].1);
        let scope = format!("{day}/{}/{SERVICE}/aws4_request", self.region);
        let hashed = hex(digest(&SHA256, canonical.as_bytes()).as_ref());
        let to_sign = format!("{ALGORITHM}\n{time}\n{scope}\n{hashed}");
        let secret = zeroize::Zeroizing::new(format!("AWS4{}", *credentials.secret));
        let mut key = Key::new(HMAC_SHA256, secret.as_bytes());
        for part in [&day, self.region, SERVICE, "aws4_request"] {
            key = Key::new(HMAC_SHA256, sign(&key, part.as_bytes()).as_ref());
        }
        let signature = hex(sign(&key, to_sign.as_bytes()).as_ref());
        let value = format!(
            "{ALGORITHM} Credential={}/{scope},SignedHeaders={names},Signature={signature}",
            credentials.id
        );
        headers.push(("authorization", value));
        headers
    }
}

fn hash(body: &Body) -> String {
    let mut context = Context::new(&SHA256);
    body.iter().for_each(|piece| context.update(piece));
    hex(context.finish().as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        text += &format!("{byte:02x}");
        text
    })
}

/// Percent-encoding of all but unreserved characters.
pub(super) fn encoded(text: &str, keeps_slashes: bool) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        match byte {
            b'/' if keeps_slashes => out.push('/'),
            byte if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => out.push(byte.into()),
            byte => out += &format!("%{byte:02X}"),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "Example: GET Bucket (List Objects)" of the documentation.
    #[test]
    fn the_documentations_example_has_its_signature() {
        let credentials = Credentials {
            id: "AKIAIOSFODNN7EXAMPLE".into(),
            secret: zeroize::Zeroizing::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into()),
            token: None,
        };
        let empty = Body::new();
        let signed = Signed {
            method: "GET",
            host: "examplebucket.s3.amazonaws.com",
            path: "/",
            query: &[("max-keys", "2".into()), ("prefix", "J".into())],
            body: Some(&empty),
            region: "us-east-1",
            unix_secs: 1_369_353_600, // 2013-05-24
        };
        let headers = signed.headers(&credentials);
        let expected = "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
                        SignedHeaders=host;x-amz-content-sha256;x-amz-date,\
                        Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7";
        assert_eq!(headers.last(), Some(&("authorization", expected.to_owned())));
        assert_eq!(encoded("a b/ü~", true), "a%20b/%C3%BC~");
        assert_eq!(encoded("a/b", false), "a%2Fb");
    }
}
