//! SMART data of disks: `smartctl --json --all`, for ATA, NVMe and SCSI.
//!
//! Idea: predictors of failure are findings unless zero: reallocated, pending and uncorrectable sectors, as
//! in Backblaze's statistics and report 003; also a wear of 100 %. The lab reads the same values ([`Smart`]);
//! the agent also keeps every attribute for the record.
//!
//! Source: smartmontools' JSON output.

use std::path::Path;
use std::process::{Command, Stdio};

use cenote_lab::sample::smart::Smart;
use serde_json::Value;

use crate::findings::{Finding, Findings};

/// SMART data of a disk.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Disk {
    /// Device path.
    pub device: String,
    /// Values common to all kinds of disks.
    pub smart: Smart,
    /// All attributes.
    pub attributes: Vec<Attribute>,
}

/// A SMART attribute.
#[derive(Debug, Clone, PartialEq)]
pub struct Attribute {
    /// Number; None for NVMe's fields.
    pub id: Option<u64>,
    /// Attribute name.
    pub name: String,
    /// Vendor's scale: falls towards a threshold.
    pub normalized: Option<u64>,
    /// Raw value.
    pub raw: u64,
}

/// Asks a disk; None without usable data, or if the program can't be run.
pub fn ask(smartctl: &Path, device: &str) -> Option<Disk> {
    let mut program = Command::new(smartctl);
    let output = program.args(["--json", "--all", device]).stdin(Stdio::null()).output().ok()?;
    read(device, &String::from_utf8_lossy(&output.stdout))
}

/// Parses the output of `smartctl --json`; None without usable data.
pub fn read(device: &str, said: &str) -> Option<Disk> {
    let smart = Smart::parse(said).ok()?;
    let document: Value = serde_json::from_str(said).ok()?;
    let mut attributes = Vec::new();
    for row in document["ata_smart_attributes"]["table"].as_array().into_iter().flatten() {
        attributes.push(Attribute {
            id: row["id"].as_u64(),
            name: row["name"].as_str().unwrap_or_default().to_owned(),
            normalized: row["value"].as_u64(),
            raw: row["raw"]["value"].as_u64().unwrap_or(0),
        });
    }
    for (name, value) in document["nvme_smart_health_information_log"].as_object().into_iter().flatten() {
        let raw = value.as_u64();
        attributes.extend(raw.map(|raw| Attribute { id: None, name: name.clone(), normalized: None, raw }));
    }
    Some(Disk { device: device.into(), smart, attributes })
}

impl Disk {
    /// Signs of failure.
    pub fn findings(&self) -> Findings {
        let mut evidence = Vec::new();
        if self.smart.passed == Some(false) {
            evidence.push("the disk itself expects to fail".to_owned());
        }
        for (what, count) in [
            ("reallocated sectors", self.smart.reallocated),
            ("pending sectors", self.smart.pending),
            ("uncorrectable errors", self.smart.uncorrectable),
        ] {
            evidence.extend(count.filter(|count| *count > 0.0).map(|count| format!("{count} {what}")));
        }
        let worn = self.smart.wear.filter(|wear| *wear >= 100.0);
        evidence.extend(worn.map(|wear| format!("{wear} % of its endurance used")));
        if evidence.is_empty() {
            return Findings::new();
        }
        let (device, Smart { model, serial, .. }) = (&self.device, &self.smart);
        let subject = format!("disk {device} may fail soon");
        let text = format!(
            "{model}, serial number {serial}:\n{}\n`zpool evacuate POOL {device} NEW` moves its data while \
             it still works.\n",
            evidence.join("\n")
        );
        [(format!("{device} smart"), Finding { pool: None, subject, text, is_urgent: false })].into()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn signs_of_failure_are_found() {
        let row = |id: u64, name: &str, raw: u64| {
            let raw = json!({ "value": raw });
            json!({"id": id, "name": name, "value": 100, "raw": raw})
        };
        let ata = |pending: u64| {
            json!({"smartctl": {"exit_status": 0}, "model_name": "M", "serial_number": "S",
                "smart_status": {"passed": true}, "ata_smart_attributes": {"table": [
                    row(9, "Power_On_Hours", 999), row(197, "Current_Pending_Sector", pending)]}})
        };
        let disk = read("/dev/sda", &ata(0).to_string()).unwrap();
        assert!(disk.findings().is_empty() && disk.attributes.len() == 2);
        let found = read("/dev/sda", &ata(8).to_string()).unwrap().findings();
        let finding = found.values().next().unwrap();
        assert!(finding.text.contains("8 pending sectors") && finding.text.contains("M, serial number S"));
        let nvme = json!({"smartctl": {"exit_status": 8}, "smart_status": {"passed": false},
            "nvme_smart_health_information_log": {"percentage_used": 101, "media_errors": 0}});
        let text =
            read("/dev/nvme0", &nvme.to_string()).unwrap().findings().into_values().next().unwrap().text;
        assert!(text.contains("expects to fail") && text.contains("101 % of its endurance"), "{text}");
        assert!(read("/dev/loop0", &json!({"smartctl": {"exit_status": 1}}).to_string()).is_none());
    }
}
