//! Each structure with a `struct_size` has the size that the library knows, and no other.

use std::ptr::{null, null_mut};

use hostpin_sys::*;

/// What the library says to this size and to one that is eight bytes longer.
fn statuses<T>(call: impl Fn(u32) -> i32) -> [i32; 2] {
    let size = size_of::<T>() as u32;
    [call(size), call(size + 8)]
}

#[test]
fn of_output_structures() {
    let memory = [0u8; 8];
    let query = statuses::<hp_region>(|struct_size| {
        let mut out = hp_region { struct_size, ..Default::default() };
        unsafe { hp_query(memory.as_ptr().cast(), memory.len(), &mut out) }
    });
    assert_eq!(query, [HP_PAGEABLE, HP_E_INVALID]);

    let backend = statuses::<hp_backend_info>(|struct_size| {
        let mut out = hp_backend_info { struct_size, ..Default::default() };
        unsafe { hp_get_backend(&mut out) }
    });
    assert_eq!(backend, [HP_OK, HP_E_INVALID]);

    let stats = statuses::<hp_stats>(|struct_size| {
        let mut out = hp_stats { struct_size, ..Default::default() };
        unsafe { hp_get_stats(&mut out) }
    });
    assert_eq!(stats, [HP_OK, HP_E_INVALID]);
}

#[test]
fn of_job_structures() {
    let mut memory = vec![0u8; 4096];
    let base = memory.as_mut_ptr().cast();
    let range = hp_range { start: 0, end: 4096 };
    let mut job = null_mut();
    let start = statuses::<hp_job_options>(|struct_size| {
        let options = hp_job_options { struct_size, ..Default::default() };
        let mut started = null_mut();
        let status = unsafe { hp_register_start(base, &range, 1, 0, &options, &mut started) };
        if status == HP_OK {
            assert!(unsafe { hp_job_wait(started, u64::MAX) } >= 0);
            unsafe { hp_job_free(started) };
            let _ = unsafe { hp_unregister(base) };
        }
        status
    });
    assert_eq!(start, [HP_OK, HP_E_INVALID]);

    assert_eq!(unsafe { hp_register_start(base, &range, 1, 0, null(), &mut job) }, HP_OK);
    assert!(unsafe { hp_job_wait(job, u64::MAX) } >= 0);
    let poll = statuses::<hp_progress>(|struct_size| {
        let mut out = hp_progress { struct_size, ..Default::default() };
        unsafe { hp_job_poll(job, &mut out) }
    });
    assert_eq!(poll, [HP_OK, HP_E_INVALID]);
    unsafe { hp_job_free(job) };
    let _ = unsafe { hp_unregister(base) };
}

#[test]
fn of_the_configuration() {
    // Too late or not, which depends on the other tests: the message tells that from a wrong size.
    let configure = |struct_size| {
        let config = hp_config { struct_size, ..Default::default() };
        let status = unsafe { hp_configure(&config) };
        let words = unsafe { std::ffi::CStr::from_ptr(hp_last_error()) };
        status == HP_E_INVALID && words.to_string_lossy().contains("struct_size")
    };
    assert!(!configure(size_of::<hp_config>() as u32));
    assert!(configure(size_of::<hp_config>() as u32 + 8));
}
