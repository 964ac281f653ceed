use hostpin_sys as sys;

use crate::{Backend, Error, Level, Result};

/// Settings for [`configure`]. Zero and `None` mean the library's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The backend to use; it is tried even without a sign of its device.
    pub backend: Option<Backend>,
    /// Less important lines are not logged; [`Level::Warn`] by default.
    pub log_level: Option<Level>,
    /// Bytes in one driver call at most, a page or more; 64 GiB by default.
    pub max_segment: u64,
    /// Bytes that may be pinned at a time; no limit by default.
    pub budget_bytes: u64,
    /// The same in percent of the memory that this process may use, 1 to 100; not both.
    pub budget_percent: u32,
    /// Threads for [`Flags::PREFAULT`](crate::Flags::PREFAULT), 64 at most; by default by the number of cores, 4 at
    /// most.
    pub prefault_threads: u32,
}

/// Sets what the environment does not. Call it first, before anything is pinned or [`backend`](crate::backend) is
/// asked.
///
/// The environment is stronger, so that the person who runs a program has the last word. What is not here (files of
/// vendors' libraries, the memmap extension of Level Zero) can be set there, or with the crate `hostpin-sys`.
///
/// ```standalone_crate
/// # fn main() -> hostpin::Result<()> {
/// use hostpin::{Config, Level};
///
/// hostpin::configure(&Config { budget_percent: 75, log_level: Some(Level::Info), ..Default::default() })?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// A value out of range, or too late; nothing is changed then. No memory, or a forked child.
pub fn configure(config: &Config) -> Result<()> {
    let config = sys::hp_config {
        struct_size: size_of::<sys::hp_config>() as u32,
        backend: config.backend.map_or(sys::HP_BACKEND_AUTO, Backend::to_raw),
        log_level: config.log_level.map_or(0, Level::to_raw),
        max_segment: config.max_segment,
        budget_bytes: config.budget_bytes,
        budget_percent: config.budget_percent,
        prefault_threads: config.prefault_threads,
        ..Default::default()
    };
    match unsafe { sys::hp_configure(&config) } {
        sys::HP_OK => Ok(()),
        status => Err(Error::last(status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_are_named_to_the_library_as_it_names_them() {
        for backend in [Backend::None, Backend::Cuda, Backend::Hip, Backend::LevelZero] {
            assert_eq!(Backend::from_raw(backend.to_raw()), backend);
        }
    }
}
