//! Answers of a store: lists and errors, in XML. Texts are cut and cleaned before they become part of a
//! message.

use hyper::StatusCode;
use roxmltree::{Document, Node};

use super::connections::Answer;
use crate::store::{Page, StoreError};

/// Longest part of a store's message.
const MESSAGE_CHARS_MAX: usize = 200;

/// The names of a list, without `prefix`.
pub(super) fn page(body: &[u8], prefix: &str) -> Result<Page, StoreError> {
    let malformed = || StoreError::Malformed("a list".into());
    let text = std::str::from_utf8(body).map_err(|_| malformed())?;
    let document = Document::parse(text).map_err(|_| malformed())?;
    let root = document.root_element();
    if root.tag_name().name() != "ListBucketResult" {
        return Err(malformed());
    }
    let mut page = Page { keys: Vec::new(), has_more: child(root, "IsTruncated") == Some("true") };
    for object in root.children().filter(|node| node.tag_name().name() == "Contents") {
        let key = child(object, "Key").and_then(|key| key.strip_prefix(prefix)).ok_or_else(malformed)?;
        if page.keys.last().is_some_and(|last| last.as_str() >= key) {
            return Err(malformed());
        }
        page.keys.push(key.to_owned());
    }
    Ok(page)
}

fn child<'a>(node: Node<'a, '_>, name: &str) -> Option<&'a str> {
    node.children().find(|child| child.tag_name().name() == name)?.text()
}

/// The meaning of an answer that is no success.
pub(super) fn error(answer: &Answer, key: &str) -> StoreError {
    let text = std::str::from_utf8(&answer.body).unwrap_or_default();
    let document = Document::parse(text).ok();
    let part = |name| document.as_ref().and_then(|document| child(document.root_element(), name));
    let code = part("Code").unwrap_or_default();
    let why = cleaned(&format!("{} {code} {}", answer.status.as_u16(), part("Message").unwrap_or_default()));
    match (answer.status, code) {
        (StatusCode::NOT_FOUND, "NoSuchBucket") => StoreError::Refused(why.into()),
        (StatusCode::NOT_FOUND, _) if !key.is_empty() => StoreError::Missing(key.into()),
        (_, "SlowDown" | "ConditionalRequestConflict" | "OperationAborted" | "RequestTimeout")
        | (StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS | StatusCode::CONFLICT, _) => {
            StoreError::Busy(why.into())
        }
        (status, _) if status.is_server_error() => StoreError::Unknown(why.into()),
        _ => StoreError::Refused(why.into()),
    }
}

fn cleaned(message: &str) -> String {
    message.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MESSAGE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn lists_are_read_and_damaged_ones_refused() {
        let list = r#"<?xml version="1.0" encoding="UTF-8"?>
            <ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><IsTruncated>true</IsTruncated>
            <Contents><Key>p/commit/01</Key><Size>7</Size></Contents>
            <Contents><Key>p/commit/02</Key></Contents></ListBucketResult>"#;
        let expected = Page { keys: vec!["commit/01".into(), "commit/02".into()], has_more: true };
        assert_eq!(page(list.as_bytes(), "p/").unwrap(), expected);
        assert!(page(list.as_bytes(), "q/").is_err(), "names of others");
        assert!(page(list.replace("02", "00").as_bytes(), "p/").is_err(), "not in order");
        for end in 0..list.len() {
            assert!(page(&list.as_bytes()[..end], "p/").is_err());
        }
    }

    #[test]
    fn errors_are_told_apart_by_status_and_code() {
        let answer = |status: u16, code: &str| {
            let body = format!("<Error><Code>{code}</Code><Message>because\n</Message></Error>");
            Answer { status: StatusCode::from_u16(status).unwrap(), tag: String::new(), body: body.into() }
        };
        assert!(matches!(error(&answer(404, "NoSuchKey"), "k"), StoreError::Missing(_)));
        assert!(matches!(error(&answer(404, "NoSuchBucket"), "k"), StoreError::Refused(_)));
        assert!(matches!(error(&answer(503, "SlowDown"), "k"), StoreError::Busy(_)));
        assert!(matches!(error(&answer(409, "ConditionalRequestConflict"), ""), StoreError::Busy(_)));
        assert!(matches!(error(&answer(500, "InternalError"), ""), StoreError::Unknown(_)));
        let refused = error(&answer(403, "AccessDenied"), "k");
        assert_eq!(refused.to_string(), "the store refuses: 403 AccessDenied because ");
        let empty = Answer { body: Bytes::new(), ..answer(403, "") };
        assert!(matches!(error(&empty, "k"), StoreError::Refused(_)));
    }
}
