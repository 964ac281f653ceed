//! Raw bindings to libhostpin: every function, structure and constant of `hostpin.h`, which is their reference.
//! The crate `hostpin` has a safe interface to them.
//!
//! Names are C's. Statuses, backends, states and levels are `i32`, bits of flags and capabilities `u32`, as the
//! functions and fields that take them. `Default` of a structure is all zero: set `struct_size`.
//!
//! ```
//! use hostpin_sys::*;
//!
//! let mut stats = hp_stats { struct_size: size_of::<hp_stats>() as u32, ..Default::default() };
//! assert_eq!(unsafe { hp_get_stats(&mut stats) }, HP_OK);
//! ```
#![no_std]

#[allow(non_camel_case_types, missing_docs, clippy::all)]
mod bindings;
pub use bindings::*;
