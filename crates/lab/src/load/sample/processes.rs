//! Processor time of this program with its children, and of kernel threads. The rest belongs to other
//! processes.
//!
//! `own` counts this process with all its threads, and every finished child program. `kernel_threads` work on
//! behalf of any process, so they are counted separately.
//!
//! Source: proc(5), `/proc/PID/stat` and `/proc/PID/io`.

use std::collections::HashMap;

use super::kernel::CLOCK_TICK_NS;
use super::recorder::{Head, Recorder};
use crate::load::machine::Root;
use crate::load::samples::Kind::Counter;
use crate::unit::Unit;

/// `PF_KTHREAD` in the flags of a process.
const KERNEL_THREAD: u64 = 0x0020_0000;
/// Kernel thread that starts all others: if it is invisible (in a container), all are.
const FIRST_KERNEL_THREAD: u64 = 2;

/// Content of `/proc/PID/stat`, in clock ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    flags: u64,
    user: u64,
    system: u64,
    children: u64,
    /// Start time; distinguishes processes that reuse an id.
    started: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Stat> {
        // The name may contain anything, including brackets, so fields are counted from the last one. The
        // first field after it is the third.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Stat {
            flags: field(9)?,
            user: field(14)?,
            system: field(15)?,
            children: field(16)?.saturating_add(field(17)?),
            started: field(22)?,
        })
    }
}

/// `own`: processor time and block device traffic of this process and its children.
pub fn own(root: &Root, recorder: &mut Recorder) {
    let head = Head { source: "own", subject: "", kind: Counter };
    match root.read("proc/self/stat").map(|text| Stat::parse(&text)) {
        Ok(Some(stat)) => {
            for (name, ticks) in [("user", stat.user), ("system", stat.system), ("children", stat.children)] {
                recorder.note(head, name, Unit::Nanoseconds, ticks as f64 * CLOCK_TICK_NS);
            }
        }
        Ok(None) => recorder.missing("own", "cannot parse /proc/self/stat"),
        Err(error) => recorder.missing("own", format!("/proc/self/stat: {error}")),
    }
    for line in root.read("proc/self/io").unwrap_or_default().lines() {
        let Some((name @ ("read_bytes" | "write_bytes"), value)) = line.split_once(": ") else { continue };
        if let Ok(bytes) = value.trim().parse::<f64>() {
            recorder.note(head, name, Unit::Bytes, bytes);
        }
    }
}

/// Processor time of all kernel threads. There may be thousands, so they are read only at the start and end
/// of a run.
#[derive(Debug, Default)]
pub struct KernelThreads {
    /// Ticks at the last reading, by id and start.
    known: HashMap<(u64, u64), u64>,
    /// Ticks used since the first reading.
    ticks: u64,
}

impl KernelThreads {
    pub fn read(&mut self, root: &Root, recorder: &mut Recorder) {
        let is_first = self.known.is_empty();
        let ids = root.list("proc").into_iter().filter_map(|name| name.parse::<u64>().ok());
        let mut now = HashMap::new();
        for id in ids {
            let stat = root.read(format!("proc/{id}/stat")).ok().and_then(|text| Stat::parse(&text));
            let Some(stat) = stat.filter(|stat| stat.flags & KERNEL_THREAD != 0) else { continue };
            let key = (id, stat.started);
            let used = stat.user + stat.system;
            if !is_first {
                self.ticks += used.saturating_sub(self.known.get(&key).copied().unwrap_or(0));
            }
            now.insert(key, used);
        }
        if !now.keys().any(|key| key.0 == FIRST_KERNEL_THREAD) {
            let why = "kernel threads are not visible here (a container?): their time is attributed to other \
                processes";
            return recorder.missing("kernel_threads", why);
        }
        self.known = now;
        let head = Head { source: "kernel_threads", subject: "", kind: Counter };
        recorder.note(head, "used", Unit::Nanoseconds, self.ticks as f64 * CLOCK_TICK_NS);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that can't go on must stop")]
    use super::*;
    use std::fs;

    fn stat(id: u64, name: &str, flags: u64, ticks: u64) -> String {
        format!("{id} ({name}) S 2 0 0 0 -1 {flags} 0 0 0 0 {ticks} 5 3 4 20 0 1 0 77 0 0")
    }

    fn put(root: &std::path::Path, id: &str, text: &str) {
        fs::create_dir_all(root.join("proc").join(id)).unwrap();
        fs::write(root.join("proc").join(id).join("stat"), text).unwrap();
    }

    #[test]
    fn own_time_includes_children_and_excludes_kernel_threads() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let (mut recorder, mut threads) = (Recorder::default(), KernelThreads::default());
        for (second, ticks) in [(0, 100), (1, 250)] {
            put(dir.path(), "self", &stat(9, "a) (b", 0, ticks));
            fs::write(dir.path().join("proc/self/io"), format!("rchar: 7\nread_bytes: {ticks}\n")).unwrap();
            put(dir.path(), "2", &stat(2, "kthreadd", KERNEL_THREAD, 10));
            put(dir.path(), "30", &stat(30, "z_wr_iss", KERNEL_THREAD, ticks));
            put(dir.path(), "40", &stat(40, "other", 0, ticks * 3));
            recorder.tick(second * 1_000_000_000, second == 1);
            own(&root, &mut recorder);
            threads.read(&root, &mut recorder);
        }
        let samples = recorder.finish();
        let growth = |source: &str, name: &str| samples.find(source, "", name).unwrap().growth();
        assert_eq!(growth("own", "user"), 150.0 * CLOCK_TICK_NS);
        assert_eq!(growth("own", "children"), 0.0);
        assert_eq!(samples.find("own", "", "children").unwrap().points[0].1, 7.0 * CLOCK_TICK_NS);
        assert_eq!(growth("own", "read_bytes"), 150.0);
        assert_eq!(growth("kernel_threads", "used"), 150.0 * CLOCK_TICK_NS, "z_wr_iss, and not `other`");
    }

    #[test]
    fn invisible_kernel_threads_are_not_taken_for_idle() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "40", &stat(40, "other", 0, 3));
        let mut recorder = Recorder::default();
        recorder.tick(0, true);
        KernelThreads::default().read(&Root::at(dir.path()), &mut recorder);
        let samples = recorder.finish();
        assert!(samples.series.is_empty());
        assert_eq!(samples.missing[0].source, "kernel_threads");
    }
}
