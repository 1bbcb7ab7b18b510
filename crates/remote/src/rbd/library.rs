//! The libraries `librados` and `librbd`, loaded when the first image is opened.
//!
//! Idea: Ceph's clients are LGPL libraries of the system, which few machines have. Loading them at run time
//! needs nothing at build time, and no pool without images of RBD needs them. All functions here exist since
//! Ceph 14 (2019), and their signatures are stable.
//!
//! Source: `include/rados/librados.h`, `include/rbd/librbd.h` of Ceph.
#![allow(unsafe_code)] // functions of C, by the signatures of their headers

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use super::error::RbdError;

pub(super) type Cluster = *mut c_void;
pub(super) type IoContext = *mut c_void;
pub(super) type ImageHandle = *mut c_void;
pub(super) type Completion = *mut c_void;
pub(super) type Completed = unsafe extern "C" fn(Completion, *mut c_void);

/// `rbd_image_watcher_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Watcher {
    pub(super) addr: *mut c_char,
    pub(super) id: i64,
    pub(super) cookie: u64,
}

macro_rules! functions {
    ($($library:ident { $($name:ident($($argument:ty),*) $(-> $result:ty)?;)* })*) => {
        /// The functions in use.
        pub(super) struct Calls {
            $($(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*)*
        }

        impl Calls {
            fn load() -> Result<Calls, RbdError> {
                // In this order: the second needs the first.
                $(let $library = open(stringify!($library))?;)*
                Ok(Calls { $($($name: {
                    let symbol = find($library, concat!(stringify!($name), "\0"))?;
                    // SAFETY: the symbol is the function of that name; its signature is the header's.
                    unsafe {
                        std::mem::transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($argument),*) $(-> $result)?,
                        >(symbol)
                    }
                },)*)* })
            }
        }
    };
}

functions! {
    rados {
        rados_create(*mut Cluster, *const c_char) -> c_int;
        rados_conf_read_file(Cluster, *const c_char) -> c_int;
        rados_conf_set(Cluster, *const c_char, *const c_char) -> c_int;
        rados_conf_get(Cluster, *const c_char, *mut c_char, usize) -> c_int;
        rados_connect(Cluster) -> c_int;
        rados_shutdown(Cluster);
        rados_cluster_fsid(Cluster, *mut c_char, usize) -> c_int;
        rados_mon_command(
            Cluster, *mut *const c_char, usize, *const c_char, usize,
            *mut *mut c_char, *mut usize, *mut *mut c_char, *mut usize
        ) -> c_int;
        rados_buffer_free(*mut c_char);
        rados_ioctx_create(Cluster, *const c_char, *mut IoContext) -> c_int;
        rados_ioctx_set_namespace(IoContext, *const c_char);
        rados_ioctx_destroy(IoContext);
    }
    rbd {
        rbd_open(IoContext, *const c_char, *mut ImageHandle, *const c_char) -> c_int;
        rbd_open_read_only(IoContext, *const c_char, *mut ImageHandle, *const c_char) -> c_int;
        rbd_close(ImageHandle) -> c_int;
        rbd_get_size(ImageHandle, *mut u64) -> c_int;
        rbd_get_features(ImageHandle, *mut u64) -> c_int;
        rbd_is_exclusive_lock_owner(ImageHandle, *mut c_int) -> c_int;
        rbd_lock_acquire(ImageHandle, c_int) -> c_int;
        rbd_lock_get_owners(ImageHandle, *mut c_int, *mut *mut c_char, *mut usize) -> c_int;
        rbd_lock_get_owners_cleanup(*mut *mut c_char, usize);
        rbd_lock_break(ImageHandle, c_int, *const c_char) -> c_int;
        rbd_watchers_list(ImageHandle, *mut Watcher, *mut usize) -> c_int;
        rbd_watchers_list_cleanup(*mut Watcher, usize);
        rbd_metadata_get(ImageHandle, *const c_char, *mut c_char, *mut usize) -> c_int;
        rbd_metadata_set(ImageHandle, *const c_char, *const c_char) -> c_int;
        rbd_aio_create_completion(*mut c_void, Completed, *mut Completion) -> c_int;
        rbd_aio_get_return_value(Completion) -> isize;
        rbd_aio_release(Completion);
        rbd_aio_read(ImageHandle, u64, usize, *mut c_char, Completion) -> c_int;
        rbd_aio_writev(ImageHandle, *const libc::iovec, c_int, u64, Completion) -> c_int;
        rbd_aio_discard(ImageHandle, u64, u64, Completion) -> c_int;
        rbd_aio_flush(ImageHandle, Completion) -> c_int;
    }
}

static CALLS: OnceLock<Calls> = OnceLock::new();

/// The functions. A library installed later is found by a later call.
pub(super) fn calls() -> Result<&'static Calls, RbdError> {
    match CALLS.get() {
        Some(calls) => Ok(calls),
        None => {
            let loaded = Calls::load()?;
            Ok(CALLS.get_or_init(|| loaded))
        }
    }
}

/// The functions, for the owner of a handle: so they are loaded.
pub(super) fn loaded() -> &'static Calls {
    CALLS.get().expect("a handle is made by a function that was loaded")
}

/// Opens `librados.so.2` or `librbd.so.1`. It is never closed: its threads may outlive all handles.
fn open(name: &str) -> Result<*mut c_void, RbdError> {
    let file = if name == "rados" { c"librados.so.2" } else { c"librbd.so.1" };
    // SAFETY: the name ends with a zero. The library's constructors are those of a system library.
    let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW) };
    if handle.is_null() { Err(RbdError::NoLibrary { why: last_error() }) } else { Ok(handle) }
}

fn find(library: *mut c_void, name: &str) -> Result<*mut c_void, RbdError> {
    // SAFETY: the handle is an open library's; the name ends with a zero, which the macro appends.
    let symbol = unsafe { libc::dlsym(library, name.as_ptr().cast()) };
    if symbol.is_null() { Err(RbdError::OldLibrary { why: last_error() }) } else { Ok(symbol) }
}

fn last_error() -> String {
    // SAFETY: null, or a text valid until this thread's next call of these functions.
    let text = unsafe {
        let text = libc::dlerror();
        if text.is_null() { None } else { Some(CStr::from_ptr(text)) }
    };
    text.map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}
