//! `cenote_bucket_*`: requests to object stores, by disk, and their price.

use cenote_bucket::{Counts, Kind as Request};

use super::families::{Families, Kind};

/// Adds these metrics.
pub fn add(families: &mut Families) {
    for (disk, now) in Counts::of_disks() {
        for kind in Request::ALL {
            let labels = [("disk", &*disk), ("kind", kind.name())];
            let help = (Kind::Counter, "Requests to the object store, repetitions included.");
            families.add("cenote_bucket_requests_total", help, &labels, now.of(kind) as f64);
        }
        let labels = [("disk", &*disk)];
        let mut add = |name, help, value| families.add(name, (Kind::Counter, help), &labels, value);
        let repeated = "Requests that failed and were repeated.";
        add("cenote_bucket_repeated_requests_total", repeated, now.repeated as f64);
        let hedged = "Reads sent twice, because the first was slow.";
        add("cenote_bucket_hedged_reads_total", hedged, now.hedged as f64);
        add("cenote_bucket_sent_bytes_total", "Bytes of created objects.", now.sent_bytes as f64);
        add("cenote_bucket_received_bytes_total", "Bytes read from objects.", now.received_bytes as f64);
        let usd = "Price of the requests in US dollars, at those of Amazon S3 Standard (us-east-1, 2025).";
        add("cenote_bucket_requests_usd_total", usd, now.usd());
    }
}
