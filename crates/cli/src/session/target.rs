//! `pool/dataset[@snapshot][:/path]`.

use std::fmt;
use std::str::FromStr;

/// A dataset, and perhaps a path in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// `pool/dataset[@snapshot]`.
    pub dataset: String,
    /// The path from the dataset's root, if one was given.
    pub path: Option<String>,
}

impl Target {
    /// The pool's name.
    pub fn pool(&self) -> &str {
        pool_of(&self.dataset)
    }

    /// The path, or the root.
    pub fn path_or_root(&self) -> &str {
        self.path.as_deref().unwrap_or("/")
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{}:{path}", self.dataset),
            None => f.write_str(&self.dataset),
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        // Names of datasets and snapshots may hold a colon, so a path is what begins with ":/". A colon at the end is the root's.
        let (dataset, path) = match (text.find(":/"), text.strip_suffix(':')) {
            (Some(at), _) => (&text[..at], Some(text[at + 1..].to_string())),
            (None, Some(dataset)) => (dataset, Some("/".to_string())),
            (None, None) => (text, None),
        };
        if dataset.is_empty() || dataset.starts_with('/') || dataset.ends_with('/') || dataset.contains("//")
        {
            return Err(format!("'{text}' names no dataset: write POOL/DATASET[@SNAPSHOT][:/PATH]"));
        }
        Ok(Target { dataset: dataset.into(), path })
    }
}

/// The pool that a dataset, snapshot or bookmark is of.
pub fn pool_of(name: &(impl AsRef<str> + ?Sized)) -> &str {
    name.as_ref().split(['/', '@', '#']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_what_begins_with_colon_slash() {
        let target: Target = "tank/home:x@snap:/a:/b".parse().unwrap();
        assert_eq!(target.dataset, "tank/home:x@snap");
        assert_eq!(target.path.as_deref(), Some("/a:/b"));
        assert_eq!(target.pool(), "tank");
        assert_eq!("tank@s".parse::<Target>().unwrap().pool(), "tank");
        assert_eq!("tank/a:".parse::<Target>().unwrap(), "tank/a:/".parse().unwrap());
        assert!("/tank".parse::<Target>().is_err());
        assert!(":/x".parse::<Target>().is_err());
    }
}
