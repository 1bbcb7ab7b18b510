//! Disk health: SMART, through `smartctl --json -a`.
//!
//! ATA, NVMe and SCSI disks report it in three forms. A [`Smart`] holds the values they have in common; each
//! is present only if the disk reports it. One record per disk and day goes to a [`History`], which derives
//! trends.
//!
//! Source: smartctl(8), its `--json` output; NVM Express Base Specification 1.4 figure 194 (health log); ATA
//! attributes by their usual numbers: 5 reallocated, 187 uncorrectable, 197 pending, 198 offline
//! uncorrectable, and for wear 177, 202, 231, 233.

mod history;

use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use history::{Day, History, Trend};

use super::recorder::{Head, Recorder};
use crate::load::program;
use crate::load::samples::Kind::Gauge;
use crate::unit::Unit;
use crate::{LabError, Result};

/// A disk's SMART record at one time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Smart {
    /// Model name.
    pub model: String,
    /// Serial number.
    pub serial: String,
    /// SMART overall health: true if it passed; None if not reported.
    pub passed: Option<bool>,
    /// Degrees Celsius.
    pub temperature: Option<f64>,
    /// Used share of its rated endurance, in percent; may exceed 100.
    pub wear: Option<f64>,
    /// Spare blocks left, in percent (NVMe).
    pub spare: Option<f64>,
    /// Reallocated sectors (SCSI: the grown defect list).
    pub reallocated: Option<f64>,
    /// Unreadable sectors that await reallocation.
    pub pending: Option<f64>,
    /// Uncorrectable errors (NVMe: media errors).
    pub uncorrectable: Option<f64>,
    /// Damaged transfers: cables, backplanes.
    pub link_errors: Option<f64>,
    /// Hours powered on.
    pub power_on_hours: Option<f64>,
    /// Total bytes written.
    pub written_bytes: Option<f64>,
}

/// Bits of smartctl's exit status that mean nothing was read: bad command line, device not opened.
const NOTHING_READ: i64 = 0b11;
/// Bytes per unit of NVMe's data counters.
const NVME_DATA_UNIT_BYTES: f64 = 512_000.0;
const GIGABYTE: f64 = 1e9;

impl Smart {
    /// Asks a disk (`sda`, `nvme0n1`).
    ///
    /// # Errors
    /// smartctl is missing, or may not or cannot ask the disk; the text suggests a remedy.
    pub fn read(disk: &str) -> Result<Smart> {
        let device = format!("/dev/{disk}");
        let smartctl = program::find(&["smartctl"]).ok_or_else(|| {
            let what = "not installed; it is in the package smartmontools".to_owned();
            LabError::Program { program: "smartctl".into(), what }
        })?;
        let output = Command::new(smartctl)
            .args(["--json", "-a", &device])
            .stdin(Stdio::null())
            .output()
            .map_err(LabError::io("cannot run smartctl"))?;
        Smart::parse(&String::from_utf8_lossy(&output.stdout))
    }

    /// Parses the output of `smartctl --json -a`.
    ///
    /// # Errors
    /// Not JSON, or smartctl could not read the disk.
    pub fn parse(said: &str) -> Result<Smart> {
        let failed = |what: String| LabError::Program { program: "smartctl".into(), what };
        let said: Value =
            serde_json::from_str(said).map_err(|_| failed("no JSON; requires smartmontools 7".to_owned()))?;
        let status = said.pointer("/smartctl/exit_status").and_then(Value::as_i64);
        if status.is_none_or(|status| status & NOTHING_READ != 0) {
            let messages = said.pointer("/smartctl/messages").and_then(Value::as_array).into_iter().flatten();
            let words: Vec<&str> = messages.filter_map(|m| m.get("string")?.as_str()).collect();
            return Err(failed(format!("{}; reading disks requires root", words.join("; "))));
        }
        Ok(Smart::of(&said))
    }

    fn of(said: &Value) -> Smart {
        let at = |path: &str| said.pointer(path).and_then(Value::as_f64);
        let text =
            |path: &str| said.pointer(path).and_then(Value::as_str).unwrap_or_default().trim().to_owned();
        let mut smart = Smart {
            model: text("/model_name"),
            serial: text("/serial_number"),
            passed: said.pointer("/smart_status/passed").and_then(Value::as_bool),
            temperature: at("/temperature/current"),
            power_on_hours: at("/power_on_time/hours"),
            ..Smart::default()
        };
        if smart.model.is_empty() {
            smart.model = text("/scsi_model_name");
        }
        if let Some(log) = said.get("nvme_smart_health_information_log") {
            smart.add_nvme(log);
        }
        if let Some(table) = said.pointer("/ata_smart_attributes/table").and_then(Value::as_array) {
            smart.add_ata(table);
        }
        smart.add_scsi(said);
        // Newer disks and smartctl report it in percent, in ATA's device statistics.
        smart.wear = smart.wear.or_else(|| at("/endurance_used/current_percent"));
        smart.spare = smart.spare.or_else(|| at("/spare_available/current_percent"));
        smart
    }

    fn add_nvme(&mut self, log: &Value) {
        let at = |name: &str| log.get(name).and_then(Value::as_f64);
        self.wear = at("percentage_used");
        self.spare = at("available_spare");
        self.uncorrectable = at("media_errors");
        self.temperature = self.temperature.or(at("temperature"));
        self.power_on_hours = self.power_on_hours.or(at("power_on_hours"));
        self.written_bytes = at("data_units_written").map(|units| units * NVME_DATA_UNIT_BYTES);
    }

    fn add_ata(&mut self, table: &[Value]) {
        let find =
            |id: u64| table.iter().find(|attribute| attribute.get("id").and_then(Value::as_u64) == Some(id));
        let raw = |id: u64| find(id)?.pointer("/raw/value")?.as_f64();
        // Normalised: 100 when new, decreasing with wear.
        let left = |id: u64| {
            let attribute = find(id)?;
            let name = attribute.get("name")?.as_str()?.to_ascii_lowercase();
            let is_wear = ["wear", "life", "lifetime"].iter().any(|word| name.contains(word));
            is_wear.then(|| attribute.get("value")?.as_f64()).flatten()
        };
        self.reallocated = raw(5);
        self.pending = raw(197);
        self.uncorrectable = match (raw(187), raw(198)) {
            (Some(reported), Some(offline)) => Some(reported.max(offline)),
            (one, other) => one.or(other),
        };
        self.link_errors = raw(199);
        self.wear = [231, 202, 177, 233, 173].into_iter().find_map(left).map(|left| (100.0 - left).max(0.0));
        self.written_bytes = find(241).and_then(|attribute| {
            let name = attribute.get("name")?.as_str()?;
            let unit = if name.contains("GiB") {
                1_073_741_824.0
            } else if name.contains("32MiB") {
                33_554_432.0
            } else {
                512.0
            };
            Some(raw(241)? * unit)
        });
    }

    fn add_scsi(&mut self, said: &Value) {
        let at = |path: &str| said.pointer(path).and_then(Value::as_f64);
        self.reallocated = self.reallocated.or(at("/scsi_grown_defect_list"));
        self.wear = self.wear.or(at("/scsi_percentage_used_endurance_indicator"));
        let log = |kind: &str, what: &str| at(&format!("/scsi_error_counter_log/{kind}/{what}"));
        let errors = ["read", "write", "verify"].map(|kind| log(kind, "total_uncorrected_errors"));
        if errors.iter().any(Option::is_some) {
            self.uncorrectable = Some(errors.into_iter().flatten().sum());
        }
        // The number is a string here.
        let gigabytes =
            said.pointer("/scsi_error_counter_log/write/gigabytes_processed").and_then(Value::as_str);
        let bytes = gigabytes.and_then(|text| text.parse::<f64>().ok()).map(|gigabytes| gigabytes * GIGABYTE);
        self.written_bytes = self.written_bytes.or(bytes);
    }

    /// Values by name.
    pub fn values(&self) -> impl Iterator<Item = (&'static str, Unit, f64)> {
        let all = [
            ("temperature", Unit::Celsius, self.temperature),
            ("wear", Unit::Percent, self.wear),
            ("spare", Unit::Percent, self.spare),
            ("reallocated", Unit::Count, self.reallocated),
            ("pending", Unit::Count, self.pending),
            ("uncorrectable", Unit::Count, self.uncorrectable),
            ("link_errors", Unit::Count, self.link_errors),
            ("power_on_hours", Unit::Count, self.power_on_hours),
            ("written_bytes", Unit::Bytes, self.written_bytes),
        ];
        all.into_iter().filter_map(|(name, unit, value)| Some((name, unit, value?)))
    }

    pub(super) fn note(&self, disk: &str, recorder: &mut Recorder) {
        let head = Head { source: "smart", subject: disk, kind: Gauge };
        for (name, unit, value) in self.values() {
            recorder.note(head, name, unit, value);
        }
    }
}

#[cfg(test)]
mod tests;
