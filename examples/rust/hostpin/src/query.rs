use std::ffi::c_void;
use std::ops::Range;
use std::ptr::null_mut;

use hostpin_sys as sys;

use crate::{Backend, Error, Flags, Result};

/// Is all of this memory pinned, by this library or, as far as it knows, by others? Takes tens of nanoseconds.
pub fn is_pinned(memory: &[u8]) -> bool {
    unsafe { sys::hp_query(memory.as_ptr().cast(), memory.len(), null_mut()) == sys::HP_OK }
}

/// The segment in which memory lies: one native registration with the driver. A registration of
/// [`Pinned`](crate::Pinned) has one or several, and one copy must not cross from one into the next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Region {
    /// The backend that pinned it.
    pub backend: Backend,
    /// Host addresses, whole pages.
    pub addresses: Range<usize>,
    /// What the driver was given.
    pub flags: Flags,
    /// Registrations that cover it, with their counts.
    pub references: u32,
    /// All of the memory lies in this one segment; copy it in one piece.
    pub one_segment: bool,
    /// Device code may use the host address.
    pub host_address: bool,
    /// The driver would not release it.
    pub stuck: bool,
    /// Pinned by somebody else, as far as known; the addresses are those of our record.
    pub foreign: bool,
}

impl Region {
    /// The segment that holds the first byte of `memory`, if any does.
    pub fn of(memory: &[u8]) -> Option<Region> {
        let mut out = sys::hp_region { struct_size: size_of::<sys::hp_region>() as u32, ..Default::default() };
        let status = unsafe { sys::hp_query(memory.as_ptr().cast(), memory.len(), &mut out) };
        if status < 0 || out.end == 0 {
            return None;
        }
        Some(Region {
            backend: Backend::from_raw(out.backend),
            addresses: out.start as usize..out.end as usize,
            flags: Flags::from_bits(out.flags),
            references: out.references,
            one_segment: out.one_segment != 0,
            host_address: out.host_address != 0,
            stuck: out.stuck != 0,
            foreign: out.foreign != 0,
        })
    }
}

/// The address by which device code reaches the first byte of `memory`. It holds inside one segment only: ask again
/// for the next.
///
/// # Errors
///
/// The memory is not pinned by this library ([`NotFound`](crate::ErrorKind::NotFound)), or the backend pins for copies
/// only ([`Unsupported`](crate::ErrorKind::Unsupported)).
pub fn device_pointer(memory: &[u8]) -> Result<*mut c_void> {
    let mut out = null_mut();
    match unsafe { sys::hp_device_pointer(memory.as_ptr().cast(), &mut out) } {
        sys::HP_OK => Ok(out),
        status => Err(Error::last(status)),
    }
}
