//! The driver of the simulated runtimes, as far as the tests steer it; `hostpin-sim.h` is the reference.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute;
use std::sync::{Mutex, MutexGuard};

use hostpin::Backend;

unsafe extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

const RTLD_NOW: c_int = 2;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

pub struct Simulation {
    library: *mut c_void,
    vendor: c_int,
    _lock: MutexGuard<'static, ()>,
}

// SAFETY: its functions may be called from any thread.
unsafe impl Sync for Simulation {}

impl Simulation {
    /// The driver as at load, then with `script` on top. One test at a time has it.
    pub fn with(script: &str) -> Self {
        let lock = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let vendor = match hostpin::backend().unwrap().backend {
            Backend::Cuda => 0,
            Backend::Hip => 1,
            other => panic!("{other:?}: neither HOSTPIN_CUDART nor HOSTPIN_AMDHIP names a simulated runtime"),
        };
        let library = unsafe { dlopen(c"libhostpin-sim.so.0".as_ptr(), RTLD_NOW) };
        assert!(!library.is_null(), "LD_LIBRARY_PATH does not name the folder of libhostpin-sim.so.0");
        let simulation = Simulation { library, vendor, _lock: lock };
        assert_eq!(simulation.registrations(), 0, "a test left memory registered");
        unsafe { transmute::<*mut c_void, extern "C" fn()>(simulation.function(c"hps_reset"))() };
        let script = CString::new(script).unwrap();
        type Script = extern "C" fn(*const c_char) -> c_int;
        let status = unsafe { transmute::<*mut c_void, Script>(simulation.function(c"hps_script"))(script.as_ptr()) };
        assert_eq!(status, 0);
        simulation
    }

    fn function(&self, name: &CStr) -> *mut c_void {
        let function = unsafe { dlsym(self.library, name.as_ptr()) };
        assert!(!function.is_null(), "{name:?}");
        function
    }

    /// Native registrations that are alive.
    pub fn registrations(&self) -> usize {
        unsafe { transmute::<*mut c_void, extern "C" fn() -> usize>(self.function(c"hps_live_registrations"))() }
    }

    /// Pins memory as other code of the process would.
    pub fn pin_foreign(&self, memory: &[u8]) {
        type Pin = extern "C" fn(c_int, *const c_void, usize) -> c_int;
        let pin = unsafe { transmute::<*mut c_void, Pin>(self.function(c"hps_pin_foreign")) };
        assert_eq!(pin(self.vendor, memory.as_ptr().cast(), memory.len()), 0);
    }

    /// Releases it again.
    pub fn unpin_foreign(&self, memory: &[u8]) {
        type Unpin = extern "C" fn(c_int, *const c_void) -> c_int;
        let unpin = unsafe { transmute::<*mut c_void, Unpin>(self.function(c"hps_unpin_foreign")) };
        assert_eq!(unpin(self.vendor, memory.as_ptr().cast()), 0, "it is pinned no more");
    }

    /// From now on register calls wait, until `unblock`.
    pub fn block_register(&self) {
        type Block = extern "C" fn(*const c_char);
        unsafe { transmute::<*mut c_void, Block>(self.function(c"hps_block"))(c"register".as_ptr()) };
    }

    /// Lets them go on.
    pub fn unblock_register(&self) {
        type Unblock = extern "C" fn(*const c_char);
        unsafe { transmute::<*mut c_void, Unblock>(self.function(c"hps_unblock"))(c"register".as_ptr()) };
    }

    /// Waits until one register call waits.
    pub fn wait_blocked(&self) {
        type Wait = extern "C" fn(*const c_char, u32, u32) -> c_int;
        let wait = unsafe { transmute::<*mut c_void, Wait>(self.function(c"hps_wait_blocked")) };
        assert_eq!(wait(c"register".as_ptr(), 1, 60_000), 0);
    }
}
