//! `inject`: the faults of devices.

use cenote_control::running::inject::Listed;
use serde_json::{Value, json};

use crate::json::version;
use crate::table::{Align, Table};

/// As text; nothing if none.
pub fn text(faults: &[Listed]) -> String {
    if faults.is_empty() {
        return String::new();
    }
    let head = [("POOL", Align::Left), ("DEVICE", Align::Left), ("STRUCK", Align::Right)];
    let mut table = Table::new(head.into_iter().chain([("FAULT", Align::Left)]));
    for Listed { pool, device, struck, fault, .. } in faults {
        table.row([pool.clone(), device.clone(), struck.to_string(), fault.clone()]);
    }
    table.aligned()
}

/// As JSON.
pub fn json(faults: &[Listed]) -> Value {
    let entry = |fault: &Listed| {
        json!({"pool": fault.pool, "device": fault.device, "guid": fault.guid.to_string(),
            "struck": fault.struck, "fault": fault.fault})
    };
    let faults: Value = faults.iter().map(entry).collect();
    json!({"output_version": version("inject"), "faults": faults})
}
