//! Each resource's part in a run: whether it was saturated, with the numbers to show it.

use super::{FULL, IN_THE_PATH, Part, Resource, Role};
use crate::analysis::observed::Observed;
use crate::analysis::processors::Processors;
use crate::unit::{Unit, digits};

/// Utilisation from which a resource may have been saturated at times.
const NEARLY: f64 = 0.6;
/// Share of the allowed depth that counts as all of it.
const DEPTH_REACHED: f64 = 0.8;
/// A core is saturated from here on; the scheduler moves work about.
const CORE_FULL: f64 = 0.95;
/// If other work used more than this share of a saturated resource, it may have caused the saturation.
const MINE: f64 = 0.5;

/// All parts. Durability, concurrency and the workload itself wait for other resources: at most one is a
/// limit, and only if no resource was saturated.
pub fn of(o: &Observed) -> Vec<Part> {
    let mut parts = vec![network(o), disk(o), cpu(o)];
    parts.extend(core(o));
    let is_full = parts.iter().any(|part| part.role == Role::Limit);
    parts.extend(sync(o, is_full));
    let is_told = parts.iter().any(|part| part.role == Role::Limit);
    let last = if o.throttled { Some(throttle(is_told)) } else { concurrency(o, &parts) };
    parts.extend(last);
    parts
}

fn role(used: f64, full: f64) -> Role {
    match used {
        used if used >= full => Role::Limit,
        used if used >= NEARLY => Role::Possible,
        _ => Role::Free,
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn unknown(resource: Resource, why: &str) -> Part {
    Part { resource, role: Role::Unknown, used: None, argument: why.into() }
}

fn network(o: &Observed) -> Part {
    let busiest = o.links.iter().max_by(|a, b| (a.bandwidth / a.speed).total_cmp(&(b.bandwidth / b.speed)));
    let Some(link) = busiest else {
        return unknown(Resource::Network, "No link of known speed carried traffic.");
    };
    let used = link.bandwidth / link.speed;
    let role = role(used, FULL);
    if role == Role::Free && link.bandwidth < IN_THE_PATH * o.bandwidth {
        let argument = "The data did not go over the network.".into();
        return Part { resource: Resource::Network, role, used: Some(used), argument };
    }
    let numbers = format!(
        "{} carried {} of {} ({})",
        link.name,
        Unit::BytesPerSecond.show(link.bandwidth),
        Unit::BytesPerSecond.show(link.speed),
        percent(used)
    );
    let argument = match role {
        Role::Limit => format!("The network was saturated: {numbers}."),
        Role::Possible => format!("The network may have been saturated at times: {numbers} on average."),
        _ => format!("The network had spare capacity: {numbers}."),
    };
    Part { resource: Resource::Network, role, used: Some(used), argument }
}

fn disk(o: &Observed) -> Part {
    let Some(disk) = o.disks.iter().max_by(|a, b| a.busy.total_cmp(&b.busy)) else {
        return unknown(Resource::Disk, "The disks' counters were not sampled, or no disk was active.");
    };
    let is_parallel = disk.rotates != Some(true);
    let full = role(disk.busy, FULL);
    let others = disk.others.filter(|others| *others >= MINE);
    // A busy solid-state or virtual disk had at least one operation in flight. Neither busy time nor a queue,
    // which any closed loop fills, shows how many more it could serve at once.
    let is_unsure = full == Role::Limit && is_parallel;
    let role = if is_unsure || (others.is_some() && full == Role::Limit) { Role::Possible } else { full };
    let which = match o.disks.len() {
        1 => disk.name.clone(),
        several => format!("{}, the busiest of {several} disks,", disk.name),
    };
    let numbers = format!(
        "{which} was busy {} of the time ({} operations in flight, {}, {})",
        percent(disk.busy),
        digits(disk.in_flight),
        Unit::PerSecond.show(disk.iops),
        Unit::BytesPerSecond.show(disk.bandwidth)
    );
    let argument = match (role, others) {
        (Role::Possible, Some(others)) => {
            format!(
                "The disks were busy with other work: {numbers}; {} of the bytes were not for this test.",
                percent(others)
            )
        }
        (Role::Limit, _) => format!("The disks were saturated: {numbers}."),
        (Role::Possible, None) if is_unsure => format!(
            "The disks may be the limit: {numbers}; of a disk that does several operations at once this says \
             only that it was never idle, not whether it could do more."
        ),
        (Role::Possible, None) => format!("The disks may have been saturated at times: {numbers}."),
        _ => format!("The disks had spare capacity: {numbers}."),
    };
    Part { resource: Resource::Disk, role, used: Some(disk.busy), argument }
}

fn cpu(o: &Observed) -> Part {
    let Some(cpu) = o.cpu else {
        return unknown(Resource::Cpu, "Processor time was not sampled.");
    };
    let numbers = processors(&cpu, o);
    let full = role(cpu.busy, FULL);
    // Without other work, these processors would not be saturated.
    let others = cpu.others().map_or(0.0, |others| others + cpu.stolen);
    let is_ours = cpu.ours().is_some_and(|ours| ours >= FULL || others <= 1.0 - FULL);
    let (role, argument) = match (full, is_ours) {
        (Role::Limit, true) => (Role::Limit, format!("The processors were saturated: {numbers}.")),
        (Role::Limit, false) if cpu.own.is_none() => (
            Role::Possible,
            format!("The processors were saturated, but who used them is unknown: {numbers}."),
        ),
        (Role::Limit | Role::Possible, false) if others >= MINE * cpu.busy => {
            (Role::Possible, format!("The processors were busy with other work: {numbers}."))
        }
        (Role::Limit, false) => {
            (Role::Possible, format!("The processors were saturated, but not by this test alone: {numbers}."))
        }
        (Role::Possible, _) => (full, format!("The processors may have been saturated at times: {numbers}.")),
        _ => (full, format!("The processors had spare capacity: {numbers}.")),
    };
    Part { resource: Resource::Cpu, role, used: Some(cpu.busy), argument }
}

/// Use of the processors by owner, and the time tasks waited for them.
fn processors(cpu: &Processors, o: &Observed) -> String {
    let mut numbers = format!("{} busy", percent(cpu.busy));
    if let (Some(own), Some(others)) = (cpu.own, cpu.others()) {
        let all = [
            (own, "this test"),
            (cpu.kernel, "kernel"),
            (others, "other processes"),
            (cpu.stolen, "host (steal)"),
        ];
        let shares = all.iter().filter(|(share, who)| *share >= 0.005 || *who == "this test");
        let words: Vec<String> = shares.map(|(share, who)| format!("{who} {}", percent(*share))).collect();
        numbers = format!("{numbers} ({})", words.join(", "));
    }
    if let Some(iowait) = o.iowait {
        numbers = format!("{numbers}, {} idle with I/O outstanding", percent(iowait));
    }
    if let Some(pressure) = cpu.pressure {
        numbers = format!("{numbers}; some task waited for a processor {} of the time", percent(pressure));
    }
    if let Some(pressure) = o.io_pressure {
        numbers = format!("{numbers}, for I/O {}", percent(pressure));
    }
    numbers
}

/// One saturated core limits a single thread, however many others are idle, if the thread is this program's.
fn core(o: &Observed) -> Option<Part> {
    let (used, cpu) = (o.busiest_cpu?, o.cpu?);
    if used < CORE_FULL || cpu.busy >= FULL {
        return None;
    }
    let numbers =
        format!("one processor was {} busy, all of them together {}", percent(used), percent(cpu.busy));
    let (role, argument) = match cpu.own_cores {
        Some(cores) if cores >= CORE_FULL && !cpu.is_crowded() => (
            Role::Limit,
            format!("A single thread was the limit: {numbers}; this test used {cores:.1} processors."),
        ),
        Some(cores) => (
            Role::Possible,
            format!("A processor was saturated: {numbers}; this test used {cores:.1} processors."),
        ),
        None => {
            (Role::Possible, format!("A processor was saturated, but who used it is unknown: {numbers}."))
        }
    };
    Some(Part { resource: Resource::Core, role, used: Some(used), argument })
}

/// `is_full`: a resource was saturated, so waiting for durability means waiting for that resource.
fn sync(o: &Observed, is_full: bool) -> Option<Part> {
    let used = o.sync_share?;
    let numbers = format!("the workers spent {} of their time in fsync or fdatasync", percent(used));
    let (role, argument) = match used >= 0.5 {
        false => (Role::Free, format!("Waiting for durable data was not the limit: {numbers}.")),
        true if is_full => {
            (Role::Possible, format!("{}, as expected with a saturated resource.", capital(&numbers)))
        }
        true if o.cpu.is_some_and(|cpu| cpu.is_crowded()) => (
            Role::Possible,
            format!("Waiting for durable data may be the limit: {numbers}, competing with other work."),
        ),
        true => (Role::Limit, format!("Waiting for durable data was the limit: {numbers}.")),
    };
    Some(Part { resource: Resource::SyncLatency, role, used: Some(used), argument })
}

fn capital(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn throttle(is_told: bool) -> Part {
    let role = if is_told { Role::Possible } else { Role::Limit };
    let argument = "The workload limits its own rate or pauses deliberately.".into();
    Part { resource: Resource::Throttle, role, used: None, argument }
}

/// Little's law: whether as many operations were in flight as the workload allows, and whether that shows the
/// limit. `others` are the parts of all other resources.
fn concurrency(o: &Observed, others: &[Part]) -> Option<Part> {
    let (in_flight, depth) = (o.in_flight()?, o.depth.filter(|depth| *depth > 0.0)?);
    let used = in_flight / depth;
    let law = format!(
        "{} at {} each means {in_flight:.1} in flight (Little's law) of {depth:.0} allowed",
        Unit::PerSecond.show(o.iops),
        Unit::Nanoseconds.show(o.latency_ns?),
    );
    let is = |role: Role| others.iter().any(|part| part.role == role);
    let unseen = |part: &Part| part.role == Role::Unknown && part.resource != Resource::Network;
    let part = |resource, role, argument| Some(Part { resource, role, used: Some(used), argument });
    if used < DEPTH_REACHED {
        let argument = format!(
            "{law}: the queue was not full, so the submitter may be the limit rather than the storage."
        );
        let role = if is(Role::Limit) { Role::Free } else { Role::Possible };
        return part(Resource::Submitter, role, argument);
    }
    if is(Role::Limit) {
        let argument = format!("{law}: the queue is full, as expected with a saturated resource.");
        return part(Resource::Concurrency, Role::Free, argument);
    }
    if o.cpu.is_some_and(|cpu| cpu.is_crowded()) {
        let argument =
            format!("{law}: some of the waiting may have been for processors in use by other work.");
        return part(Resource::Concurrency, Role::Possible, argument);
    }
    if o.sync_writes {
        let argument =
            format!("Waiting for durable data was the limit: each write returns only then ({law}).");
        return part(Resource::SyncLatency, Role::Limit, argument);
    }
    let (role, argument) = if depth <= 1.0 {
        let what = "One operation at a time was the limit: each waits for the previous one";
        (Role::Limit, format!("{what} ({law}). More in flight, or lower latency, may be faster."))
    } else if others.iter().any(unseen) || is(Role::Possible) {
        let what = "the queue was full, but whether more in flight would help is unknown, because disks or \
            processors may have been saturated";
        (Role::Possible, format!("{law}: {what}."))
    } else {
        let what = "neither disks nor processors were saturated. More in flight, or lower latency, would be \
            faster";
        (Role::Limit, format!("Latency times concurrency was the limit: {law}; {what}."))
    };
    part(Resource::Concurrency, role, argument)
}
