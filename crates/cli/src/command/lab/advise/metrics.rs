//! The page that Prometheus scrapes: one text, at one address, for GET of `/metrics`.
//!
//! The page has no password, so the suggested address (127.0.0.1) can be reached only from this machine. One
//! thread serves one request at a time until the program ends.
//!
//! Locking: the watch replaces the page under its mutex and the server copies it; neither holds the lock
//! while it waits for a client.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex};

use tiny_http::{Header, Method, Response, Server};

use crate::outcome::CliError;

/// The text, shared between the watch and the server.
pub type Page = Arc<Mutex<String>>;

/// `9134`, `127.0.0.1:9134`, `[::1]:9134`; a port alone is bound to 127.0.0.1.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let full = if text.contains(':') { text.to_owned() } else { format!("127.0.0.1:{text}") };
    let mut found = full
        .to_socket_addrs()
        .map_err(|error| format!("{error}; use ADDRESS:PORT, for example 127.0.0.1:9134"))?;
    found.next().ok_or_else(|| "no such address".into())
}

/// Starts serving a page, empty at first.
///
/// # Errors
/// The address is in use or does not belong to this machine.
pub fn serve(address: SocketAddr) -> Result<Page, CliError> {
    let server = Server::http(address)
        .map_err(|error| CliError::Refused(format!("{address}: can't serve metrics there: {error}")))?;
    let page = Page::default();
    let served = page.clone();
    let answer = move || {
        for request in server.incoming_requests() {
            let path = request.url().split('?').next();
            let (status, body) = match (request.method(), path) {
                (Method::Get | Method::Head, Some("/metrics")) => {
                    (200, served.lock().unwrap_or_else(|e| e.into_inner()).clone())
                }
                (Method::Get | Method::Head, _) => (404, "metrics are at /metrics\n".to_owned()),
                _ => (405, "only GET\n".to_owned()),
            };
            let mut response = Response::from_string(body).with_status_code(status);
            // The format of prometheus-client.
            let kind = &b"application/openmetrics-text; version=1.0.0; charset=utf-8"[..];
            if let Ok(header) =
                Header::from_bytes(&b"Content-Type"[..], kind).map(|header| (status == 200).then_some(header))
                && let Some(header) = header
            {
                response.add_header(header);
            }
            // If the client went away, nothing is left to do.
            let _ = request.respond(response);
        }
    };
    std::thread::Builder::new().spawn(answer).map_err(CliError::io("a thread for the metrics"))?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that can't continue must stop")]
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn the_page_is_served_and_nothing_else() {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let page = serve(free).unwrap();
        *page.lock().unwrap() = "cenote_watch_rounds_total 3\n".into();
        let answer = get(free, "/metrics");
        assert!(answer.contains("200 OK") && answer.ends_with("cenote_watch_rounds_total 3\n"), "{answer}");
        assert!(answer.contains("openmetrics-text"), "{answer}");
        assert!(get(free, "/etc/passwd").contains("404"));
        assert!(serve(free).unwrap_err().to_string().contains("can't serve"), "taken");
    }

    #[test]
    fn a_port_alone_is_for_this_machine_only() {
        assert_eq!(address("9134").unwrap().to_string(), "127.0.0.1:9134");
        assert_eq!(address("0.0.0.0:9134").unwrap().to_string(), "0.0.0.0:9134");
        assert!(address("nine").is_err());
    }
}
