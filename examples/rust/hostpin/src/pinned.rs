use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut, Range};

use hostpin_sys as sys;

use crate::error::last_message;
use crate::memory::Owner;
use crate::{Error, Flags, Memory, Region, Result, device_pointer};

/// What came of a registration that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// All of it is pinned.
    Pinned,
    /// Nothing is pinned, or only a part ([`JobOptions::keep`](crate::JobOptions::keep)); memory and transfers work as
    /// before.
    Pageable,
    /// Somebody else in this process pinned all of it already; nothing was done, and nothing will be undone.
    Foreign,
}

impl Status {
    /// The status of a call that returned `status`, and why it is not `Pinned`.
    pub(crate) fn of_last_call(status: i32) -> Result<(Status, Box<str>)> {
        match status {
            sys::HP_OK => Ok((Status::Pinned, Box::default())),
            sys::HP_FOREIGN => Ok((Status::Foreign, last_message())),
            _ if status >= 0 => Ok((Status::Pageable, last_message())),
            _ => Err(Error::last(status)),
        }
    }
}

/// Memory that is registered with the driver until it is dropped.
///
/// Derefs to its bytes. It pins what it is given, which may be borrowed or owned:
///
/// ```
/// # fn main() -> hostpin::Result<()> {
/// use hostpin::Pinned;
///
/// let mut buffer = [0u8; 4096];
/// let borrowed: Pinned<&mut [u8]> = Pinned::new(&mut buffer[..])?;
/// let owned: Pinned<Vec<u8>> = Pinned::new(vec![0; 1 << 20])?;
/// let mapped: Pinned<memmap2::MmapMut> = Pinned::new(memmap2::MmapMut::map_anon(1 << 21).unwrap())?;
/// # Ok(()) }
/// ```
///
/// A slice cannot be used, moved or freed while it is lent:
///
/// ```compile_fail,E0505
/// # use hostpin::Pinned;
/// let mut buffer = vec![0; 4096];
/// let pinned = Pinned::new(&mut buffer[..]).unwrap();
/// drop(buffer);
/// println!("{}", pinned[0]);
/// ```
///
/// It can be sent to another thread if its memory can:
///
/// ```compile_fail,E0277
/// # use std::{rc::Rc, thread};
/// # use hostpin::{Pinned, ReadOnly};
/// let memory: Rc<[u8]> = Rc::from(vec![0; 4096]);
/// let pinned = Pinned::new(ReadOnly(memory)).unwrap();
/// thread::spawn(move || drop(pinned));
/// ```
///
/// # Dropping
///
/// Make sure first that no copy or kernel uses the memory any more. If the driver does not release it
/// ([`ErrorKind::Stuck`](crate::ErrorKind::Stuck), rare: a lost device), owned memory is not freed but leaked, since
/// the device may still reach it. Borrowed memory can only be left to its owner; use [`unpin`](Pinned::unpin) to see
/// that and to try again.
pub struct Pinned<M> {
    memory: ManuallyDrop<Owner<M>>,
    status: Status,
    reason: Box<str>,
    partly: bool,
}

impl<M: Memory> Pinned<M> {
    /// Pins all of `memory`.
    ///
    /// # Errors
    ///
    /// It is empty, or registered already with another length, the pin budget would be exceeded, there is no memory
    /// for the library's own records, or this is a forked child. `memory` is dropped then; to keep it, lend it: `&mut
    /// memory`. [`Stuck`](crate::ErrorKind::Stuck): the driver pinned a part, refused the rest, and would not give the
    /// part back; if it does not when asked once more, `memory` is leaked.
    pub fn new(memory: M) -> Result<Self> {
        Pinned::with_flags(memory, Flags::NONE)
    }

    /// Pins all of `memory`, as `flags` say.
    ///
    /// # Errors
    ///
    /// As [`new`](Pinned::new), and with [`Flags::REQUIRED`] wherever it would not be pinned.
    pub fn with_flags(memory: M, flags: Flags) -> Result<Self> {
        let memory = Owner::new(memory);
        let status = unsafe { sys::hp_register(memory.base(), memory.bytes().len(), flags.bits()) };
        Pinned::from_last_call(memory, status)
    }

    /// Pins these ranges of `memory`, each as a segment of its own, as [`Split`](crate::Split) makes them. What lies
    /// between them is not pinned. No copy may cross from one segment into the next: see
    /// [`split_copies`](crate::split_copies).
    ///
    /// # Errors
    ///
    /// As [`with_flags`](Pinned::with_flags), and if the ranges are empty, unsorted, overlap or reach beyond the
    /// memory.
    pub fn with_ranges(memory: M, ranges: impl IntoIterator<Item = Range<usize>>, flags: Flags) -> Result<Self> {
        let memory = Owner::new(memory);
        let ranges = memory.ranges(ranges)?;
        let status = unsafe { sys::hp_register_ranges(memory.base(), ranges.as_ptr(), ranges.len(), flags.bits()) };
        Pinned::from_last_call(memory, status)
    }
}

impl<M> Pinned<M> {
    fn from_last_call(memory: Owner<M>, status: i32) -> Result<Self> {
        match Status::of_last_call(status) {
            Ok((status, reason)) => Ok(Pinned::from_parts(memory, status, reason, false)),
            Err(error) => {
                if status == sys::HP_E_STUCK {
                    // Part of it is registered: dropped as what it is, it is released, or leaked.
                    drop(Pinned::from_parts(memory, Status::Pageable, Box::default(), true));
                }
                Err(error)
            }
        }
    }

    /// `partly`: pageable as a whole, but some of it is pinned.
    pub(crate) fn from_parts(memory: Owner<M>, status: Status, reason: Box<str>, partly: bool) -> Self {
        Pinned { memory: ManuallyDrop::new(memory), status, reason, partly }
    }

    /// What came of the registration.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Is it pinned, by this registration or by others in this process? [`is_pinned`](crate::is_pinned) asks again.
    pub fn is_pinned(&self) -> bool {
        self.status != Status::Pageable
    }

    /// Why the status is not [`Status::Pinned`], for a person to read; empty where it is.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The address by which device code reaches the byte at `offset`; see [`device_pointer`].
    ///
    /// # Errors
    ///
    /// `offset` is not in the memory, it is not pinned by this library, or the backend pins for copies only.
    pub fn device_pointer(&self, offset: usize) -> Result<*mut std::ffi::c_void> {
        match self.get(offset..) {
            Some(memory) if !memory.is_empty() => device_pointer(memory),
            _ => Err(Error::invalid(format!("offset {offset} is not in the memory's {} bytes", self.len()))),
        }
    }

    /// Ends the registration and gives the memory back.
    ///
    /// # Errors
    ///
    /// The driver would not release it. It is registered still, and comes back with the error: do not free it, try
    /// again later.
    ///
    /// ```
    /// # fn main() -> hostpin::Result<()> {
    /// let pinned = hostpin::Pinned::new(vec![7u8; 4096])?;
    /// let memory = pinned.unpin().map_err(|(error, _still_pinned)| error)?;
    /// assert_eq!(memory, [7; 4096]);
    /// # Ok(()) }
    /// ```
    pub fn unpin(mut self) -> std::result::Result<M, (Error, Self)> {
        if let Err(error) = unregister(&self.memory, self.status, self.partly) {
            return Err((error, self));
        }
        // SAFETY: `self` is forgotten before anyone could use it again.
        let memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        drop(std::mem::take(&mut self.reason));
        std::mem::forget(self);
        Ok(memory.into_inner())
    }
}

/// Ends the registration that had this status. `Ok` says that the memory may be freed.
pub(crate) fn unregister<M>(memory: &Owner<M>, status: Status, partly: bool) -> Result<()> {
    // The library knows a registration by its address. Where this one pinned nothing, another one of the same shared
    // memory may have taken its place since, and must not be ended here.
    let is_registered = match status {
        Status::Pinned => true,
        Status::Pageable => partly,
        Status::Foreign => Region::of(unsafe { memory.bytes().as_ref() }).is_none_or(|region| region.foreign),
    };
    if !is_registered {
        return Ok(());
    }
    match unsafe { sys::hp_unregister(memory.base()) } {
        // Ended already by others; or in a forked child, whose copy was never pinned.
        sys::HP_OK | sys::HP_E_NOT_FOUND | sys::HP_E_FORKED => Ok(()),
        status => Err(Error::last(status)),
    }
}

impl<M> Drop for Pinned<M> {
    fn drop(&mut self) {
        if unregister(&self.memory, self.status, self.partly).is_ok() {
            // SAFETY: nobody uses it after this.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

impl<M> Deref for Pinned<M> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are borrowed from the memory, which is untouched.
        unsafe { self.memory.bytes().as_ref() }
    }
}

impl<M: AsMut<[u8]>> DerefMut for Pinned<M> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and mutably: only the memory of `AsMut` is without `ReadOnly` around it.
        unsafe { self.memory.bytes().as_mut() }
    }
}

impl<M> fmt::Debug for Pinned<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned")
            .field("base", &self.as_ptr())
            .field("len", &self.len())
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}
