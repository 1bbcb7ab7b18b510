//! State files of the daemon, and configuration by administrators.
//!
//! Only trusted users write these files, but disks lose bytes, and people make mistakes. Parsed values are
//! used, and the daemon's own output must parse to the same value.

use std::path::PathBuf;
use std::time::Duration;

use cenote_agent::{Rules, smart};
use cenote_ha::{Record, Settings};
use cenote_host::record::State;
use cenote_http::Tokens;
use cenote_iscsi::scsi::reservations::Reservations;
use cenote_serve::config::{Config, MAX_THREADS};
use cenote_serve::iscsi::{LunMap, Names, accounts};
use cenote_serve::listen::Place;

use super::consume;

/// `pools.json`.
pub fn pools(data: &[u8]) {
    let state = State::parse(data);
    for pool in &state.pools {
        consume((pool.key(), pool.places()));
    }
    let written = serde_json::to_vec(&state).unwrap_or_default();
    assert_eq!(State::parse(&written), state, "it is written as it was read");
}

/// Persistent reservations, as stored with a volume.
pub fn reservations(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // With and without a checksum.
    let bare = text.split_once('\n').filter(|_| text.starts_with("v2 ")).map_or(text, |(_, bare)| bare);
    for text in [text, &format!("v1 {bare}")] {
        if let Some(all) = Reservations::parse(text) {
            let again = Reservations::parse(&all.text());
            assert_eq!(again.map(|all| all.text()), Some(all.text()), "it is kept as it was read");
        }
    }
}

/// HTTP tokens.
pub fn tokens(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(tokens) = Tokens::parse(&text) {
        let words = text.split_whitespace();
        consume(words.map(|word| tokens.access(&format!("Bearer {word}"))).collect::<Vec<_>>());
        assert_eq!(tokens.access("Bearer "), None);
    }
}

/// The configuration file.
pub fn config(data: &[u8]) {
    if let Ok(config) = Config::parse(&String::from_utf8_lossy(data)) {
        assert!(config.threads.is_none_or(|threads| threads <= MAX_THREADS));
        consume(LunMap::parse(&config.iscsi_lun.unwrap_or_default()).is_ok());
    }
}

/// Accounts of iSCSI initiators.
pub fn iscsi_accounts(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(accounts) = accounts::parse(&text) {
        assert!(!accounts.initiators.is_empty());
        let all = accounts.initiators.iter().chain(&accounts.target);
        assert!(all.into_iter().all(|account| account.secret.len() >= 12));
    }
}

/// The agent's rules.
pub fn rules(data: &[u8]) {
    let Ok(rules) = Rules::parse(&String::from_utf8_lossy(data)) else { return };
    for scheduled in rules.scrub.iter().chain(&rules.trim) {
        for time_s in [0, 1_700_000_000, u64::MAX] {
            consume((
                scheduled.is_for("tank"),
                scheduled.is_due(time_s, 1_700_000_000),
                scheduled.is_due(0, time_s),
            ));
        }
    }
}

/// Settings of pools that move among machines.
pub fn ha(data: &[u8]) {
    if let Ok(settings) = Settings::parse(&String::from_utf8_lossy(data)) {
        assert!(!settings.pools.is_empty());
        for address in settings.pools.iter().flat_map(|pool| &pool.addresses) {
            assert!(!address.interface.starts_with('-'), "it would be an option of `ip`");
        }
    }
}

/// A pool's record at a witness, which other machines write.
pub fn witness(data: &[u8]) {
    let Ok(record) = Record::decode(data) else { return };
    let next = record.taken_by("b", 7, Duration::from_secs(3));
    for record in [&record, &record.left(None, false), &record.wished_by("b"), &next] {
        assert_eq!(Record::decode(&record.encode()).as_ref(), Ok(record), "it is read as it was written");
        consume((record.turn_of("a"), record.patience(), record.is_same_tenure(&next)));
    }
}

/// `smartctl` output for a disk.
pub fn smart(data: &[u8]) {
    if let Some(disk) = smart::read("/dev/sda", &String::from_utf8_lossy(data)) {
        consume(disk.findings());
    }
}

/// Addresses, target and unit names, in the form of options, one per line.
pub fn options(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    consume(LunMap::parse(&lines).is_ok());
    for line in &lines {
        consume(Names::parse(line).is_ok());
        if let Ok(place) = Place::parse(line, 10809) {
            consume((place.is_local(), PathBuf::from(place.to_string())));
        }
    }
}
