use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::{NonNull, null_mut};
use std::time::Duration;

use hostpin_sys as sys;

use crate::memory::Owner;
use crate::pinned::unregister;
use crate::{Error, ErrorKind, Flags, Memory, Pinned, Result, Status};

/// How a [`Job`] goes about it. Zero means the library's default.
///
/// ```
/// use hostpin::JobOptions;
///
/// let options = JobOptions { chunk_bytes: 256 << 20, ..Default::default() };
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobOptions {
    /// After a refusal keep what is pinned; otherwise it is all or nothing. To be set where the memory is used before
    /// the end: a refusal would release it while copies are in flight.
    pub keep: bool,
    /// The longest driver call; 1 GiB by default.
    pub chunk_bytes: u64,
    /// Between two driver calls, for others who need the driver.
    pub pause: Duration,
    /// Threads for [`Flags::PREFAULT`]; by default by the number of cores, 4 at most.
    pub prefault_threads: u32,
}

/// How far a [`Job`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// It has ended.
    pub done: bool,
    /// Bytes that the driver has answered for, pinned or not.
    pub bytes_done: u64,
    /// Bytes asked for, rounded out to pages.
    pub bytes_total: u64,
    /// Of these, pinned now.
    pub pinned_bytes: u64,
    /// Since the start, until the end.
    pub elapsed: Duration,
}

/// A registration under way on a thread of the library, chunk by chunk.
///
/// ```
/// # fn main() -> hostpin::Result<()> {
/// use std::time::Duration;
/// use hostpin::{Flags, Job, JobOptions};
///
/// let pool = vec![0u8; 8 << 20];
/// let job = Job::start(pool, Flags::PREFAULT, &JobOptions::default())?;
/// while job.wait_for(Duration::from_millis(100))?.is_none() {
///     let progress = job.progress()?;
///     println!("{} %", 100 * progress.bytes_done / progress.bytes_total);
/// }
/// let pool = job.finish()?; // a Pinned<Vec<u8>>
/// # Ok(()) }
/// ```
///
/// Dropping it cancels it if it still runs, waits for the end of the driver call under way, ends the registration
/// and frees the memory. As with [`Pinned`], owned memory that the driver does not release is leaked. To walk away from a
/// driver call that never returns, leak the job.
///
/// [`start`](Job::start) does not take borrowed memory: a job that is leaked goes on, and must not find the memory
/// gone.
///
/// ```compile_fail,E0597
/// # use hostpin::{Flags, Job, JobOptions};
/// let mut buffer = [0u8; 4096];
/// let job = Job::start(&mut buffer[..], Flags::NONE, &JobOptions::default());
/// ```
pub struct Job<M> {
    memory: ManuallyDrop<Owner<M>>,
    handle: NonNull<sys::hp_job>,
}

// SAFETY: a job may be asked, cancelled and freed from any thread, from several at once.
unsafe impl<M: Send> Send for Job<M> {}
unsafe impl<M: Sync> Sync for Job<M> {}

impl<M: Memory + 'static> Job<M> {
    /// Begins to pin all of `memory`, as [`Pinned::with_flags`] would, and returns at once.
    ///
    /// It is pinned on the device that is current in this thread, where the backend knows one (CUDA, HIP).
    ///
    /// # Errors
    ///
    /// An argument, no memory, no thread. `memory` is dropped then. All else is told by [`wait`](Job::wait).
    pub fn start(memory: M, flags: Flags, options: &JobOptions) -> Result<Self> {
        let memory = Owner::new(memory);
        let all = sys::hp_range { start: 0, end: memory.bytes().len() as u64 };
        // SAFETY: memory that is valid for ever, until it is dropped.
        unsafe { Job::begin(memory, &[all], flags, options) }
    }

    /// Begins to pin these ranges of `memory`, as [`Pinned::with_ranges`] would, and returns at once.
    ///
    /// # Errors
    ///
    /// As [`start`](Job::start).
    pub fn start_ranges(
        memory: M,
        ranges: impl IntoIterator<Item = Range<usize>>,
        flags: Flags,
        options: &JobOptions,
    ) -> Result<Self> {
        // SAFETY: memory that is valid for ever, until it is dropped.
        unsafe { Job::start_borrowed(memory, ranges, flags, options) }
    }
}

impl<M: Memory> Job<M> {
    /// [`start_ranges`](Job::start_ranges) for memory that is only borrowed.
    ///
    /// # Safety
    ///
    /// Do not leak the job (by [`std::mem::forget`], for one): it must be dropped, finished or unpinned before the
    /// memory goes.
    ///
    /// # Errors
    ///
    /// As [`start`](Job::start).
    pub unsafe fn start_borrowed(
        memory: M,
        ranges: impl IntoIterator<Item = Range<usize>>,
        flags: Flags,
        options: &JobOptions,
    ) -> Result<Self> {
        let memory = Owner::new(memory);
        let ranges = memory.ranges(ranges)?;
        // SAFETY: the caller's promise.
        unsafe { Job::begin(memory, &ranges, flags, options) }
    }
}

impl<M> Job<M> {
    /// # Safety
    ///
    /// The memory is there until the job is dropped, for ever if it is leaked.
    unsafe fn begin(memory: Owner<M>, ranges: &[sys::hp_range], flags: Flags, options: &JobOptions) -> Result<Self> {
        let options = sys::hp_job_options {
            struct_size: size_of::<sys::hp_job_options>() as u32,
            keep: options.keep.into(),
            chunk_bytes: options.chunk_bytes,
            pause_ns: nanoseconds(options.pause),
            prefault_threads: options.prefault_threads,
            ..Default::default()
        };
        let mut handle = null_mut();
        let status = unsafe {
            let (base, bits) = (memory.base(), flags.bits());
            sys::hp_register_start(base, ranges.as_ptr(), ranges.len(), bits, &options, &mut handle)
        };
        match NonNull::new(handle) {
            Some(handle) => Ok(Job { memory: ManuallyDrop::new(memory), handle }),
            None => Err(Error::last(status)),
        }
    }

    /// How far is it? Never waits.
    ///
    /// # Errors
    ///
    /// In a forked child only.
    pub fn progress(&self) -> Result<Progress> {
        let mut out = sys::hp_progress { struct_size: size_of::<sys::hp_progress>() as u32, ..Default::default() };
        match unsafe { sys::hp_job_poll(self.handle.as_ptr(), &mut out) } {
            sys::HP_OK => Ok(Progress {
                done: out.state == sys::HP_JOB_DONE,
                bytes_done: out.bytes_done,
                bytes_total: out.bytes_total,
                pinned_bytes: out.pinned_bytes,
                elapsed: Duration::from_nanos(out.elapsed_ns),
            }),
            status => Err(Error::last(status)),
        }
    }

    /// Waits for the end, and tells how it ended. With [`JobOptions::keep`] and a refusal that is
    /// [`Status::Pageable`], and [`Progress::pinned_bytes`] says how much is pinned.
    ///
    /// # Errors
    ///
    /// As [`Pinned::with_ranges`], or [`ErrorKind::Cancelled`]. [`unpin`](Job::unpin)
    /// gives the memory back.
    pub fn wait(&self) -> Result<Status> {
        let status = unsafe { sys::hp_job_wait(self.handle.as_ptr(), u64::MAX) };
        Status::of_last_call(status).map(|(status, _)| status)
    }

    /// [`wait`](Job::wait), at most for so long: `None` says that it still runs.
    ///
    /// # Errors
    ///
    /// As [`wait`](Job::wait).
    pub fn wait_for(&self, time: Duration) -> Result<Option<Status>> {
        match unsafe { sys::hp_job_wait(self.handle.as_ptr(), nanoseconds(time)) } {
            sys::HP_E_TIMEOUT => Ok(None),
            status => Status::of_last_call(status).map(|(status, _)| Some(status)),
        }
    }

    /// Asks it to stop, and does not wait. It stops within one chunk and releases what it had pinned, with
    /// [`JobOptions::keep`] too: end all copies first. After the end it does nothing.
    pub fn cancel(&self) {
        let _forked = unsafe { sys::hp_job_cancel(self.handle.as_ptr()) };
    }

    /// The memory, for use while the job runs; not to be written to if it is [`ReadOnly`](crate::ReadOnly). The job
    /// changes no byte. What is pinned so far is usable, and stays so if [`JobOptions::keep`] is set.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.memory.bytes().as_ptr().cast()
    }

    /// Waits for the end. The memory is pinned from then on until [`Pinned`] is dropped.
    ///
    /// # Errors
    ///
    /// As [`wait`](Job::wait); the memory is dropped then. To keep it, look at [`wait`](Job::wait) first.
    pub fn finish(self) -> Result<Pinned<M>> {
        let (status, reason) = Status::of_last_call(unsafe { sys::hp_job_wait(self.handle.as_ptr(), u64::MAX) })?;
        let partly = self.is_partly_pinned();
        Ok(Pinned::from_parts(self.take(), status, reason, partly))
    }

    /// Cancels it if it still runs, waits for the end, ends the registration, and gives the memory back.
    ///
    /// # Errors
    ///
    /// The driver would not release it. Then the job comes back with the error: do not free the memory, try again
    /// later.
    pub fn unpin(self) -> std::result::Result<M, (Error, Self)> {
        match self.release() {
            Ok(()) => Ok(self.take().into_inner()),
            Err(error) => Err((error, self)),
        }
    }

    /// Makes an end of the job and of its registration. `Ok` says that the memory may be freed.
    fn release(&self) -> Result<()> {
        self.cancel();
        match self.wait() {
            Ok(status) => unregister(&self.memory, status, self.is_partly_pinned()),
            Err(error) if error.kind() == ErrorKind::Stuck => unregister(&self.memory, Status::Pageable, true),
            Err(_) => Ok(()), // nothing of this job is registered
        }
    }

    /// Of an ended job: is some of the memory pinned, though it may be pageable as a whole?
    fn is_partly_pinned(&self) -> bool {
        self.progress().is_ok_and(|progress| progress.pinned_bytes > 0)
    }

    /// Takes the memory out of an ended job.
    fn take(mut self) -> Owner<M> {
        // SAFETY: `self` is forgotten before anyone could use memory or handle again.
        let memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        unsafe { sys::hp_job_free(self.handle.as_ptr()) };
        std::mem::forget(self);
        memory
    }
}

impl<M> Drop for Job<M> {
    fn drop(&mut self) {
        let released = self.release();
        unsafe { sys::hp_job_free(self.handle.as_ptr()) };
        if released.is_ok() {
            // SAFETY: nobody uses it after this.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

impl<M> fmt::Debug for Job<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
