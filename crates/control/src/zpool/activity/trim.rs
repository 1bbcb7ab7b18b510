//! `zpool trim`: discards the free space of devices.

use cenote_pool::Pass;
use cenote_tasks::PassOrder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::passes::Ordered;
use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Discard free space on devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Trim {
    /// Pool; none: all.
    #[serde(default)]
    pub pool: Option<String>,
    /// Devices: path, last path component, or guid; empty: all.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Operation.
    #[serde(default)]
    pub order: Order,
    /// Maximum bytes per second; 0: unlimited.
    #[serde(default)]
    pub rate_bytes: u64,
    /// Wait for the end, as without a daemon.
    #[serde(default)]
    pub wait: bool,
}

/// An operation on the pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Start or resume.
    #[default]
    Start,
    /// Suspend until started again.
    Suspend,
    /// Stop for good.
    Cancel,
}

impl Verb for Trim {
    const NAME: &'static str = "zpool trim";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// No such device; none accepts the order.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let order = match self.order {
            Order::Start => PassOrder::Start { rate: self.rate_bytes, fill: None },
            Order::Suspend => PassOrder::Suspend,
            Order::Cancel => PassOrder::Cancel,
        };
        let order = Ordered { verb: "trim", pass: Pass::Trim, order, wait: self.wait };
        Ok(order.run(session, self.pool.as_deref(), &self.devices).await?.into())
    }
}
