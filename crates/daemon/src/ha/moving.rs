//! Addresses and programs that move with a pool.
//!
//! Addresses are added with iproute2's `ip`, and told to neighbours with `arping` if it is installed (a
//! gratuitous ARP); IPv6 tells neighbours by itself. Failures are said, and do not keep the pool from its
//! clients: they may reach it by another address.

use std::process::Stdio;
use std::time::Duration;

use cenote_ha::{Address, PoolSettings};
use cenote_runtime::Runtime;
use futures::future::join_all;
use tokio::process::Command;

/// A program that runs longer is ended.
const LONGEST: Duration = Duration::from_secs(20);
/// Most of a program's message that is said.
const MESSAGE_CHARS: usize = 500;

/// The pool is open here.
pub async fn came(pool: &PoolSettings, runtime: &Runtime, say: fn(&str)) {
    let add = async |address: &Address| {
        let network = format!("{}/{}", address.ip, address.bits);
        tell(run(&["ip", "address", "replace", &network, "dev", &address.interface], runtime).await, say);
        if address.ip.is_ipv4() {
            let ip = address.ip.to_string();
            // Neighbours learn the address anyway, later.
            run(&["arping", "-U", "-c", "2", "-w", "2", "-I", &address.interface, &ip], runtime).await.ok();
        }
    };
    join_all(pool.addresses.iter().map(add)).await;
    tell(program(&pool.taken, &pool.name, runtime).await, say);
}

/// The pool leaves, or has left.
pub async fn goes(pool: &PoolSettings, runtime: &Runtime, say: fn(&str)) {
    let remove = async |address: &Address| {
        let network = format!("{}/{}", address.ip, address.bits);
        // It may be gone already.
        run(&["ip", "address", "del", &network, "dev", &address.interface], runtime).await.ok();
    };
    join_all(pool.addresses.iter().map(remove)).await;
    tell(program(&pool.left, &pool.name, runtime).await, say);
}

async fn program(words: &[String], pool: &str, runtime: &Runtime) -> Result<(), String> {
    if words.is_empty() {
        return Ok(());
    }
    let words: Vec<&str> = words.iter().map(String::as_str).chain([pool]).collect();
    run(&words, runtime).await
}

async fn run(words: &[&str], runtime: &Runtime) -> Result<(), String> {
    let failed = |why: String| format!("{}: {why}", words[0]);
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.kill_on_drop(true);
    let ran = runtime.timeout(LONGEST, command.output()).await;
    let output = ran.map_err(|_| failed(format!("was ended after {} s", LONGEST.as_secs())))?;
    let output = output.map_err(|error| failed(error.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let text = String::from_utf8_lossy(&output.stderr);
            let text: String = text.trim().chars().take(MESSAGE_CHARS).collect();
            Err(failed(format!("{}: {text}", output.status)))
        }
    }
}

fn tell(ran: Result<(), String>, say: fn(&str)) {
    if let Err(why) = ran {
        say(&format!("ha: {why}"));
    }
}
