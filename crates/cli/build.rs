//! Links debug builds at a fixed address: tests start the program many thousand times, and half of the time
//! of a start would go into its relocations. Releases have addresses by chance (ASLR).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
