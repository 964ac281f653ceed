# SPDX-License-Identifier: MIT
"""The functions by which vLLM registers host memory, on libhostpin: a drop-in.

    from hostpin_vllm import host_register, host_unregister  # vllm.v1.kv_offload.cpu.host_register
    from hostpin_vllm import pin_tensor, unpin_tensor        # vllm.v1.simple_kv_offload.cuda_mem_ops
    from hostpin_vllm import host_registration_ranges        # _hisparse_registration_ranges of vllm.v1.hisparse.runtime

Signatures, results and kinds of exceptions are those of vLLM as of September 2026. What the library does better comes
with them: no error is left behind in the CUDA runtime for a later call, 512 GiB and more work, buffers that share a
page do too, and any vendor's driver is used. Different from vLLM, on purpose:

- The same range registered again is counted, on all vendors: it works, and is to be ended as often.
- Memory that other code has pinned already is not an error of the driver (712) and no warning: host_register says
  False, since there is nothing to end. pin_tensor raises.
- Log lines go to the logger "hostpin_vllm", in the library's words, next to the library's own log.
- host_registration_ranges takes tensors of size 0; with 0 blocks it raises ValueError, not ZeroDivisionError.

As in vLLM nobody keeps the memory alive: unregister before it is freed. torch is not imported.
"""
from __future__ import annotations

import logging
import mmap
from typing import Any, List, Tuple

import hostpin

__all__ = ["host_register", "host_registration_ranges", "host_unregister", "pin_tensor", "unpin_tensor"]

logger = logging.getLogger("hostpin_vllm")

HOST_REGISTER_CHUNK_BYTES = 256 * 2**30


def host_register(ptr: int, num_bytes: int) -> bool:
    """Pin host memory. True if it is pinned and is to be ended by host_unregister(); never raises for a refusal, since
    transfers work without, only slower.

    >>> host_register(0, 4096), host_register(4096, 0)
    (False, False)
    """
    if not ptr or num_bytes <= 0:
        return False
    try:
        status = hostpin.register(ptr, num_bytes, hostpin.Register.REQUIRED)
    except hostpin.Error as error:
        _log_refusal(error)
        return False
    if status == hostpin.Status.FOREIGN:
        logger.info("host memory at 0x%x is pinned already, by other code", ptr)
    return status == hostpin.Status.OK


def host_unregister(ptr: int) -> None:
    """End what host_register() has pinned. A failure is logged, not raised."""
    if not ptr:
        return
    try:
        if hostpin.backend().backend != hostpin.Backend.NONE:
            hostpin.unregister(ptr)
    except hostpin.Error as error:
        logger.warning("host memory is not released: %s", error)


def host_registration_ranges(tensor_sizes: List[int], num_blocks: int, host_block_stride: int,
                             max_chunk_bytes: int = HOST_REGISTER_CHUNK_BYTES) -> Tuple[Tuple[int, int], ...]:
    """Split a pool of `num_blocks` * `host_block_stride` bytes into ranges to register one by one, so that no block of
    any tensor lies in two of them.

    >>> host_registration_ranges([65536, 65536], 4, 32768, max_chunk_bytes=50000)
    ((0, 49152), (49152, 98304), (98304, 131072))
    """
    if not max_chunk_bytes:  # which hp_split_ranges takes as its default
        raise ValueError("max_chunk_bytes is 0: a registration must span at least one page")
    return tuple(hostpin.split_ranges(tensor_sizes, num_blocks, num_blocks * host_block_stride, max_chunk_bytes,
                                      mmap.PAGESIZE))


def pin_tensor(tensor: Any) -> None:
    """Pin the memory of a CPU tensor, exactly its size. RuntimeError if that fails, also where there is no GPU."""
    try:
        status = hostpin.register(tensor.data_ptr(), tensor.nbytes, hostpin.Register.REQUIRED)
    except hostpin.Error as error:
        raise RuntimeError("cudaHostRegister failed: %s" % error) from error
    if status == hostpin.Status.FOREIGN:
        raise RuntimeError("cudaHostRegister failed: the memory at 0x%x is pinned already, by other code"
                           % tensor.data_ptr())


def unpin_tensor(tensor: Any) -> None:
    """End what pin_tensor() has pinned, when no copy uses it any more. RuntimeError if that fails."""
    try:
        hostpin.unregister(tensor.data_ptr())
    except hostpin.Error as error:
        raise RuntimeError("cudaHostUnregister failed: %s" % error) from error


def _log_refusal(error: hostpin.Error) -> None:
    """Each one; only once that the machine can pin nothing at all."""
    global _said_unavailable
    if error.status != hostpin.Status.E_UNAVAILABLE:
        logger.warning("host memory is not pinned, transfers work but are slower: %s", error)
    elif not _said_unavailable:
        _said_unavailable = True
        logger.info("host memory cannot be pinned on this machine: %s", error)


_said_unavailable = False
