//! Targets that share a device: comparing them does not compare devices.

use super::{Finding, Setting, Severity, TargetFacts};

/// One finding for each pair of targets that share a device or a file system.
pub fn shared_devices(setting: &Setting) -> Vec<Finding> {
    let all: Vec<(&String, &TargetFacts)> = setting.targets.iter().collect();
    let mut findings = Vec::new();
    for (at, (a, of_a)) in all.iter().enumerate() {
        for (b, of_b) in &all[at + 1..] {
            let Some(what) = common(of_a, of_b) else { continue };
            let sentence = format!(
                "{a} and {b} are on the same {what}: differences between them are not due to the devices, \
                 and they compete when measured at once."
            );
            findings.push(Finding::new("targets.shared", Severity::Warning, sentence));
        }
    }
    findings
}

/// Shared part of two targets: `file system (vda)`, `device (sda)`, `devices (sda, sdb)`.
fn common(a: &TargetFacts, b: &TargetFacts) -> Option<String> {
    let devices: Vec<&str> =
        a.devices.iter().filter(|device| b.devices.contains(device)).map(String::as_str).collect();
    let is_one = a.file_system.is_some() && a.file_system == b.file_system;
    match (is_one, devices.as_slice()) {
        (true, []) => Some("file system".into()),
        (true, devices) => Some(format!("file system ({})", devices.join(", "))),
        (false, []) => None,
        (false, [only]) => Some(format!("device ({only})")),
        (false, several) => Some(format!("devices ({})", several.join(", "))),
    }
}
