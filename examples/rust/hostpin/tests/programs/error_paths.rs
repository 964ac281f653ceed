//! Everything that goes wrong without being the program's fault, in a program that aborts on panic. Prints
//! "survived" at its end.
//!
//! HOSTPIN_CUDART=.../cudart12/libcudart.so.12 HOSTPIN_SIM=fail=register:2+:2,fail=unregister:1:1 \
//!   cargo run --profile abort --example error_paths

use hostpin::{ErrorKind, Flags, Job, JobOptions, Pinned, Status};

const MIB: usize = 1 << 20;

fn main() -> hostpin::Result<()> {
    println!("aborts on panic: {}", cfg!(panic = "abort"));
    hostpin::set_logger(|level, line| eprintln!("{level:?}: {line}"));

    let pinned = Pinned::new(vec![1u8; MIB])?;
    let gpu = pinned.is_pinned();

    // Refused, or nobody there to ask.
    let pageable = Pinned::new(vec![2u8; MIB])?;
    assert_eq!(pageable.status(), Status::Pageable);
    let required = Pinned::with_flags(vec![3u8; MIB], Flags::REQUIRED).unwrap_err();
    assert_eq!(required.kind(), if gpu { ErrorKind::Refused } else { ErrorKind::Unavailable });
    let job = Job::start(vec![4u8; MIB], Flags::REQUIRED, &JobOptions::default())?;
    assert_eq!(job.finish().unwrap_err().kind(), required.kind());

    // A running job is dropped.
    drop(Job::start(vec![5u8; MIB], Flags::NONE, &JobOptions::default())?);

    // The driver does not release it: it is leaked.
    let stuck = hostpin::stats().stuck_segments;
    drop(pinned);
    assert_eq!(hostpin::stats().stuck_segments - stuck, gpu.into());

    assert_eq!(Pinned::new(Vec::new()).unwrap_err().kind(), ErrorKind::Invalid);
    println!("survived {} GPU", if gpu { "with a" } else { "without a" });
    Ok(())
}
