//! Pin host memory that already exists, so that GPUs reach it by DMA.
//!
//! A GPU copies from ordinary ("pageable") memory through a bounce buffer of its driver, at a fraction of the bus
//! rate. [`Pinned`] registers memory with the driver of whatever GPU the machine has (CUDA, HIP or Level Zero, found
//! when the program runs) and ends the registration when it is dropped. Where there is no GPU the memory stays as it
//! is, which is always correct, only slower: that is a [`Status`], not an error.
//!
//! ```
//! # fn main() -> hostpin::Result<()> {
//! use hostpin::{Pinned, Status};
//!
//! let mut buffer = vec![0u8; 1 << 20];
//! let mut pinned = Pinned::new(&mut buffer[..])?;
//! match pinned.status() {
//!     Status::Pinned => println!("copies run by DMA"),
//!     Status::Pageable => println!("only slower: {}", pinned.reason()),
//!     Status::Foreign => println!("pinned by other code of this process"),
//! }
//! pinned[0] = 1; // as before; hand pinned.as_ptr() to cudaMemcpyAsync, hipMemcpyAsync, ...
//! drop(pinned); // not pinned any more
//! assert_eq!(buffer[0], 1);
//! # Ok(()) }
//! ```
//!
//! - [`Pinned`] pins a borrowed slice, or owns a `Vec`, a `memmap2::MmapMut`, or anything else with
//!   [`AsMut<[u8]>`](AsMut).
//! - [`Job`] pins in the background, with progress, for pools of hundreds of gigabytes.
//! - [`Split`] cuts a pool so that no block lies across two registrations, and [`split_copies`] cuts lists of copies.
//! - [`is_pinned`], [`Region`] and [`device_pointer`] ask about any memory; they are cheap.
//! - [`backend`], [`stats`], [`version`] and [`set_logger`] tell what happens and why.
//! - [`configure`] sets a budget and more. The environment variables of libhostpin (`HOSTPIN_BACKEND=none`,
//!   `HOSTPIN_BUDGET=50%`, ...) have the last word.
//!
//! # What is safe, and what is yours to take care of
//!
//! Pinning changes no byte, so the safe functions keep Rust's promises whatever the driver does. A copy or kernel that
//! is in flight is not seen by Rust: the `unsafe` code that starts one has to make sure that it has ended before the
//! memory is looked at, unpinned or freed. Dropping [`Pinned`] waits for no device.
//!
//! If [`Pinned`] is leaked ([`std::mem::forget`], a cycle of `Rc`), its memory stays registered. If the memory was
//! only borrowed it can be freed all the same. That is no violation of memory safety, since the driver only holds on
//! to the old pages, but a later device copy from or to the same addresses may use those instead of the new ones.
//!
//! # Threads, panics, fork
//!
//! Every function can be called from every thread. [`Pinned`] and [`Job`] are [`Send`] if their memory is, and
//! [`Sync`] if their memory is, like a `Box`; a registration may be ended on another thread than it was made on.
//! Nothing panics where there is no GPU, and no panic crosses into C. In a forked child registrations are the
//! parent's: calls return [`ErrorKind::Forked`], and dropping frees the child's copy of the memory.

mod config;
mod error;
mod flags;
mod info;
mod job;
mod log;
mod memory;
mod pinned;
mod query;
mod split;

pub use config::{Config, configure};
pub use error::{Error, ErrorKind, Result};
pub use flags::Flags;
pub use info::{Backend, BackendInfo, Stats, backend, stats, version};
pub use job::{Job, JobOptions, Progress};
pub use log::{Level, reset_logger, set_logger};
pub use memory::{Memory, ReadOnly};
pub use pinned::{Pinned, Status};
pub use query::{Region, device_pointer, is_pinned};
pub use split::{Ranges, Split, Transfer, split_copies};
