/* Made from hostpin.h by bindgen.sh. */

pub const HP_VERSION_MAJOR: u32 = 1;
pub const HP_VERSION_MINOR: u32 = 0;
pub const HP_VERSION_PATCH: u32 = 0;
pub const HP_CAP_HOST_ADDRESS: u32 = 1;
pub const HP_CAP_DEVICE_POINTER: u32 = 2;
pub const HP_CAP_READ_ONLY: u32 = 4;
pub const HP_REGISTER_PORTABLE: u32 = 1;
pub const HP_REGISTER_MAPPED: u32 = 2;
pub const HP_REGISTER_IOMEMORY: u32 = 4;
pub const HP_REGISTER_READONLY: u32 = 8;
pub const HP_REGISTER_REQUIRED: u32 = 65536;
pub const HP_REGISTER_PREFAULT: u32 = 131072;
pub const HP_REGISTER_SERIALIZE: u32 = 262144;
pub const HP_REGISTER_HUGEPAGES: u32 = 524288;
pub const HP_REGISTER_DONTFORK: u32 = 1048576;
pub const HP_OK: i32 = 0;
pub const HP_PAGEABLE: i32 = 1;
pub const HP_FOREIGN: i32 = 2;
pub const HP_E_INVALID: i32 = -1;
pub const HP_E_EXISTS: i32 = -2;
pub const HP_E_NOT_FOUND: i32 = -3;
pub const HP_E_UNAVAILABLE: i32 = -4;
pub const HP_E_REFUSED: i32 = -5;
pub const HP_E_STUCK: i32 = -6;
pub const HP_E_NO_BOUNDARY: i32 = -7;
pub const HP_E_TOO_SMALL: i32 = -8;
pub const HP_E_NO_MEMORY: i32 = -9;
pub const HP_E_FORKED: i32 = -10;
pub const HP_E_CANCELLED: i32 = -11;
pub const HP_E_TIMEOUT: i32 = -12;
pub const HP_E_UNSUPPORTED: i32 = -13;
pub const HP_E_BUDGET: i32 = -14;
pub const HP_BACKEND_AUTO: i32 = 0;
pub const HP_BACKEND_NONE: i32 = 1;
pub const HP_BACKEND_CUDA: i32 = 2;
pub const HP_BACKEND_HIP: i32 = 3;
pub const HP_BACKEND_LEVEL_ZERO: i32 = 4;
pub const HP_JOB_RUNNING: i32 = 1;
pub const HP_JOB_DONE: i32 = 2;
pub const HP_LOG_OFF: i32 = 1;
pub const HP_LOG_ERROR: i32 = 2;
pub const HP_LOG_WARN: i32 = 3;
pub const HP_LOG_INFO: i32 = 4;
pub const HP_LOG_DEBUG: i32 = 5;
unsafe extern "C" {
    pub fn hp_register(ptr: *mut core::ffi::c_void, len: usize, flags: u32) -> i32;
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct hp_range {
    pub start: u64,
    pub end: u64,
}
unsafe extern "C" {
    pub fn hp_register_ranges(base: *mut core::ffi::c_void, ranges: *const hp_range, n: usize, flags: u32) -> i32;
}
unsafe extern "C" {
    pub fn hp_unregister(ptr: *mut core::ffi::c_void) -> i32;
}
unsafe extern "C" {
    pub fn hp_unregister_all(timeout_ns: u64) -> i32;
}
unsafe extern "C" {
    pub fn hp_split_ranges(
        tensor_sizes: *const u64,
        num_tensors: usize,
        num_blocks: u64,
        total_size: u64,
        max_chunk_bytes: u64,
        page_size: u64,
        ranges: *mut hp_range,
        capacity: usize,
        num_ranges: *mut usize,
    ) -> i32;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hp_copy {
    pub host: *const core::ffi::c_void,
    pub other: *mut core::ffi::c_void,
    pub bytes: u64,
}
impl Default for hp_copy {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
unsafe extern "C" {
    pub fn hp_split_copies(in_: *const hp_copy, n: usize, out: *mut hp_copy, capacity: usize, count: *mut usize)
    -> i32;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hp_job {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct hp_job_options {
    pub struct_size: u32,
    pub keep: u32,
    pub chunk_bytes: u64,
    pub pause_ns: u64,
    pub prefault_threads: u32,
    pub reserved0: u32,
    pub reserved: [u64; 4usize],
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct hp_progress {
    pub struct_size: u32,
    pub state: i32,
    pub status: i32,
    pub reserved0: u32,
    pub bytes_done: u64,
    pub bytes_total: u64,
    pub pinned_bytes: u64,
    pub elapsed_ns: u64,
    pub reserved: [u64; 4usize],
}
unsafe extern "C" {
    pub fn hp_register_start(
        base: *mut core::ffi::c_void,
        ranges: *const hp_range,
        n: usize,
        flags: u32,
        options: *const hp_job_options,
        job: *mut *mut hp_job,
    ) -> i32;
}
unsafe extern "C" {
    pub fn hp_job_poll(job: *mut hp_job, out: *mut hp_progress) -> i32;
}
unsafe extern "C" {
    pub fn hp_job_wait(job: *mut hp_job, timeout_ns: u64) -> i32;
}
unsafe extern "C" {
    pub fn hp_job_cancel(job: *mut hp_job) -> i32;
}
unsafe extern "C" {
    pub fn hp_job_free(job: *mut hp_job);
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct hp_region {
    pub struct_size: u32,
    pub backend: i32,
    pub start: u64,
    pub end: u64,
    pub flags: u32,
    pub references: u32,
    pub one_segment: u32,
    pub host_address: u32,
    pub stuck: u32,
    pub foreign: u32,
    pub reserved: [u64; 6usize],
}
unsafe extern "C" {
    pub fn hp_query(ptr: *const core::ffi::c_void, len: usize, out: *mut hp_region) -> i32;
}
unsafe extern "C" {
    pub fn hp_device_pointer(ptr: *const core::ffi::c_void, device_ptr: *mut *mut core::ffi::c_void) -> i32;
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hp_backend_info {
    pub struct_size: u32,
    pub backend: i32,
    pub capabilities: u32,
    pub device_count: i32,
    pub runtime_version: u32,
    pub driver_version: u32,
    pub max_segment: u64,
    pub name: *const core::ffi::c_char,
    pub runtime_file: *const core::ffi::c_char,
    pub cuda_reason: *const core::ffi::c_char,
    pub hip_reason: *const core::ffi::c_char,
    pub level_zero_reason: *const core::ffi::c_char,
    pub reserved: [u64; 8usize],
}
impl Default for hp_backend_info {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
unsafe extern "C" {
    pub fn hp_get_backend(out: *mut hp_backend_info) -> i32;
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone)]
pub struct hp_stats {
    pub struct_size: u32,
    pub reserved0: u32,
    pub registrations: u64,
    pub segments: u64,
    pub stuck_segments: u64,
    pub pinned_bytes: u64,
    pub pinned_bytes_max: u64,
    pub pageable_bytes: u64,
    pub foreign_bytes: u64,
    pub vendor_calls: u64,
    pub vendor_ns: u64,
    pub vendor_ns_max: u64,
    pub failed_invalid: u64,
    pub failed_memory: u64,
    pub failed_foreign: u64,
    pub failed_unsupported: u64,
    pub failed_capture: u64,
    pub failed_device: u64,
    pub failed_release: u64,
    pub failed_other: u64,
    pub reserved: [u64; 8usize],
}
unsafe extern "C" {
    pub fn hp_get_stats(out: *mut hp_stats) -> i32;
}
unsafe extern "C" {
    pub fn hp_strerror(status: i32) -> *const core::ffi::c_char;
}
unsafe extern "C" {
    pub fn hp_last_error() -> *const core::ffi::c_char;
}
unsafe extern "C" {
    pub fn hp_last_native_error() -> i64;
}
unsafe extern "C" {
    pub fn hp_set_log_callback(
        fn_: ::core::option::Option<
            unsafe extern "C" fn(level: i32, msg: *const core::ffi::c_char, user: *mut core::ffi::c_void),
        >,
        user: *mut core::ffi::c_void,
    );
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct hp_config {
    pub struct_size: u32,
    pub backend: i32,
    pub log_level: i32,
    pub ze_memmap: u32,
    pub max_segment: u64,
    pub budget_bytes: u64,
    pub budget_percent: u32,
    pub prefault_threads: u32,
    pub cudart: *const core::ffi::c_char,
    pub cuda_driver: *const core::ffi::c_char,
    pub amdhip: *const core::ffi::c_char,
    pub ze_loader: *const core::ffi::c_char,
    pub reserved: [u64; 8usize],
}
impl Default for hp_config {
    fn default() -> Self {
        let mut s = ::core::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::core::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
unsafe extern "C" {
    pub fn hp_configure(config: *const hp_config) -> i32;
}
unsafe extern "C" {
    pub fn hp_version() -> u32;
}
unsafe extern "C" {
    pub fn hp_version_string() -> *const core::ffi::c_char;
}
