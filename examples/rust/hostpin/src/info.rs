use std::ffi::CStr;
use std::time::Duration;

use hostpin_sys as sys;

use crate::error::text;
use crate::{Error, Result};

/// Whose driver pins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// Nobody's: memory stays pageable.
    None,
    /// NVIDIA's.
    Cuda,
    /// AMD's.
    Hip,
    /// Intel's, and whoever else has a Level Zero driver that can import memory.
    LevelZero,
    /// One that this version of the crate does not know.
    Other,
}

impl Backend {
    pub(crate) fn from_raw(backend: i32) -> Self {
        match backend {
            sys::HP_BACKEND_NONE => Backend::None,
            sys::HP_BACKEND_CUDA => Backend::Cuda,
            sys::HP_BACKEND_HIP => Backend::Hip,
            sys::HP_BACKEND_LEVEL_ZERO => Backend::LevelZero,
            _ => Backend::Other,
        }
    }

    pub(crate) fn to_raw(self) -> i32 {
        match self {
            Backend::None => sys::HP_BACKEND_NONE,
            Backend::Cuda => sys::HP_BACKEND_CUDA,
            Backend::Hip => sys::HP_BACKEND_HIP,
            Backend::LevelZero => sys::HP_BACKEND_LEVEL_ZERO,
            Backend::Other => -1,
        }
    }
}

/// The backend at hand, and why it is not another one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackendInfo {
    /// Which one it is.
    pub backend: Backend,
    /// Device code may use the host address of pinned memory as it is.
    pub host_address: bool,
    /// [`device_pointer`](crate::device_pointer) answers; without it pinned memory serves copies only.
    pub device_pointer: bool,
    /// Memory that is mapped read-only can be pinned on every device.
    pub read_only: bool,
    /// Devices that the runtime sees.
    pub device_count: i32,
    /// As the vendor counts: 12040 is CUDA 12.4; 0 is unknown.
    pub runtime_version: u32,
    /// As the vendor counts; 0 is unknown.
    pub driver_version: u32,
    /// Bytes in one driver call at most.
    pub max_segment: u64,
    /// "cuda", "hip", "level_zero" or "none".
    pub name: Box<str>,
    /// Path or name of the vendor's library; empty for none.
    pub runtime_file: Box<str>,
    /// Why CUDA was passed over; empty when it was chosen.
    pub cuda_reason: Box<str>,
    /// The same for HIP.
    pub hip_reason: Box<str>,
    /// The same for Level Zero.
    pub level_zero_reason: Box<str>,
}

/// Which backend is used. Chooses one if no call has done so yet, which may load vendors' libraries and initialise
/// them.
///
/// ```
/// # fn main() -> hostpin::Result<()> {
/// let backend = hostpin::backend()?;
/// println!("{} with {} devices", backend.name, backend.device_count);
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// No memory, or a forked child.
pub fn backend() -> Result<BackendInfo> {
    let mut out = sys::hp_backend_info { struct_size: size_of::<sys::hp_backend_info>() as u32, ..Default::default() };
    match unsafe { sys::hp_get_backend(&mut out) } {
        sys::HP_OK => Ok(BackendInfo {
            backend: Backend::from_raw(out.backend),
            host_address: out.capabilities & sys::HP_CAP_HOST_ADDRESS != 0,
            device_pointer: out.capabilities & sys::HP_CAP_DEVICE_POINTER != 0,
            read_only: out.capabilities & sys::HP_CAP_READ_ONLY != 0,
            device_count: out.device_count,
            runtime_version: out.runtime_version,
            driver_version: out.driver_version,
            max_segment: out.max_segment,
            name: text(out.name),
            runtime_file: text(out.runtime_file),
            cuda_reason: text(out.cuda_reason),
            hip_reason: text(out.hip_reason),
            level_zero_reason: text(out.level_zero_reason),
        }),
        status => Err(Error::last(status)),
    }
}

/// Counters since the process started. The crate `hostpin-sys` has those of failures, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Registrations that are alive and pinned.
    pub registrations: u64,
    /// Their segments.
    pub segments: u64,
    /// Of these, not released by the driver.
    pub stuck_segments: u64,
    /// Bytes pinned now: whole pages, each counted once.
    pub pinned_bytes: u64,
    /// The most at any time.
    pub pinned_bytes_max: u64,
    /// Bytes of the newest registrations with [`Status::Pageable`](crate::Status::Pageable), also of those that are
    /// dropped, as asked for.
    pub pageable_bytes: u64,
    /// Bytes of live registrations with [`Status::Foreign`](crate::Status::Foreign), as asked for.
    pub foreign_bytes: u64,
    /// Driver calls that pin or release.
    pub vendor_calls: u64,
    /// Time in them, in all.
    pub vendor_time: Duration,
    /// The longest single one.
    pub vendor_time_max: Duration,
}

/// Reads the counters.
pub fn stats() -> Stats {
    let mut out = sys::hp_stats { struct_size: size_of::<sys::hp_stats>() as u32, ..Default::default() };
    // It can fail for a wrong size only.
    let _ok = unsafe { sys::hp_get_stats(&mut out) };
    Stats {
        registrations: out.registrations,
        segments: out.segments,
        stuck_segments: out.stuck_segments,
        pinned_bytes: out.pinned_bytes,
        pinned_bytes_max: out.pinned_bytes_max,
        pageable_bytes: out.pageable_bytes,
        foreign_bytes: out.foreign_bytes,
        vendor_calls: out.vendor_calls,
        vendor_time: Duration::from_nanos(out.vendor_ns),
        vendor_time_max: Duration::from_nanos(out.vendor_ns_max),
    }
}

/// The version of libhostpin that the program runs with, "1.0.0".
pub fn version() -> &'static str {
    unsafe { CStr::from_ptr(sys::hp_version_string()) }.to_str().unwrap_or_default()
}
