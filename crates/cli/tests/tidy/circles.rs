//! Circles of imports: sets of files of a crate in which each file imports all others, directly or
//! indirectly.
//!
//! A file imports another if it names it in a `use`, or in a path that begins with `crate` or `super`.
//! Re-exports (`pub use`) don't count, and neither does `mod`: a folder's file re-exports its submodules.

use std::collections::{BTreeMap, BTreeSet};

/// A module's path within its crate; the root's is empty.
type Module = Vec<String>;
/// The modules of a crate, and the imports of each.
type Graph = BTreeMap<Module, BTreeSet<Module>>;

/// How a path within the crate may begin.
const UPS: [&str; 3] = ["crate", "self", "super"];

/// By crate, the largest circle of more than `most` files. `sources` are paths and texts.
pub(crate) fn larger_than(most: usize, sources: &[(String, String)]) -> Vec<String> {
    let mut crates: BTreeMap<&str, BTreeMap<Module, &str>> = BTreeMap::new();
    for (path, text) in sources {
        if let Some((name, module)) = module_of(path) {
            crates.entry(name).or_default().insert(module, text);
        }
    }
    let mut found = Vec::new();
    for (name, modules) in &crates {
        let graph = modules.iter().map(|(module, text)| (module.clone(), imports(module, text, modules)));
        let circle = largest_circle(&graph.collect());
        if circle.len() > most {
            let files: Vec<String> = circle.iter().map(|module| module.join("/")).collect();
            found.push(format!("{name}, {} files: {}", files.len(), files.join(" ")));
        }
    }
    found
}

/// Crate and module of `crates/CRATE/src/MODULE.rs`, but for tests.
fn module_of(path: &str) -> Option<(&str, Module)> {
    let (name, file) = path.strip_prefix("crates/")?.strip_suffix(".rs")?.split_once("/src/")?;
    let module: Module = file.split('/').map(str::to_owned).collect();
    match file {
        "lib" | "main" => Some((name, Module::new())),
        _ => (!module.iter().any(|part| part == "tests")).then_some((name, module)),
    }
}

fn imports(module: &Module, text: &str, modules: &BTreeMap<Module, &str>) -> BTreeSet<Module> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut paths = Vec::new();
    // rustfmt puts each statement at the beginning of a line.
    let mut lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    while let Some(line) = lines.next() {
        let is_import = line.starts_with("use ");
        let is_reexport = line.starts_with("pub") && line.contains(" use ");
        if !is_import && !is_reexport {
            paths.extend(["crate::", "super::"].into_iter().filter_map(|start| path_from(line, start)));
            continue;
        }
        let mut statement = line.to_owned();
        while !statement.contains(';') {
            let Some(line) = lines.next() else { break };
            statement += line.trim();
        }
        if is_import {
            paths.extend(leaves(statement["use ".len()..].trim_end_matches(';')));
        }
    }
    let named = paths.iter().filter_map(|path| resolve(module, path, modules));
    named.filter(|named| named != module).collect()
}

/// The path in a line of code that begins with `start`.
fn path_from(line: &str, start: &str) -> Option<String> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let (before, _) = line.split_once(start)?;
    let path = &line[before.len()..];
    let end = path.find(|c| !is_part(c)).unwrap_or(path.len());
    (!before.ends_with(is_part)).then(|| path[..end].to_owned())
}

/// `a::{b, c::{d, e}}` is `a::b`, `a::c::d`, `a::c::e`.
fn leaves(tree: &str) -> Vec<String> {
    let Some((start, rest)) = tree.split_once('{') else {
        return vec![tree.trim().to_owned()];
    };
    let (mut depth, mut branches) = (0, vec![String::new()]);
    for c in rest.chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        match c {
            _ if depth < 0 => break,
            ',' if depth == 0 => branches.push(String::new()),
            _ => branches.last_mut().unwrap().push(c),
        }
    }
    branches.iter().flat_map(|branch| leaves(&format!("{}{}", start.trim(), branch.trim()))).collect()
}

/// The module that a path names or leads into, if it belongs to this crate.
fn resolve(module: &Module, path: &str, modules: &BTreeMap<Module, &str>) -> Option<Module> {
    let parts: Vec<&str> = path.split("::").collect();
    let (ups, names) = parts.split_at(parts.iter().take_while(|part| UPS.contains(part)).count());
    let mut found = if ups.first() == Some(&"crate") { Module::new() } else { module.clone() };
    ups.iter().filter(|up| **up == "super").for_each(|_| drop(found.pop()));
    let start = found.len();
    for name in names {
        found.push((*name).to_owned());
        if !modules.contains_key(&found) {
            found.pop();
            break;
        }
    }
    // A name that is neither is another crate's.
    (!ups.is_empty() || found.len() > start).then_some(found)
}

/// The largest set of modules that all lead to each other.
fn largest_circle(graph: &Graph) -> BTreeSet<Module> {
    let mut reach: BTreeMap<&Module, BTreeSet<&Module>> = BTreeMap::new();
    for from in graph.keys() {
        let (mut reached, mut left) = (BTreeSet::new(), vec![from]);
        while let Some(module) = left.pop() {
            left.extend(graph[module].iter().filter(|next| reached.insert(*next)));
        }
        reach.insert(from, reached);
    }
    let circle_of = |from: &&Module| -> BTreeSet<Module> {
        reach[*from].iter().filter(|to| reach[**to].contains(*from)).map(|to| (*to).clone()).collect()
    };
    reach.keys().map(circle_of).max_by_key(BTreeSet::len).unwrap_or_default()
}
