use std::ffi::CStr;
use std::fmt;

use hostpin_sys as sys;

/// The result of a call that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// A fault of the caller or of the system, with the library's words for it.
///
/// That there is no GPU, or that a driver does not want to pin, is no error but [`Status::Pageable`](crate::Status),
/// unless [`Flags::REQUIRED`](crate::Flags::REQUIRED) says so.
///
/// ```
/// use hostpin::{ErrorKind, Pinned};
///
/// let error = Pinned::new(&mut [][..]).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Invalid);
/// println!("{error}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    status: i32,
    native: i64,
    message: Box<str>,
}

impl Error {
    /// What the thread's last call to the library, which returned `status`, had to say.
    pub(crate) fn last(status: i32) -> Self {
        let native = unsafe { sys::hp_last_native_error() };
        let mut message = last_message();
        if message.is_empty() {
            message = text(unsafe { sys::hp_strerror(status) });
        }
        Error { status, native, message }
    }

    pub(crate) fn invalid(message: String) -> Self {
        Error { status: sys::HP_E_INVALID, native: 0, message: message.into() }
    }

    pub(crate) fn no_memory(what: &str) -> Self {
        Error { status: sys::HP_E_NO_MEMORY, native: 0, message: format!("no memory for {what}").into() }
    }

    /// What kind of fault this is.
    pub fn kind(&self) -> ErrorKind {
        match self.status {
            sys::HP_E_INVALID => ErrorKind::Invalid,
            sys::HP_E_EXISTS => ErrorKind::Exists,
            sys::HP_E_NOT_FOUND => ErrorKind::NotFound,
            sys::HP_E_UNAVAILABLE => ErrorKind::Unavailable,
            sys::HP_E_REFUSED => ErrorKind::Refused,
            sys::HP_E_STUCK => ErrorKind::Stuck,
            sys::HP_E_NO_BOUNDARY => ErrorKind::NoBoundary,
            sys::HP_E_NO_MEMORY => ErrorKind::NoMemory,
            sys::HP_E_FORKED => ErrorKind::Forked,
            sys::HP_E_CANCELLED => ErrorKind::Cancelled,
            sys::HP_E_UNSUPPORTED => ErrorKind::Unsupported,
            sys::HP_E_BUDGET => ErrorKind::Budget,
            _ => ErrorKind::Other,
        }
    }

    /// The status code of the C library, one of `HP_E_...`.
    pub fn status(&self) -> i32 {
        self.status
    }

    /// The vendor's code, 0 if no driver was involved.
    pub fn native_code(&self) -> i64 {
        self.native
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Kinds of [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument; the message names it and its value.
    Invalid,
    /// Memory at the same address is registered with another length or other ranges.
    Exists,
    /// The memory is not registered.
    NotFound,
    /// There is no usable backend, and [`Flags::REQUIRED`](crate::Flags::REQUIRED) was set.
    Unavailable,
    /// The driver refused, and [`Flags::REQUIRED`](crate::Flags::REQUIRED) was set.
    Refused,
    /// The driver would not release the memory.
    Stuck,
    /// A pool cannot be cut so that blocks, pages and chunk limit are respected.
    NoBoundary,
    /// The library could not allocate, or could not make a thread.
    NoMemory,
    /// Called in a forked child, where pins are the parent's.
    Forked,
    /// The job was cancelled; what it had pinned is released.
    Cancelled,
    /// This backend cannot do that.
    Unsupported,
    /// More than the budget would be pinned; no driver was called.
    Budget,
    /// Something that this version of the crate does not know; see [`Error::status`].
    Other,
}

/// What the thread's last call that did not return `HP_OK` had to say.
pub(crate) fn last_message() -> Box<str> {
    text(unsafe { sys::hp_last_error() })
}

/// A text of the library, which is never null and valid at least until this thread's next call.
pub(crate) fn text(text: *const std::ffi::c_char) -> Box<str> {
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into()
}
