//! What reaches the driver, and what becomes of memory that it does not release, on a simulated CUDA or HIP runtime:
//!
//! HOSTPIN_CUDART=.../hostpin-sim/cudart12/libcudart.so.12 cargo test --test simulated -- --include-ignored

mod simulation;

use std::iter::once;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use hostpin::{ErrorKind, Flags, Job, JobOptions, Level, Pinned, ReadOnly, Region, Status, Transfer, split_copies};
use memmap2::MmapMut;
use simulation::Simulation;

const MIB: usize = 1 << 20;

/// What the library says when the driver answers 2, which is "out of memory" to both vendors.
const OUT_OF_MEMORY: &str = "failed: 2 ";

/// Whole pages that nothing else is in.
fn pages(len: usize) -> MmapMut {
    MmapMut::map_anon(len).unwrap()
}

/// Memory that tells when it is freed.
struct Tracked {
    bytes: MmapMut,
    freed: Arc<AtomicBool>,
}

impl Tracked {
    fn new(len: usize) -> (Self, Arc<AtomicBool>) {
        let freed = Arc::new(AtomicBool::new(false));
        (Tracked { bytes: pages(len), freed: Arc::clone(&freed) }, freed)
    }
}

impl AsMut<[u8]> for Tracked {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.freed.store(true, SeqCst);
    }
}

/// Ends a registration whose memory was leaked, so that the next test begins with none.
fn release_leaked(base: *const u8) {
    assert_eq!(unsafe { hostpin_sys::hp_unregister(base.cast_mut().cast()) }, hostpin_sys::HP_OK);
}

/// Pages that several owners share.
struct AsBytes(Arc<MmapMut>);

impl AsRef<[u8]> for AsBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn error_of<T>(result: hostpin::Result<T>) -> hostpin::Error {
    result.err().expect("a refusal")
}

#[test]
#[ignore = "needs the simulated runtime"]
fn drop_unregisters_and_then_frees() {
    let simulation = Simulation::with("");
    let (memory, freed) = Tracked::new(MIB);
    let pinned = Pinned::new(memory).unwrap();
    assert_eq!((pinned.status(), pinned.reason(), pinned.is_pinned()), (Status::Pinned, "", true));
    assert!(hostpin::is_pinned(&pinned));
    assert_eq!(hostpin::stats().pinned_bytes, MIB as u64);
    assert_eq!(simulation.registrations(), 1);
    drop(pinned);
    assert_eq!(simulation.registrations(), 0);
    assert!(freed.load(SeqCst));
}

#[test]
#[ignore = "needs the simulated runtime"]
fn memory_that_is_stuck_is_leaked() {
    let simulation = Simulation::with("fail=unregister:1:1");
    let (memory, freed) = Tracked::new(MIB);
    let pinned = Pinned::new(memory).unwrap();
    let base = pinned.as_ptr();
    drop(pinned);
    assert!(!freed.load(SeqCst));
    assert_eq!(simulation.registrations(), 1);
    release_leaked(base);
}

#[test]
#[ignore = "needs the simulated runtime"]
fn unpin_can_be_tried_again() {
    let simulation = Simulation::with("fail=unregister:1:1");
    let (memory, freed) = Tracked::new(MIB);
    let (error, pinned) = Pinned::new(memory).unwrap().unpin().err().expect("the driver refuses once");
    assert_eq!((error.kind(), error.status()), (ErrorKind::Stuck, -6));
    assert!(Region::of(&pinned).expect("it is known").stuck);
    let memory = pinned.unpin().map_err(|(error, _)| error).unwrap();
    assert_eq!(simulation.registrations(), 0);
    assert!(!freed.load(SeqCst));
    drop(memory);
    assert!(freed.load(SeqCst));
}

#[test]
#[ignore = "needs the simulated runtime"]
fn a_refusal_is_a_status_or_an_error_if_required() {
    let simulation = Simulation::with("fail=register:*:2");
    let mut memory = pages(MIB);
    let pinned = Pinned::new(&mut memory[..]).unwrap();
    assert_eq!((pinned.status(), pinned.is_pinned()), (Status::Pageable, false));
    assert!(pinned.reason().contains(OUT_OF_MEMORY), "{}", pinned.reason());
    drop(pinned);
    let error = error_of(Pinned::with_flags(&mut memory[..], Flags::REQUIRED));
    assert_eq!((error.kind(), error.native_code()), (ErrorKind::Refused, 2));
    assert!(error.to_string().contains(OUT_OF_MEMORY), "{error}");
    assert_eq!(simulation.registrations(), 0);
}

#[test]
#[ignore = "needs the simulated runtime"]
fn what_is_stuck_after_a_refusal_is_released_or_leaked() {
    for (script, leaked) in [("unregister:1:1", false), ("unregister:1-2:1", true)] {
        let simulation = Simulation::with(&format!("fail=register:2+:2,fail={script}"));
        let (memory, freed) = Tracked::new(MIB);
        let base = memory.bytes.as_ptr();
        let error = error_of(Pinned::with_ranges(memory, [0..MIB / 2, MIB / 2..MIB], Flags::NONE));
        assert_eq!(error.kind(), ErrorKind::Stuck);
        assert_eq!((simulation.registrations(), freed.load(SeqCst)), (leaked.into(), !leaked));
        if leaked {
            release_leaked(base);
        }
    }
}

#[test]
#[ignore = "needs the simulated runtime"]
fn what_others_pinned_stays_theirs() {
    let simulation = Simulation::with("");
    let mut memory = pages(MIB);
    simulation.pin_foreign(&memory);
    let pinned = Pinned::new(&mut memory[..]).unwrap();
    assert_eq!((pinned.status(), pinned.is_pinned()), (Status::Foreign, true));
    assert_ne!(pinned.reason(), "");
    drop(pinned);
    assert!(!hostpin::is_pinned(&memory), "it is not known any more");
    simulation.unpin_foreign(&memory);
}

#[test]
#[ignore = "needs the simulated runtime"]
fn the_same_memory_twice_is_counted() {
    let simulation = Simulation::with("");
    let mut outer = Pinned::new(pages(MIB)).unwrap();
    let inner = Pinned::new(&mut outer[..]).unwrap();
    assert_eq!(Region::of(&inner).unwrap().references, 2);
    drop(inner);
    assert!(hostpin::is_pinned(&outer));
    let error = error_of(Pinned::new(&mut outer[..4096]));
    assert_eq!(error.kind(), ErrorKind::Exists);
    drop(outer);
    assert_eq!(simulation.registrations(), 0);
}

#[test]
#[ignore = "needs the simulated runtime"]
fn the_end_of_one_that_pinned_nothing_leaves_later_ones_alone() {
    let simulation = Simulation::with("fail=register:1-2:2");
    let memory = Arc::new(pages(MIB));
    let again = || ReadOnly(AsBytes(Arc::clone(&memory)));
    let refused = Pinned::new(again()).unwrap();
    let refused_job = Job::start(again(), Flags::NONE, &JobOptions::default()).unwrap();
    assert_eq!((refused.status(), refused_job.wait().unwrap()), (Status::Pageable, Status::Pageable));
    let pinned = Pinned::new(again()).unwrap();
    assert_eq!(pinned.status(), Status::Pinned);
    drop((refused, refused_job));
    assert!(hostpin::is_pinned(&memory));
    drop(pinned);

    simulation.pin_foreign(&memory);
    let foreign = Pinned::new(again()).unwrap();
    let foreign_job = Job::start(again(), Flags::NONE, &JobOptions::default()).unwrap();
    assert_eq!((foreign.status(), foreign_job.wait().unwrap()), (Status::Foreign, Status::Foreign));
    simulation.unpin_foreign(&memory);
    let pinned = Pinned::new(again()).unwrap();
    assert_eq!(pinned.status(), Status::Pinned);
    drop((foreign, foreign_job));
    assert!(hostpin::is_pinned(&memory));
    drop(pinned);
    assert_eq!(simulation.registrations(), 0);
}

#[test]
#[ignore = "needs the simulated runtime"]
fn device_pointers_keep_their_offset() {
    let _simulation = Simulation::with("device_offset=1T");
    let pinned = Pinned::new(pages(MIB)).unwrap();
    let first = pinned.device_pointer(0).unwrap() as usize;
    assert_eq!(first, pinned.as_ptr() as usize + (1 << 40));
    assert_eq!(pinned.device_pointer(MIB - 1).unwrap() as usize, first + MIB - 1);
    assert_eq!(hostpin::device_pointer(&pinned[5..]).unwrap() as usize, first + 5);
    assert_eq!(error_of(pinned.device_pointer(MIB)).kind(), ErrorKind::Invalid);
    assert_eq!(error_of(pinned.device_pointer(usize::MAX)).kind(), ErrorKind::Invalid);
    assert_eq!(error_of(hostpin::device_pointer(&pages(4096))).kind(), ErrorKind::NotFound);
}

#[test]
#[ignore = "needs the simulated runtime"]
fn ranges_are_segments_and_copies_are_cut_between_them() {
    let simulation = Simulation::with("");
    let pinned = Pinned::with_ranges(pages(3 * MIB), [0..MIB, 2 * MIB..3 * MIB], Flags::NONE).unwrap();
    assert_eq!((pinned.status(), simulation.registrations()), (Status::Pinned, 2));
    assert!(!hostpin::is_pinned(&pinned), "there is a gap");
    let region = Region::of(&pinned).unwrap();
    let base = pinned.as_ptr() as usize;
    assert_eq!((region.addresses, region.one_segment), (base..base + MIB, false));
    assert!(Region::of(&pinned[..MIB]).unwrap().one_segment);
    assert_eq!(Region::of(&pinned[MIB..]), None);

    let copy = |from: usize, bytes: usize| Transfer {
        host: pinned[from..].as_ptr().cast(),
        other: (0x1000 + from) as *mut _,
        bytes: bytes as u64,
    };
    let cut = split_copies(&[copy(0, MIB / 2), copy(1, 3 * MIB - 1)]).unwrap();
    assert_eq!(cut, [copy(0, MIB / 2), copy(1, MIB - 1), copy(MIB, MIB), copy(2 * MIB, MIB)]);
    assert_eq!(split_copies(&[]).unwrap(), []);
}

#[test]
#[ignore = "needs the simulated runtime"]
fn another_thread_may_end_it() {
    let simulation = Simulation::with("");
    let pinned = Pinned::new(pages(MIB)).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| assert!(hostpin::is_pinned(&pinned)));
    });
    thread::spawn(move || drop(pinned)).join().unwrap();
    assert_eq!(simulation.registrations(), 0);
}

#[test]
#[ignore = "needs the simulated runtime"]
fn a_job_tells_how_far_it_is() {
    let simulation = Simulation::with("");
    simulation.block_register();
    let options = JobOptions { chunk_bytes: 2 * MIB as u64, ..Default::default() };
    let job = Job::start_ranges(pages(8 * MIB), [0..2 * MIB, 2 * MIB..8 * MIB], Flags::PREFAULT, &options).unwrap();
    simulation.wait_blocked();
    assert_eq!(job.wait_for(Duration::ZERO).unwrap(), None);
    let progress = job.progress().unwrap();
    assert_eq!((progress.done, progress.pinned_bytes, progress.bytes_total), (false, 0, 8 * MIB as u64));
    simulation.unblock_register();
    assert_eq!(job.wait().unwrap(), Status::Pinned);
    assert_eq!(job.wait_for(Duration::ZERO).unwrap(), Some(Status::Pinned));
    let progress = job.progress().unwrap();
    assert_eq!((progress.done, progress.pinned_bytes, progress.bytes_done), (true, 8 * MIB as u64, 8 * MIB as u64));
    let base = job.as_mut_ptr().cast_const();
    let pinned = job.finish().unwrap();
    assert_eq!((pinned.as_ptr(), pinned.len()), (base, 8 * MIB));
    assert!(hostpin::is_pinned(&pinned));
    drop(pinned);
    assert_eq!(simulation.registrations(), 0);
}

#[test]
#[ignore = "needs the simulated runtime"]
fn dropping_a_job_waits_before_it_frees() {
    /// Notes when it is freed whether the driver call had been let go on.
    struct Witness(MmapMut, Arc<AtomicBool>, Arc<AtomicUsize>);
    impl AsMut<[u8]> for Witness {
        fn as_mut(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }
    impl Drop for Witness {
        fn drop(&mut self) {
            self.2.store(if self.1.load(SeqCst) { 1 } else { 2 }, SeqCst);
        }
    }

    let simulation = Simulation::with("");
    let (went_on, freed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    simulation.block_register();
    let memory = Witness(pages(4 * MIB), Arc::clone(&went_on), Arc::clone(&freed));
    let job = Job::start_ranges(memory, [0..2 * MIB, 2 * MIB..4 * MIB], Flags::NONE, &JobOptions::default()).unwrap();
    simulation.wait_blocked();
    thread::scope(|scope| {
        scope.spawn(|| {
            // Long enough for a drop that does not wait to free it first.
            thread::sleep(Duration::from_millis(50));
            went_on.store(true, SeqCst);
            simulation.unblock_register();
        });
        drop(job);
    });
    assert_eq!(freed.load(SeqCst), 1);
    assert_eq!(simulation.registrations(), 0);
}

#[test]
#[ignore = "needs the simulated runtime"]
fn a_cancelled_job_gives_the_memory_back() {
    let simulation = Simulation::with("");
    simulation.block_register();
    let (memory, freed) = Tracked::new(4 * MIB);
    let job = Job::start_ranges(memory, [0..2 * MIB, 2 * MIB..4 * MIB], Flags::NONE, &JobOptions::default()).unwrap();
    simulation.wait_blocked();
    job.cancel();
    simulation.unblock_register();
    assert_eq!(error_of(job.wait()).kind(), ErrorKind::Cancelled);
    let memory = job.unpin().map_err(|(error, _)| error).unwrap();
    assert_eq!((simulation.registrations(), freed.load(SeqCst)), (0, false));

    let job = Job::start(memory, Flags::NONE, &JobOptions::default()).unwrap();
    assert_eq!(job.wait().unwrap(), Status::Pinned);
    assert_eq!(job.unpin().map_err(|(error, _)| error).unwrap().bytes.len(), 4 * MIB);
    assert_eq!(simulation.registrations(), 0);
}

#[test]
#[ignore = "needs the simulated runtime"]
fn a_job_that_is_stuck_leaks_or_is_tried_again() {
    let simulation = Simulation::with("fail=unregister:1-2:1");
    let (memory, freed) = Tracked::new(MIB);
    let base = memory.bytes.as_ptr();
    let job = Job::start(memory, Flags::NONE, &JobOptions::default()).unwrap();
    assert_eq!(job.wait().unwrap(), Status::Pinned);
    let (error, job) = job.unpin().err().expect("the driver refuses twice");
    assert_eq!(error.kind(), ErrorKind::Stuck);
    drop(job);
    assert_eq!((simulation.registrations(), freed.load(SeqCst)), (1, false));
    release_leaked(base);
}

#[test]
#[ignore = "needs the simulated runtime"]
fn what_a_refused_job_could_not_release_is_released_by_drop() {
    let simulation = Simulation::with("fail=register:2+:2,fail=unregister:1:1");
    let (memory, freed) = Tracked::new(MIB);
    let ranges = [0..MIB / 2, MIB / 2..MIB];
    let job = Job::start_ranges(memory, ranges, Flags::NONE, &JobOptions::default()).unwrap();
    assert_eq!(error_of(job.wait()).kind(), ErrorKind::Stuck);
    assert_eq!((simulation.registrations(), freed.load(SeqCst)), (1, false));
    drop(job);
    assert_eq!((simulation.registrations(), freed.load(SeqCst)), (0, true));
}

#[test]
#[ignore = "needs the simulated runtime"]
fn a_job_that_fails_leaves_others_registrations_alone() {
    let simulation = Simulation::with("");
    let mut outer = Pinned::new(pages(MIB)).unwrap();
    // SAFETY: it is not leaked.
    let job =
        unsafe { Job::start_borrowed(&mut outer[..], once(0..4096), Flags::NONE, &JobOptions::default()) }.unwrap();
    assert_eq!(error_of(job.wait()).kind(), ErrorKind::Exists);
    assert_eq!(error_of(job.finish()).kind(), ErrorKind::Exists);
    assert!(hostpin::is_pinned(&outer));
    drop(outer);
    assert_eq!(simulation.registrations(), 0);
}

#[test]
#[ignore = "needs the simulated runtime"]
fn a_job_keeps_what_is_pinned_if_told_so() {
    let simulation = Simulation::with("fail=register:2+:2");
    let options = JobOptions { keep: true, chunk_bytes: 2 * MIB as u64, ..Default::default() };
    let job = Job::start_ranges(pages(4 * MIB), [0..2 * MIB, 2 * MIB..4 * MIB], Flags::NONE, &options).unwrap();
    assert_eq!(job.wait().unwrap(), Status::Pageable);
    assert_eq!(job.progress().unwrap().pinned_bytes, 2 * MIB as u64);
    let pinned = job.finish().unwrap();
    assert_eq!((pinned.status(), simulation.registrations()), (Status::Pageable, 1));
    assert!(pinned.reason().contains(OUT_OF_MEMORY), "{}", pinned.reason());
    drop(pinned);
    assert_eq!(simulation.registrations(), 0);
}

#[test]
#[ignore = "needs the simulated runtime"]
fn a_panic_in_the_logger_stays_in_the_logger() {
    static LINES: AtomicUsize = AtomicUsize::new(0);
    // Codes with which no other test lets the driver refuse, since each is logged once.
    let _simulation = Simulation::with("fail=register:1:801,fail=register:2:304");
    hostpin::set_logger(|level, line| {
        assert!(level == Level::Warn && line.contains("801"));
        LINES.fetch_add(1, SeqCst);
        panic!("in the logger");
    });
    let pageable = Pinned::new(pages(MIB)).unwrap();
    assert_eq!((pageable.status(), LINES.load(SeqCst)), (Status::Pageable, 1));
    hostpin::reset_logger();
    let pageable = Pinned::new(pages(MIB)).unwrap();
    assert_eq!((pageable.status(), LINES.load(SeqCst)), (Status::Pageable, 1));
}

#[test]
#[ignore = "needs the simulated runtime"]
fn a_forked_child_frees_its_copy_and_reaches_no_driver() {
    unsafe extern "C" {
        safe fn fork() -> i32;
        safe fn _exit(status: i32) -> !;
        fn waitpid(child: i32, status: *mut i32, options: i32) -> i32;
    }

    let simulation = Simulation::with("");
    let (memory, freed) = Tracked::new(MIB);
    let pinned = Pinned::new(pages(MIB)).unwrap();
    let job = Job::start(memory, Flags::NONE, &JobOptions::default()).unwrap();
    assert_eq!(job.wait().unwrap(), Status::Pinned);
    let child = fork();
    if child == 0 {
        // The simulated driver aborts the process when it is called here.
        let forked = job.progress().is_err_and(|error| error.kind() == ErrorKind::Forked);
        drop(job);
        let given_back = pinned.unpin().is_ok_and(|memory| memory.len() == MIB);
        let refused = Pinned::new(vec![0; 4096]).is_err_and(|error| error.kind() == ErrorKind::Forked);
        _exit(if forked && freed.load(SeqCst) && given_back && refused { 7 } else { 1 });
    }
    let mut status = 0;
    assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 7 << 8);
    assert_eq!(simulation.registrations(), 2);
    drop((job, pinned));
    assert_eq!(simulation.registrations(), 0);
}
