//! Pins a pool shaped like a KV cache in the background, with a progress line, and works with or without a GPU.
//!
//! cargo run --release --example pool [MEBIBYTES]

use std::io::Write;
use std::time::Duration;

use hostpin::{Flags, Job, JobOptions, Split};
use memmap2::MmapMut;

const LAYERS: usize = 16;
const BLOCK: u64 = 64 << 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mebibytes: u64 = std::env::args().nth(1).map_or(Ok(256), |size| size.parse())?;
    let blocks = ((mebibytes << 20) / (LAYERS as u64 * BLOCK)).max(1);
    let tensor_sizes = [blocks * BLOCK; LAYERS];
    let total_size = tensor_sizes.iter().sum();

    // No cut goes through a block, so that each block is one copy.
    let split = Split { tensor_sizes: &tensor_sizes, blocks, total_size, max_chunk: 64 << 20, ..Default::default() };
    let ranges = split.ranges()?;
    println!("{} MiB in {} ranges, {} blocks in each of {LAYERS} layers", total_size >> 20, ranges.len(), blocks);

    let pool = MmapMut::map_anon(total_size as usize)?;
    let job = Job::start_ranges(pool, ranges, Flags::PREFAULT | Flags::HUGEPAGES, &JobOptions::default())?;
    while job.wait_for(Duration::from_millis(100))?.is_none() {
        // Loading weights and compiling kernels would go on meanwhile.
        let progress = job.progress()?;
        eprint!("\r{:3} % pinned", 100 * progress.bytes_done / progress.bytes_total);
        std::io::stderr().flush()?;
    }
    let elapsed = job.progress()?.elapsed;
    let mut pool = job.finish()?;
    eprintln!("\rdone in {elapsed:.1?}");
    if pool.is_pinned() {
        println!("pinned: copies run by DMA");
    } else {
        println!("not pinned, which is only slower: {}", pool.reason());
    }

    let (layer, block) = (3, blocks - 1);
    let start = layer * tensor_sizes[0] + block * BLOCK;
    let bytes = &mut pool[start as usize..][..BLOCK as usize];
    bytes.fill(1);
    println!("block {block} of layer {layer}: one copy from {:p}", bytes.as_ptr());
    // cudaMemcpyAsync, hipMemcpyAsync, ... from bytes.as_ptr(), and wait for it before the pool is dropped.
    Ok(())
}
