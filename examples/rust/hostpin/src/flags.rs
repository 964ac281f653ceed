use std::ops::{BitOr, BitOrAssign};

use hostpin_sys as sys;

/// How to pin. Combine them with `|`.
///
/// ```
/// use hostpin::Flags;
///
/// let flags = Flags::PREFAULT | Flags::HUGEPAGES;
/// assert!(flags.contains(Flags::PREFAULT) && !flags.contains(Flags::REQUIRED));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(u32);

impl Flags {
    /// As the driver does it.
    pub const NONE: Flags = Flags(0);
    /// For all devices and contexts; always asked for where the runtime has it.
    pub const PORTABLE: Flags = Flags(sys::HP_REGISTER_PORTABLE);
    /// Map it for device code; the runtimes do so by themselves today.
    pub const MAPPED: Flags = Flags(sys::HP_REGISTER_MAPPED);
    /// The range is memory-mapped I/O space of a device.
    pub const IOMEMORY: Flags = Flags(sys::HP_REGISTER_IOMEMORY);
    /// Devices only read it; added by itself for memory that is mapped read-only.
    pub const READONLY: Flags = Flags(sys::HP_REGISTER_READONLY);
    /// Not pinned is an [`Error`](crate::Error), not [`Status::Pageable`](crate::Status::Pageable).
    pub const REQUIRED: Flags = Flags(sys::HP_REGISTER_REQUIRED);
    /// Make the pages present first, with several threads; no byte changes.
    pub const PREFAULT: Flags = Flags(sys::HP_REGISTER_PREFAULT);
    /// One process of the machine at a time pins the same shared file or memory.
    pub const SERIALIZE: Flags = Flags(sys::HP_REGISTER_SERIALIZE);
    /// With [`PREFAULT`](Flags::PREFAULT): ask the kernel for huge pages first; a wish, never an error.
    pub const HUGEPAGES: Flags = Flags(sys::HP_REGISTER_HUGEPAGES);
    /// Keep whole pages of the range out of forked children while it is registered. A child that touches them crashes,
    /// and may crash when it frees them: do not leak a [`Pinned`](crate::Pinned) that borrows memory with this flag.
    pub const DONTFORK: Flags = Flags(sys::HP_REGISTER_DONTFORK);

    pub(crate) const fn from_bits(bits: u32) -> Self {
        Flags(bits)
    }

    /// The bits, as `hp_register()` takes them.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Are all flags of `other` set here?
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Flags {
    type Output = Flags;

    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, other: Flags) {
        self.0 |= other.0;
    }
}
