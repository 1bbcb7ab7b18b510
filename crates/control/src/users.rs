//! Users and groups of this machine, from the files that list them.

const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// The number of a user.
pub fn uid(name: &str) -> Option<u64> {
    id_of(&listed(USERS), name)
}

/// The number of a group.
pub fn gid(name: &str) -> Option<u64> {
    id_of(&listed(GROUPS), name)
}

/// The name of a user.
pub fn user(uid: u64) -> Option<String> {
    name_of(&listed(USERS), uid)
}

/// The name of a group.
pub fn group(gid: u64) -> Option<String> {
    name_of(&listed(GROUPS), gid)
}

fn listed(path: &str) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// In both files: name, password, number.
fn rows(listed: &str) -> impl Iterator<Item = (&str, u64)> {
    listed.lines().filter_map(|line| {
        let mut fields = line.split(':');
        Some((fields.next()?, fields.nth(1)?.parse().ok()?))
    })
}

fn id_of(listed: &str, name: &str) -> Option<u64> {
    rows(listed).find(|(other, _)| *other == name).map(|(_, id)| id)
}

fn name_of(listed: &str, id: u64) -> Option<String> {
    rows(listed).find(|(_, other)| *other == id).map(|(name, _)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_odd_lines_are_passed_over() {
        let listed = "root:x:0:0:root:/root:/bin/sh\n# none\nada:x:1000:1000::/:\nada:x:7:7\nodd:x:y\n";
        assert_eq!((id_of(listed, "ada"), id_of(listed, "odd")), (Some(1000), None));
        assert_eq!(name_of(listed, 0).as_deref(), Some("root"));
    }
}
