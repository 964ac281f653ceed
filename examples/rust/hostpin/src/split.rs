use std::ffi::c_void;
use std::iter::FusedIterator;
use std::ops::Range;
use std::ptr::null_mut;

use hostpin_sys as sys;

use crate::{Error, Result};

/// A pool of tensors to cut into ranges, so that no cut goes through a block.
///
/// The pool holds the tensors back to back, each of the same number of equal blocks, and padding up to its end. A copy
/// of one block then never crosses from one segment into the next.
///
/// ```
/// # fn main() -> hostpin::Result<()> {
/// use hostpin::{Flags, Pinned, Split};
///
/// // Two tensors of four blocks of 1 MiB, pinned 3 MiB at a time at most.
/// let tensor_sizes = [4 << 20, 4 << 20];
/// let split =
///     Split { tensor_sizes: &tensor_sizes, blocks: 4, total_size: 8 << 20, max_chunk: 3 << 20, ..Default::default() };
/// let ranges = split.ranges()?;
/// assert_eq!(ranges.len(), 3);
/// let pool = Pinned::with_ranges(vec![0; 8 << 20], ranges, Flags::NONE)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split<'a> {
    /// Bytes of each tensor, each a multiple of `blocks`.
    pub tensor_sizes: &'a [u64],
    /// Blocks in each tensor.
    pub blocks: u64,
    /// Bytes of the pool, a multiple of the page size.
    pub total_size: u64,
    /// The longest range; 0 is 64 GiB.
    pub max_chunk: u64,
    /// 0 is the system's.
    pub page_size: u64,
}

impl Split<'_> {
    /// The ranges, as few as possible. They tile the pool with no gap.
    ///
    /// # Errors
    ///
    /// Sizes that do not fit together, or [`NoBoundary`](crate::ErrorKind::NoBoundary): some chunk cannot be cut.
    pub fn ranges(&self) -> Result<Ranges> {
        let mut count = 0;
        match self.call(null_mut(), 0, &mut count) {
            sys::HP_OK => {}
            status => return Err(Error::last(status)),
        }
        let mut ranges = Vec::new();
        ranges.try_reserve_exact(count).map_err(|_| Error::no_memory("the ranges"))?;
        match self.call(ranges.as_mut_ptr(), ranges.capacity(), &mut count) {
            sys::HP_OK => {
                // SAFETY: so many were written.
                unsafe { ranges.set_len(count) };
                Ok(Ranges(ranges.into_iter()))
            }
            status => Err(Error::last(status)),
        }
    }

    fn call(&self, ranges: *mut sys::hp_range, capacity: usize, count: &mut usize) -> i32 {
        unsafe {
            sys::hp_split_ranges(
                self.tensor_sizes.as_ptr(),
                self.tensor_sizes.len(),
                self.blocks,
                self.total_size,
                self.max_chunk,
                self.page_size,
                ranges,
                capacity,
                count,
            )
        }
    }
}

/// The ranges of [`Split::ranges`], in order.
#[derive(Clone, Debug)]
pub struct Ranges(std::vec::IntoIter<sys::hp_range>);

fn range(range: sys::hp_range) -> Range<usize> {
    range.start as usize..range.end as usize
}

impl Iterator for Ranges {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        self.0.next().map(range)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl DoubleEndedIterator for Ranges {
    fn next_back(&mut self) -> Option<Range<usize>> {
        self.0.next_back().map(range)
    }
}

impl ExactSizeIterator for Ranges {}
impl FusedIterator for Ranges {}

/// One copy between host memory and a device, whose address may be anything. Addresses are compared, never read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Transfer {
    /// Where it begins in host memory.
    pub host: *const c_void,
    /// Where it begins on the device.
    pub other: *mut c_void,
    /// How long it is.
    pub bytes: u64,
}

const _: () = assert!(size_of::<Transfer>() == size_of::<sys::hp_copy>());

/// Cuts copies at segment borders, so that none lies across two segments, nor half in pinned memory.
///
/// The same copies in the same order, each that crosses a border replaced by its pieces.
///
/// # Errors
///
/// An address that wraps, no memory, a forked child.
///
/// ```
/// # fn main() -> hostpin::Result<()> {
/// use hostpin::{Flags, Pinned, Transfer, split_copies};
///
/// let pool = Pinned::with_ranges(vec![0; 8 << 20], [0..4 << 20, 4 << 20..8 << 20], Flags::NONE)?;
/// let device = 0x7000_0000_0000 as *mut _; // of cudaMalloc, hipMalloc, ...
/// let copies = split_copies(&[Transfer { host: pool.as_ptr().cast(), other: device, bytes: 8 << 20 }])?;
/// assert_eq!(copies.len(), if pool.is_pinned() { 2 } else { 1 });
/// # Ok(()) }
/// ```
pub fn split_copies(copies: &[Transfer]) -> Result<Vec<Transfer>> {
    let mut out: Vec<Transfer> = Vec::new();
    let mut count = copies.len();
    loop {
        // The count can grow from one call to the next, when another thread pins.
        out.try_reserve_exact(count).map_err(|_| Error::no_memory("the copies"))?;
        let (copies, n) = (copies.as_ptr().cast(), copies.len());
        match unsafe { sys::hp_split_copies(copies, n, out.as_mut_ptr().cast(), out.capacity(), &mut count) } {
            sys::HP_OK => {
                // SAFETY: so many were written.
                unsafe { out.set_len(count) };
                return Ok(out);
            }
            sys::HP_E_TOO_SMALL => {}
            status => return Err(Error::last(status)),
        }
    }
}
