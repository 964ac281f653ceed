use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use hostpin_sys as sys;

/// How important a log line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Something failed.
    Error,
    /// Something is not as one would wish, such as memory that stays pageable.
    Warn,
    /// What was chosen, such as the backend.
    Info,
    /// Details for whoever looks for a fault.
    Debug,
}

impl Level {
    fn from_raw(level: i32) -> Self {
        match level {
            sys::HP_LOG_ERROR => Level::Error,
            sys::HP_LOG_WARN => Level::Warn,
            sys::HP_LOG_INFO => Level::Info,
            _ => Level::Debug,
        }
    }

    pub(crate) fn to_raw(self) -> i32 {
        match self {
            Level::Error => sys::HP_LOG_ERROR,
            Level::Warn => sys::HP_LOG_WARN,
            Level::Info => sys::HP_LOG_INFO,
            Level::Debug => sys::HP_LOG_DEBUG,
        }
    }
}

/// Receives log lines instead of stderr: warnings and errors, or what [`Config::log_level`](crate::Config) or the
/// environment variable `HOSTPIN_LOG` says.
///
/// `logger` may be called from any thread, also from several at once. A panic in it is caught, and the line is lost.
/// It is never freed, since another thread may be in it at any time: call this once.
///
/// ```
/// hostpin::set_logger(|level, line| println!("{level:?}: {line}"));
/// ```
pub fn set_logger<F: Fn(Level, &str) + Send + Sync + 'static>(logger: F) {
    let logger: *const F = Box::leak(Box::new(logger));
    unsafe { sys::hp_set_log_callback(Some(forward::<F>), logger.cast_mut().cast()) };
}

/// Sends log lines to stderr again.
pub fn reset_logger() {
    unsafe { sys::hp_set_log_callback(None, null_mut()) };
}

unsafe extern "C" fn forward<F: Fn(Level, &str)>(level: i32, line: *const c_char, logger: *mut c_void) {
    // SAFETY: what set_logger() handed over, which lives for ever, and a line for the duration of this call.
    let (logger, line) = unsafe { (&*logger.cast::<F>(), CStr::from_ptr(line)) };
    let call = || logger(Level::from_raw(level), &line.to_string_lossy());
    if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
        // Its drop could panic again, in C's frames.
        std::mem::forget(panic);
    }
}
