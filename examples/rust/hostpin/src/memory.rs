use std::ops::Range;
use std::ptr::NonNull;

use hostpin_sys as sys;

use crate::{Error, Result};

/// Memory that can be pinned: everything with [`AsMut<[u8]>`](AsMut) (`&mut [u8]`, `Vec<u8>`, `Box<[u8]>`, arrays,
/// `memmap2::MmapMut`, ...), and [`ReadOnly`] of everything with [`AsRef<[u8]>`](AsRef).
///
/// It is asked for its bytes once, and then lies untouched on the heap until it is given back or dropped. So it does
/// not matter whether it would give other bytes the next time, nor where its owner moves the
/// [`Pinned`](crate::Pinned).
pub trait Memory: bytes::Bytes {}

impl<M: bytes::Bytes> Memory for M {}

/// Memory that is only read, such as a `memmap2::Mmap` of shared memory or an `Arc<[u8]>`.
///
/// Drivers can pin memory that is mapped read-only where [`BackendInfo::read_only`](crate::BackendInfo::read_only) is
/// set.
///
/// ```
/// # fn main() -> hostpin::Result<()> {
/// use std::sync::Arc;
/// use hostpin::{Pinned, ReadOnly};
///
/// let weights: Arc<[u8]> = Arc::from(vec![7; 1 << 16]);
/// let pinned = Pinned::new(ReadOnly(Arc::clone(&weights)))?;
/// assert_eq!(pinned[0], weights[0]);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ReadOnly<T>(pub T);

mod bytes {
    use std::ptr::NonNull;

    pub trait Bytes {
        fn bytes(&mut self) -> NonNull<[u8]>;
    }

    impl<T: AsMut<[u8]>> Bytes for T {
        fn bytes(&mut self) -> NonNull<[u8]> {
            NonNull::from(self.as_mut())
        }
    }

    impl<T: AsRef<[u8]>> Bytes for super::ReadOnly<T> {
        fn bytes(&mut self) -> NonNull<[u8]> {
            NonNull::from(self.0.as_ref())
        }
    }
}

/// Memory and the address of its bytes.
///
/// The bytes are what `as_mut()` (or `as_ref()`) lent, for as long as the memory is not touched: so it lies behind a
/// pointer which nobody follows before the end. A `Box` would claim it for itself whenever it moves.
pub(crate) struct Owner<M> {
    memory: NonNull<M>,
    bytes: NonNull<[u8]>,
}

// SAFETY: as a `Box<M>` together with a slice that was borrowed from it.
unsafe impl<M: Send> Send for Owner<M> {}
unsafe impl<M: Sync> Sync for Owner<M> {}

impl<M> Owner<M> {
    pub(crate) fn new(memory: M) -> Self
    where
        M: Memory,
    {
        let memory = NonNull::from(Box::leak(Box::new(memory)));
        // SAFETY: a fresh allocation. The pointer is made first: one made later would end what is borrowed here.
        let bytes = unsafe { &mut *memory.as_ptr() }.bytes();
        Owner { memory, bytes }
    }

    pub(crate) fn into_inner(self) -> M {
        let memory = self.memory;
        std::mem::forget(self);
        // SAFETY: it came from a Box, and nobody else frees it.
        *unsafe { Box::from_raw(memory.as_ptr()) }
    }

    pub(crate) fn bytes(&self) -> NonNull<[u8]> {
        self.bytes
    }

    pub(crate) fn base(&self) -> *mut std::ffi::c_void {
        self.bytes.as_ptr().cast()
    }

    /// Ranges for the library, which does not know how long the memory is.
    pub(crate) fn ranges(&self, ranges: impl IntoIterator<Item = Range<usize>>) -> Result<Vec<sys::hp_range>> {
        let within = |(i, range): (usize, Range<usize>)| {
            if range.end > self.bytes.len() {
                let len = self.bytes.len();
                return Err(Error::invalid(format!("range {i}, {range:?}, reaches beyond the memory's {len} bytes")));
            }
            Ok(sys::hp_range { start: range.start as u64, end: range.end as u64 })
        };
        ranges.into_iter().enumerate().map(within).collect()
    }
}

impl<M> Drop for Owner<M> {
    fn drop(&mut self) {
        // SAFETY: it came from a Box, and nobody else frees it.
        drop(unsafe { Box::from_raw(self.memory.as_ptr()) });
    }
}
