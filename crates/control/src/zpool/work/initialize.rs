//! `zpool initialize`: the free space of devices is written once.

use cenote_pool::Pass;
use cenote_tasks::PassOrder;
use serde::{Deserialize, Serialize};

use super::passes::Ordered;
use crate::error::ControlError;
use crate::session::Session;
use crate::verb::{Answered, Looks, Needs, Verb};

/// Which devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Initialize {
    /// The pool.
    pub pool: String,
    /// Devices: path, the last component of it, or guid; none: all.
    #[serde(default)]
    pub devices: Vec<String>,
    /// What is to become of the work.
    #[serde(default)]
    pub order: Order,
    /// Wait until it is done, as without a daemon.
    #[serde(default)]
    pub wait: bool,
}

/// What is to become of the work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// It begins, or goes on.
    #[default]
    Start,
    /// It waits until it is started again.
    Suspend,
    /// It stops for good.
    Cancel,
    /// It is forgotten that the devices were initialized.
    Forget,
}

impl Verb for Initialize {
    const NAME: &'static str = "zpool initialize";
    const NEEDS: Needs = Needs::All;
    const LOOKS: Looks = Looks::Never;
    type Answer = ();

    /// # Errors
    /// There is no such device; it can't be ordered for any of them.
    async fn carry_out(self, session: &Session) -> Result<Answered<()>, ControlError> {
        let order = match self.order {
            Order::Start => PassOrder::Start { rate: 0 },
            Order::Suspend => PassOrder::Suspend,
            Order::Cancel => PassOrder::Cancel,
            Order::Forget => PassOrder::Forget,
        };
        let order = Ordered { verb: "initialize", pass: Pass::Initialize, order, wait: self.wait };
        Ok(order.run(session, &self.pool, &self.devices).await?.into())
    }
}
