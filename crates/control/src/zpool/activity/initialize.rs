//! `zpool initialize`: writes the free space of devices once.

use cenote_pool::Pass;
use cenote_tasks::PassOrder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::passes::Ordered;
use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Write to all free space once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Initialize {
    /// Pool; none: all.
    #[serde(default)]
    pub pool: Option<String>,
    /// Devices: path, last path component, or guid; empty: all.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Operation.
    #[serde(default)]
    pub order: Order,
    /// Wait for the end, as without a daemon.
    #[serde(default)]
    pub wait: bool,
    /// Write zeros instead of a pattern; only to start.
    #[serde(default)]
    pub zero: bool,
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
    /// Forget that the devices were initialized.
    Forget,
}

impl Verb for Initialize {
    const NAME: &'static str = "zpool initialize";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// No such device; none accepts the order.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        if self.zero && self.order != Order::Start {
            return Err(ControlError::Usage("-z cannot be used with -c, -s or -u".into()));
        }
        let order = match self.order {
            Order::Start => PassOrder::Start { rate: 0, fill: self.zero.then_some(0) },
            Order::Suspend => PassOrder::Suspend,
            Order::Cancel => PassOrder::Cancel,
            Order::Forget => PassOrder::Forget,
        };
        let order = Ordered { verb: "initialize", pass: Pass::Initialize, order, wait: self.wait };
        Ok(order.run(session, self.pool.as_deref(), &self.devices).await?.into())
    }
}
