//! Everything that happened in a world, by lives: calls, txgs, and the rest as notes.

use std::collections::BTreeMap;

use cenote_engine::TxgRecord;
use cenote_runtime::Instant;

use crate::model::verb::verb_of;
use crate::model::{Call, CallId, ClientId, DatasetId, Outcome};
use crate::oracle::linear::{shorten, shown, shown_outcome};

/// A call of a client.
#[derive(Debug, Clone)]
#[allow(missing_docs)] // as their types say
pub struct Made {
    pub client: ClientId,
    pub verb: &'static str,
    /// The first dataset that it concerns.
    pub dataset: Option<DatasetId>,
    pub text: String,
    pub begin_ns: u64,
    /// `None`: it had not ended when the life ended.
    pub end: Option<(u64, String)>,
}

/// A written txg.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)] // as their names say
pub struct Txg {
    pub number: u64,
    pub opened_ns: u64,
    /// New operations wait from then on, and old ones end.
    pub closing_ns: u64,
    pub closed_ns: u64,
    pub written_ns: u64,
}

impl Txg {
    fn of(record: &TxgRecord) -> Txg {
        let closing_ns = record.birth_ns + record.open_ns;
        let closed_ns = closing_ns + record.quiesce_ns;
        Txg {
            number: record.txg.0,
            opened_ns: record.birth_ns,
            closing_ns,
            closed_ns,
            written_ns: closed_ns + record.sync_ns,
        }
    }
}

/// A life of the machine.
#[derive(Debug, Clone, Default)]
pub struct Life {
    /// By number.
    pub calls: BTreeMap<CallId, Made>,
    /// Those written, in order.
    pub txgs: BTreeMap<u64, Txg>,
    /// Other events.
    pub notes: Vec<(u64, String)>,
}

/// All lives.
#[derive(Debug, Clone)]
pub struct Record {
    /// The last one goes on.
    pub lives: Vec<Life>,
}

impl Default for Record {
    fn default() -> Record {
        Record { lives: vec![Life::default()] }
    }
}

impl Record {
    fn now(&mut self) -> &mut Life {
        self.lives.last_mut().expect("a world has a life")
    }

    /// A call begins.
    pub fn begin(&mut self, now: Instant, id: CallId, call: &Call) {
        let made = Made {
            client: call.client,
            verb: verb_of(&call.action),
            dataset: call.dataset(),
            text: shown(call),
            begin_ns: now.as_ns(),
            end: None,
        };
        self.now().calls.insert(id, made);
    }

    /// A call ends, or its caller gives it up.
    pub fn end(&mut self, now: Instant, id: CallId, how: &str) {
        if let Some(made) = self.now().calls.get_mut(&id) {
            made.end = Some((now.as_ns(), shorten(how)));
        }
    }

    /// The outcome of a call, as text.
    pub fn text_of(outcome: &Outcome) -> String {
        shown_outcome(outcome)
    }

    /// Something else happens.
    pub fn note(&mut self, now: Instant, what: &str) {
        self.now().notes.push((now.as_ns(), what.into()));
    }

    /// The engine's last txgs; some are known.
    pub fn take_txgs(&mut self, txgs: &[TxgRecord]) {
        let life = self.now();
        let known = life.txgs.last_key_value().map_or(0, |(number, _)| *number);
        let new = txgs.iter().filter(|txg| txg.txg.0 > known);
        life.txgs.extend(new.map(|txg| (txg.txg.0, Txg::of(txg))));
    }

    /// A life has ended.
    pub fn next_life(&mut self) {
        self.lives.push(Life::default());
    }
}

impl Life {
    /// The end of its last event.
    pub fn end_ns(&self) -> u64 {
        let calls = self.calls.values().map(|made| made.end.as_ref().map_or(made.begin_ns, |end| end.0));
        let txgs = self.txgs.values().map(|txg| txg.written_ns);
        calls.chain(txgs).chain(self.notes.iter().map(|(at, _)| *at)).max().unwrap_or(0)
    }
}
