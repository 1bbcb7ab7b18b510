//! Messages to systemd, if it started this process.
//!
//! Source: sd_notify(3), sd_watchdog_enabled(3).

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

/// Interval of watchdog messages, if systemd wants them: half the time after which it would end this process.
pub fn watchdog_interval() -> Option<Duration> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let is_other = number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id()));
    let interval = number("WATCHDOG_USEC").filter(|_| !is_other)?;
    Some(Duration::from_micros(interval / 2).max(Duration::from_millis(10)))
}

/// Sends a message: one datagram to the socket that systemd names.
pub fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Ok(socket) = UnixDatagram::unbound() {
        socket.send_to(state.as_bytes(), path).ok();
    }
}
