//! Posts JSON. The outbox retries; this module makes one attempt of at most ten seconds.

use std::sync::Arc;
use std::time::Duration;

use cenote_control::ControlError;
use serde::Serialize;
use ureq::Agent;
use ureq::tls::{TlsConfig, TlsProvider};

/// The time limit of one attempt: watching waits for it.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Where events are posted.
pub struct Webhook {
    agent: Agent,
    url: String,
}

impl Webhook {
    /// A webhook at `url`.
    ///
    /// # Errors
    /// It is not an HTTP URL.
    pub fn new(url: &str) -> Result<Webhook, ControlError> {
        if !url.starts_with("https://") && !url.starts_with("http://") {
            return Err(ControlError::Usage(format!("webhook {url}: must begin with https:// or http://")));
        }
        // The same cryptography as for encrypted pools, so that the program contains only one.
        let crypto = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(crypto)
            .build();
        let config =
            Agent::config_builder().tls_config(tls).timeout_global(Some(TIMEOUT)).max_redirects(0).build();
        Ok(Webhook { agent: config.into(), url: url.to_owned() })
    }

    /// Posts a value.
    ///
    /// # Errors
    /// It did not arrive, or the status was not 2xx.
    pub fn post(&self, value: &impl Serialize) -> Result<(), String> {
        let body = serde_json::to_vec(value).map_err(|error| error.to_string())?;
        let sent = self.agent.post(&self.url).header("Content-Type", "application/json").send(&body[..]);
        match sent.map_err(|error| error.to_string())?.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("answered {status}")),
        }
    }
}
