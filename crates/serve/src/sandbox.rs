//! Drops rights and system calls that no part of the daemon uses, at its start.
//!
//! ```text
//!   main, one thread       capabilities (KEPT)           daemon, programs of alerts
//!   doors are open         system calls (FORBIDDEN)      all threads, and all children
//!   hands                  more capabilities (OF_HAND)
//!   guard, with fusectl    every capability
//! ```
//!
//! Idea: a daemon that mounts and opens disks is root. The sandbox keeps code that takes it over from
//! entering the kernel or other processes through calls that the daemon never makes: module loading, kexec,
//! BPF, ptrace and the like. A list of forbidden calls can't break allowed ones, and costs nothing: from 5.11
//! on, the kernel knows in advance which calls always pass.
//!
//! Landlock does not fit: it forbids all mounting. Namespaces would hide the mounts from other processes.
//! Without root, the daemon has no rights to drop, and a filter would keep fusermount3 from its rights.
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

/// Capabilities kept by the daemon and its children.
const KEPT: [CapabilitySet; 20] = [
    // Files of all users: pool images, and files copied out and in with owners, modes and attributes.
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
    // Ports of doors.
    CapabilitySet::NET_BIND_SERVICE,
    // Mounts, loop devices, ublk; io_uring's memory; SMART data; users of a mount.
    CapabilitySet::SYS_ADMIN,
    CapabilitySet::IPC_LOCK,
    CapabilitySet::SYS_RESOURCE,
    CapabilitySet::SYS_RAWIO,
    CapabilitySet::SYS_PTRACE,
];

/// Kept, too, by a daemon whose pools take addresses with them: `ip address`, `arping`.
const NETWORK: [CapabilitySet; 2] = [CapabilitySet::NET_ADMIN, CapabilitySet::NET_RAW];

/// Capabilities kept by hands: they mount, as root and on other users' paths, open files as other users, and
/// list the users of a mount.
const OF_HAND: [CapabilitySet; 7] = [
    CapabilitySet::SYS_ADMIN,
    CapabilitySet::DAC_OVERRIDE,
    CapabilitySet::DAC_READ_SEARCH,
    CapabilitySet::FOWNER,
    CapabilitySet::SETGID,
    CapabilitySet::SETUID,
    CapabilitySet::SYS_PTRACE,
];

/// Calls that fail with EPERM from now on: neither the daemon nor any program run by an alert makes them.
const FORBIDDEN: &[libc::c_long] = &[
    // Code for the kernel, or another kernel.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_bpf,
    libc::SYS_reboot,
    // Parts of the kernel with a history of vulnerabilities.
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
    // Other processes, and files without a path.
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

/// The flag of the second set of call numbers on x86-64 (x32).
const X32: i64 = 0x4000_0000;

/// Drops the rights of root that the daemon does not use, for this thread, threads that it starts, and their
/// children. Call it before other threads exist. `moves_addresses`: addresses of network interfaces move with
/// pools.
pub fn drop_capabilities(moves_addresses: bool) -> io::Result<()> {
    let network = if moves_addresses { &NETWORK[..] } else { &[] };
    keep_only(KEPT.iter().chain(network).copied().collect())
}

/// The same for a hand.
pub fn drop_capabilities_of_hand() -> io::Result<()> {
    keep_only(OF_HAND.into_iter().collect())
}

/// Drops all rights of root except those of a file's owner.
pub fn drop_all_capabilities() -> io::Result<()> {
    keep_only(CapabilitySet::empty())
}

fn keep_only(kept: CapabilitySet) -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    for bit in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        // The kernel knows no capabilities beyond the first missing one.
        let Ok(is_there) = capability_is_in_bounding_set(one) else { break };
        if is_there && !kept.contains(one) {
            // In a container, root may lack the right to limit the capabilities of child programs.
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

/// Forbids these system calls for all threads and their children.
pub fn forbid_calls() -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let filter = filter().map_err(io::Error::other)?;
    match install(&filter) {
        // Root without capabilities, as in a container: the filter needs `no_new_privs`, which disables
        // setuid.
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

/// Installs a filter. Before Linux 5.16, a filter also disables speculation, unless a flag opts out; that
/// would cost more than the filter.
fn install(filter: &BpfProgram) -> io::Result<()> {
    let too_long = |_| io::Error::other("the filter is too long");
    let program = libc::sock_fprog {
        len: filter.len().try_into().map_err(too_long)?,
        filter: filter.as_ptr().cast_mut().cast(),
    };
    let flags = libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // SAFETY: the kernel reads `len` instructions of `filter`, which lives until the call returns and has the
    // layout of `libc::sock_filter`.
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
            // For this thread only; other tests continue.
            seccompiler::apply_filter(&program).unwrap();
            // SAFETY: the flag is invalid, so the call is refused in any case.
            let answer = unsafe { libc::syscall(libc::SYS_userfaultfd, -1) };
            assert_eq!((answer, io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EPERM)));
            assert!(std::fs::read("/proc/self/status").is_ok());
        })
        .join()
        .unwrap();
    }
}
