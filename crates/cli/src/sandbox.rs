//! What the daemon gives up at its start: rights and system calls that no part of it uses.
//!
//! ```text
//!   main, one thread       capabilities (KEPT)           daemon, programs of alerts
//!   doors are open         system calls (FORBIDDEN)      all threads, and all children
//!   hands                  more capabilities (OF_HAND)
//!   guard, with fusectl    every capability
//! ```
//!
//! Idea: a daemon that mounts and opens disks is root, and code that has taken it over can do what that
//! means: read and write disks, files, mounts. What it can't do any more is to get into the kernel, or to
//! other processes, by calls of no use here: loading modules, kexec, BPF, ptrace and the like. A list of what
//! is forbidden can't break what is allowed, and costs nothing: the kernel knows for most calls in advance
//! that the filter lets them pass (from 5.11 on).
//!
//! Landlock is no help: it forbids all mounting. Namespaces would hide the mounts from others. Without root
//! there is nothing to give up, and a filter would keep fusermount3 from its rights.
//!
//! Source: capabilities(7), seccomp(2), systemd.exec(5) (`SystemCallFilter`: `@module`, `@reboot`, `@swap`,
//! `@debug`, `@clock`, `@keyring`).
#![allow(unsafe_code)] // one system call: the one of seccompiler forbids speculation

use std::collections::BTreeMap;
use std::io;

use rustix::process::geteuid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

/// What the daemon and its children keep of root's rights.
const KEPT: [CapabilitySet; 20] = [
    // Files of all users: those of pools, copied out and in with owners, modes and attributes.
    CapabilitySet::CHOWN,
    CapabilitySet::DAC_OVERRIDE,
    CapabilitySet::DAC_READ_SEARCH,
    CapabilitySet::FOWNER,
    CapabilitySet::FSETID,
    CapabilitySet::LINUX_IMMUTABLE,
    CapabilitySet::MKNOD,
    CapabilitySet::SETFCAP,
    CapabilitySet::MAC_ADMIN,
    // Hands open files as other users; programs of alerts may act as others.
    CapabilitySet::SETGID,
    CapabilitySet::SETUID,
    CapabilitySet::SETPCAP,
    CapabilitySet::AUDIT_WRITE,
    CapabilitySet::KILL,
    // Doors.
    CapabilitySet::NET_BIND_SERVICE,
    // Mounts, loop devices, ublk; io_uring's memory; SMART data; who uses a mount.
    CapabilitySet::SYS_ADMIN,
    CapabilitySet::IPC_LOCK,
    CapabilitySet::SYS_RESOURCE,
    CapabilitySet::SYS_RAWIO,
    CapabilitySet::SYS_PTRACE,
];

/// What hands keep: they mount, as root and on paths of others; they open files as others, and say who uses a
/// mount.
const OF_HAND: [CapabilitySet; 7] = [
    CapabilitySet::SYS_ADMIN,
    CapabilitySet::DAC_OVERRIDE,
    CapabilitySet::DAC_READ_SEARCH,
    CapabilitySet::FOWNER,
    CapabilitySet::SETGID,
    CapabilitySet::SETUID,
    CapabilitySet::SYS_PTRACE,
];

/// Calls that fail with EPERM from now on: no part makes them, nor a program that an alert would run.
const FORBIDDEN: &[libc::c_long] = &[
    // Code for the kernel, or another kernel.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_bpf,
    libc::SYS_reboot,
    // Parts of it where most of its holes have been.
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    // Other processes, and files without a path to them.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    // The machine as a whole.
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_quotactl,
    libc::SYS_pivot_root,
    libc::SYS_vhangup,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
];

/// On x86-64, calls have other numbers, too (x32).
const X32: i64 = 0x4000_0000;

/// Gives up the rights of root that the daemon does not use, for this thread, those that it starts and their
/// children. Called before there are others.
pub fn drop_capabilities() -> io::Result<()> {
    keep_only(KEPT.into_iter().collect())
}

/// The same for a hand.
pub fn drop_capabilities_of_hand() -> io::Result<()> {
    keep_only(OF_HAND.into_iter().collect())
}

/// Gives up all rights of root but those on files of its own.
pub fn drop_all_capabilities() -> io::Result<()> {
    keep_only(CapabilitySet::empty())
}

fn keep_only(kept: CapabilitySet) -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    for bit in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        // The kernel knows no more than those before.
        let Ok(is_there) = capability_is_in_bounding_set(one) else { break };
        if is_there && !kept.contains(one) {
            // In a container it may not be root's to decide what programs get that it starts.
            remove_capability_from_bounding_set(one).ok();
        }
    }
    let now = capabilities(None)?;
    let left = CapabilitySets {
        effective: now.effective & kept,
        permitted: now.permitted & kept,
        inheritable: now.inheritable & kept,
    };
    Ok(set_capabilities(None, left)?)
}

/// Gives up system calls, for all threads and whatever they start.
pub fn forbid_calls() -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let filter = filter().map_err(io::Error::other)?;
    match install(&filter) {
        // Root without rights, as in a container: then setuid programs have to go.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            set_no_new_privs(true)?;
            install(&filter)
        }
        done => done,
    }
}

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let mut rules = BTreeMap::new();
    for &number in FORBIDDEN {
        #[allow(clippy::useless_conversion, reason = "its width depends on the machine")]
        let number = i64::from(number);
        rules.insert(number, Vec::new());
        if arch == TargetArch::x86_64 {
            rules.insert(number | X32, Vec::new());
        }
    }
    let eperm = SeccompAction::Errno(libc::EPERM as u32);
    SeccompFilter::new(rules, SeccompAction::Allow, eperm, arch)?.try_into()
}

/// Before Linux 5.16, a filter also forbids speculation, which costs more than the filter, unless it says
/// that it does not mean that.
fn install(filter: &BpfProgram) -> io::Result<()> {
    let too_long = |_| io::Error::other("the filter is too long");
    let program = libc::sock_fprog {
        len: filter.len().try_into().map_err(too_long)?,
        filter: filter.as_ptr().cast_mut().cast(),
    };
    let flags = libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: the kernel reads `len` instructions of `filter`, which lives until the call is over, and whose
    // layout is that of `libc::sock_filter`.
    let answer =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    match answer {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        thread => Err(io::Error::other(format!("thread {thread} has a filter of its own"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_of_systemd_keeps_the_same_capabilities() {
        let unit = include_str!("../../../dist/cenote.service");
        let line = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
        let mut named: Vec<&str> = line.unwrap().split(' ').collect();
        let names: Vec<String> = KEPT.iter().map(|one| named_of(*one)).collect();
        let mut kept: Vec<&str> = names.iter().map(String::as_str).collect();
        named.sort_unstable();
        kept.sort_unstable();
        assert_eq!(named, kept);
    }

    fn named_of(one: CapabilitySet) -> String {
        format!("CAP_{}", one.iter_names().next().unwrap().0)
    }

    #[test]
    fn a_thread_that_gave_calls_up_is_refused_them() {
        let program = filter().unwrap();
        std::thread::spawn(move || {
            // Of this thread alone; the tests beside it go on.
            seccompiler::apply_filter(&program).unwrap();
            // SAFETY: an invalid flag, refused in any case.
            let answer = unsafe { libc::syscall(libc::SYS_userfaultfd, -1) };
            assert_eq!((answer, io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EPERM)));
            assert!(std::fs::read("/proc/self/status").is_ok());
        })
        .join()
        .unwrap();
    }
}
