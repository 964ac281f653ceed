//! What holds with a GPU and without one.

use std::iter::once;
use std::sync::Arc;
use std::time::Duration;

use hostpin::{Backend, ErrorKind, Flags, Job, JobOptions, Pinned, ReadOnly, Split, Status};
use memmap2::{Mmap, MmapMut};

/// What becomes of good memory on this machine.
fn expected() -> Status {
    match hostpin::backend().unwrap().backend {
        Backend::None => Status::Pageable,
        _ => Status::Pinned,
    }
}

fn error_of<T>(result: hostpin::Result<T>) -> hostpin::Error {
    result.err().expect("an error")
}

#[test]
fn the_backend_says_which_it_is_and_why() {
    let backend = hostpin::backend().unwrap();
    let reasons = [&backend.cuda_reason, &backend.hip_reason, &backend.level_zero_reason];
    if backend.backend == Backend::None {
        assert_eq!(&*backend.name, "none");
        assert!(reasons.iter().all(|reason| !reason.is_empty()));
    } else {
        assert!(backend.device_count > 0 && backend.max_segment > 0 && !backend.runtime_file.is_empty());
        assert!(reasons.iter().any(|reason| reason.is_empty()));
    }
}

#[test]
fn not_pinned_comes_with_a_reason() {
    let pinned = Pinned::new(vec![0; 4096]).unwrap();
    assert_eq!(pinned.status(), expected());
    assert_eq!(pinned.is_pinned(), expected() == Status::Pinned);
    assert_eq!(pinned.reason().is_empty(), pinned.is_pinned());
    assert_eq!(hostpin::is_pinned(&pinned), pinned.is_pinned());
    if !pinned.is_pinned() {
        let error = error_of(Pinned::with_flags(vec![0; 4096], Flags::REQUIRED));
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
}

#[test]
fn memory_is_borrowed_or_owned() {
    let mut borrowed = [1u8; 100];
    let mut pinned = Pinned::new(&mut borrowed[..]).unwrap();
    pinned[99] = 2;
    assert_eq!(pinned.status(), expected());
    drop(pinned);
    assert_eq!((borrowed[0], borrowed[99]), (1, 2));

    let mapped = Pinned::new(MmapMut::map_anon(1 << 16).unwrap()).unwrap();
    assert_eq!((mapped.status(), mapped.len()), (expected(), 1 << 16));
    let boxed = Pinned::new(vec![3u8; 5000].into_boxed_slice()).unwrap();
    assert_eq!((boxed.status(), boxed[4999]), (expected(), 3));
    assert_eq!(boxed.unpin().unwrap().len(), 5000);
}

#[test]
fn memory_is_read_only() {
    let shared: Arc<[u8]> = Arc::from(vec![7; 1 << 16]);
    let pinned = Pinned::new(ReadOnly(Arc::clone(&shared))).unwrap();
    assert_eq!((pinned.status(), &pinned[..]), (expected(), &shared[..]));

    let mut written = MmapMut::map_anon(8192).unwrap();
    written.fill(9);
    let mapped: Mmap = written.make_read_only().unwrap();
    let pinned = Pinned::new(ReadOnly(mapped)).unwrap();
    if hostpin::backend().unwrap().read_only {
        assert_eq!(pinned.status(), expected());
    }
    assert_eq!(pinned[8191], 9);
    let ReadOnly(mapped) = pinned.unpin().unwrap();
    assert_eq!(mapped[0], 9);
}

#[test]
fn bytes_stay_where_they_are_when_their_owner_moves() {
    // Bytes that lie in the owner itself.
    let pinned = Pinned::new([5u8; 10_000]).unwrap();
    let base = pinned.as_ptr();
    let mut moved = Some(Box::new(pinned));
    let mut pinned = *moved.take().unwrap();
    assert_eq!(pinned.as_ptr(), base);
    pinned[9_999] = 6;
    assert_eq!(hostpin::is_pinned(&pinned), pinned.is_pinned());
    let array = pinned.unpin().unwrap();
    assert_eq!((array[0], array[9_999]), (5, 6));
}

#[test]
fn an_owner_is_asked_for_its_bytes_once() {
    /// Gives other bytes each time.
    struct Fickle([Vec<u8>; 2], usize);
    impl AsMut<[u8]> for Fickle {
        fn as_mut(&mut self) -> &mut [u8] {
            self.1 += 1;
            &mut self.0[(self.1 - 1) % 2]
        }
    }

    let mut pinned = Pinned::new(Fickle([vec![1; 4096], vec![2; 100]], 0)).unwrap();
    pinned[0] = 3;
    assert_eq!((pinned[0], pinned[1], pinned.len()), (3, 1, 4096));
    assert_eq!(pinned.unpin().unwrap().1, 1);
}

#[test]
fn faults_of_the_caller_are_errors() {
    let error = error_of(Pinned::new(Vec::new()));
    assert_eq!((error.kind(), error.status(), error.native_code()), (ErrorKind::Invalid, -1, 0));
    assert!(error.to_string().contains("hp_register"), "{error}");

    let mut memory = vec![0; 8192];
    let error = error_of(Pinned::with_ranges(&mut memory[..], [0..4096, 4096..8193], Flags::NONE));
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("range 1, 4096..8193"), "{error}");
    for ranges in [vec![], vec![0..4096, 4096..4096], vec![4096..8192, 0..4096]] {
        let error = error_of(Pinned::with_ranges(&mut memory[..], ranges.clone(), Flags::NONE));
        assert_eq!(error.kind(), ErrorKind::Invalid, "{ranges:?}");
        let error = error_of(Job::start_ranges(vec![0; 8192], ranges, Flags::NONE, &JobOptions::default()));
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
    let error = error_of(Job::start(Vec::new(), Flags::NONE, &JobOptions::default()));
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let error = error_of(Job::start_ranges(memory, [0..9000, 0..1], Flags::NONE, &JobOptions::default()));
    assert!(error.to_string().contains("range 0, 0..9000"), "{error}");
    for (named, options) in [
        ("chunk_bytes is 1,", JobOptions { chunk_bytes: 1, ..Default::default() }),
        ("pause_ns is 18446744073709551615,", JobOptions { pause: Duration::MAX, ..Default::default() }),
        ("prefault_threads is 65,", JobOptions { prefault_threads: 65, ..Default::default() }),
    ] {
        let error = error_of(Job::start(vec![0; 4096], Flags::NONE, &options));
        assert!(error.to_string().contains(named), "{error}");
    }
}

#[test]
fn a_job_ends_and_hands_its_memory_on() {
    let job = Job::start(vec![4u8; 1 << 20], Flags::PREFAULT, &JobOptions::default()).unwrap();
    assert_eq!(job.wait().unwrap(), expected());
    assert_eq!(job.wait_for(Duration::MAX).unwrap(), Some(expected()));
    let progress = job.progress().unwrap();
    assert!(progress.done && progress.bytes_total >= 1 << 20);
    let pinned = job.finish().unwrap();
    assert_eq!((pinned.status(), pinned[0]), (expected(), 4));
    assert_eq!(pinned.unpin().unwrap().len(), 1 << 20);

    let mut lent = vec![0u8; 1 << 20];
    // SAFETY: it is not leaked.
    let job =
        unsafe { Job::start_borrowed(&mut lent[..], once(0..4096), Flags::NONE, &JobOptions::default()) }.unwrap();
    drop(job);
    assert!(!hostpin::is_pinned(&lent));
}

#[test]
fn pools_are_cut_at_blocks() {
    let sizes = [4 * 40_960, 4 * 8_192];
    let split = Split { tensor_sizes: &sizes, blocks: 4, total_size: 200_704, max_chunk: 100_000, page_size: 4096 };
    let ranges = split.ranges().unwrap();
    assert_eq!((ranges.len(), ranges.size_hint()), (3, (3, Some(3))));
    assert_eq!(ranges.clone().next_back(), Some(180_224..200_704));
    assert_eq!(ranges.collect::<Vec<_>>(), [0..81_920, 81_920..180_224, 180_224..200_704]);

    let none = Split { total_size: 1 << 40, ..Split::default() };
    assert_eq!(none.ranges().unwrap().len(), 16);
    let error = error_of(Split { max_chunk: 8192, ..split }.ranges());
    assert_eq!(error.kind(), ErrorKind::NoBoundary);
    let error = error_of(Split { blocks: 0, ..split }.ranges());
    assert_eq!(error.kind(), ErrorKind::Invalid);
    // More ranges than there is memory for.
    let endless = Split { total_size: u64::MAX, max_chunk: 1, page_size: 1, ..Split::default() };
    assert_eq!(error_of(endless.ranges()).kind(), ErrorKind::NoMemory);
}

#[test]
fn threads_may_share_what_their_memory_allows() {
    fn shared<T: Send + Sync>() {}
    shared::<Pinned<Vec<u8>>>();
    shared::<Pinned<&mut [u8]>>();
    shared::<Pinned<ReadOnly<Arc<[u8]>>>>();
    shared::<Job<MmapMut>>();
    shared::<hostpin::Error>();
}

#[test]
fn flags_are_those_of_the_library() {
    assert_eq!(Flags::default(), Flags::NONE);
    let mut flags = Flags::PORTABLE | Flags::DONTFORK;
    assert_eq!(flags.bits(), 0x10_0001);
    flags |= Flags::READONLY;
    assert!(flags.contains(Flags::READONLY | Flags::PORTABLE) && !flags.contains(Flags::MAPPED | Flags::PORTABLE));
}
