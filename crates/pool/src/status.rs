//! The state of a pool and its vdevs from what was found, and what to do about it.

use crate::config::{VdevClass, VdevKind};
use crate::discover::FoundPool;
use crate::health::{ErrorCounts, PoolHealth, VdevState, VdevStatus};

pub(crate) fn of_found(found: &FoundPool) -> PoolHealth {
    let root = VdevStatus {
        name: found.config.name.clone(),
        kind: VdevKind::Root,
        guid: found.config.guid,
        class: VdevClass::Normal,
        path: None,
        state: VdevState::Online,
        trouble: None,
        resilvering: false,
        errors: ErrorCounts::default(),
        children: Vec::new(),
    };
    PoolHealth {
        state: VdevState::Online,
        message_id: None,
        status: None,
        action: "The pool can be imported using its name or numeric identifier.".into(),
        importable: true,
        root,
        spares: Vec::new(),
        l2cache: Vec::new(),
    }
}

pub(crate) fn of_pool(pool: &crate::pool::Pool) -> PoolHealth {
    of_found(pool.found())
}
