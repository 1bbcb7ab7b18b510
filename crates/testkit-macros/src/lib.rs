//! `#[needs("raidz1")]`: marks a test that needs material from `../shared`.
//!
//! Idea: a test that returns early passes silently, but the runner reports `#[ignore]`, which must be known
//! at compile time. So the attribute checks for `../shared` when expanded. Without it, the test gets
//! `#[ignore = "needs ../shared/pools/raidz1"]`. With it, the test runs, and fails if its material is
//! missing. `build.rs` triggers a new expansion.
#![forbid(unsafe_code)]

mod shared;

use proc_macro::{Delimiter, TokenStream, TokenTree};

/// Marks a test that needs golden pools (`#[needs("mirror")]`) or paths below `../shared`
/// (`#[needs("fixtures/rsend")]`). Must stand above `#[test]`. Pools in `golden/pools` need no mark.
#[proc_macro_attribute]
pub fn needs(paths: TokenStream, test: TokenStream) -> TokenStream {
    let paths: Vec<String> = paths.into_iter().filter_map(path).collect();
    if paths.is_empty() || !is_test(test.clone()) {
        return parse("compile_error!(\"#[needs] stands above #[test] and names golden pools or paths\");");
    }
    match paths.iter().find(|path| !may_run(path)) {
        Some(path) => {
            let mut ignored = parse(&format!("#[ignore = \"needs ../shared/{path}\"]"));
            ignored.extend(test);
            ignored
        }
        None => test,
    }
}

/// Whether `../shared` existed at compile time, as `true` or `false`.
#[proc_macro]
pub fn shared_when_compiled(_: TokenStream) -> TokenStream {
    parse(if shared::folder().is_some() { "true" } else { "false" })
}

fn may_run(path: &str) -> bool {
    shared::folder().is_some() || shared::workspace().join("golden").join(path).exists()
}

/// The path below `../shared`. A bare name is a golden pool.
fn path(token: TokenTree) -> Option<String> {
    let token = token.to_string();
    let name = token.strip_prefix('"')?.strip_suffix('"')?;
    Some(if name.contains('/') { name.to_owned() } else { format!("pools/{name}") })
}

fn is_test(item: TokenStream) -> bool {
    item.into_iter().any(|token| match token {
        TokenTree::Group(group) => {
            group.delimiter() == Delimiter::Bracket && group.stream().to_string() == "test"
        }
        _ => false,
    })
}

fn parse(code: &str) -> TokenStream {
    code.parse().expect("this crate's own code is well-formed")
}
