"""Launches of the compiled kernels: streams, graphs, threads, processes, devices. Here, too, the CUDA path must run."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading

import pytest
import torch

import tests.support.kernel_cases as cases
from attnfix.kernels import driver, fixup_zero_kv_rows, kernel_status, merge_attn_states, reference
from tests.support.launch_counts import cuda_launches

#: scripts/bench/gpu_evidence.sh asks for more
LAUNCHES = int(os.environ.get("ATTNFIX_GPU_LAUNCHES", 16_000))
BF16 = torch.bfloat16


def small_inputs(device: str = "cuda") -> tuple:
    """Arguments of one fix-up and one merge."""
    g = torch.Generator().manual_seed(0)
    out, prefix, suffix = (torch.randn(64, 4, 128, generator=g).to(device, BF16) for _ in "ops")
    prefix_lse, suffix_lse = (torch.randn(4, 64, generator=g).to(device) for _ in "ps")
    kv, cum = (torch.tensor(x, dtype=torch.int32, device=device) for x in ([0, 3, 0], [0, 20, 50, 60]))
    return (prefix, prefix_lse.t(), kv, cum), (out, prefix, prefix_lse, suffix, suffix_lse, torch.empty_like(suffix_lse))


def test_no_sync() -> None:
    fixup, merge = small_inputs()
    torch.cuda.set_sync_debug_mode("error")
    try:
        with pytest.raises(RuntimeError):
            fixup[1].sum().item()
        before = kernel_status()
        fixup_zero_kv_rows(*fixup)
        merge_attn_states(*merge, 30, None, kv_lens=fixup[2], cum_seq_lens=fixup[3])
        after = kernel_status()
        # The fallback too.
        reference.fixup_zero_kv_rows(*fixup, False)
        reference.merge_attn_states(*merge, 30, None, fixup[2], fixup[3], False)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for op in before:
        assert after[op]["launches"]["cuda"] == before[op]["launches"]["cuda"] + 1


def run_captured(fixup_op, merge_op) -> None:
    fixup, merge = small_inputs()
    want_fixup, want_merge = ([x.clone() for x in group] for group in (fixup, merge))
    fixup_op(*want_fixup)
    want_merge[1], want_merge[2] = want_fixup[0], want_fixup[1].t()
    merge_op(*want_merge)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fixup_op(*fixup)
        merge_op(*merge)
    merge[0].fill_(float("nan"))
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(merge[0], want_merge[0]) and torch.equal(merge[5], want_merge[5])
    assert torch.equal(cases.bits(fixup[0]), cases.bits(want_fixup[0]))


def test_graph_capture_and_replay() -> None:
    with cuda_launches(fixup=2, merge=2):
        run_captured(fixup_zero_kv_rows, merge_attn_states)


def test_reference_is_capturable() -> None:
    run_captured(
        lambda out, lse, kv, cum: reference.fixup_zero_kv_rows(out, lse, kv, cum, False),
        lambda *merge: reference.merge_attn_states(*merge, 64, None, None, None, False),
    )


def run_python(code: str) -> None:
    """In a fresh process, where no kernel is loaded yet."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


FRESH = """
import os, threading, torch
from attnfix.kernels import driver, fixup_zero_kv_rows, kernel_status
def inputs(device="cuda"):
    lens = [torch.tensor(x, dtype=torch.int32, device=device) for x in ([0, 3], [0, 2, 4])]
    return (torch.ones(4, 2, 64, device=device), torch.ones(4, 2, device=device), *lens)
def check(args):
    torch.cuda.synchronize(args[0].device)
    assert args[0].sum((1, 2)).tolist() == [0, 0, 128, 128] and args[1].isinf().sum() == 4
    status = kernel_status()["fixup_zero_kv_rows"]
    assert status["path"] == "cuda" and status["launches"]["reference"] == 0, status
"""


def test_first_launch_in_a_process_may_be_captured() -> None:
    run_python(
        FRESH
        + """
args = inputs()
assert not driver._devices
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    fixup_zero_kv_rows(*args)
torch.cuda.synchronize()
assert args[0].min() == 1
graph.replay()
check(args)
"""
    )


def test_first_launch_in_a_thread_without_a_context() -> None:
    run_python(
        FRESH
        + """
args = inputs(); other = inputs()
for group in (args, other):
    thread = threading.Thread(target=fixup_zero_kv_rows, args=group)
    thread.start(); thread.join()
    check(group)
"""
    )


def test_import_and_fork_before_cuda_is_initialised() -> None:
    """Importing, and serving CPU tensors, initialises no CUDA: a forked child can still use the GPU."""
    run_python(
        FRESH
        + """
fixup_zero_kv_rows(*inputs("cpu"))
assert not torch.cuda.is_initialized() and driver._cuda is None
child = os.fork()
if child == 0:
    args = inputs()
    fixup_zero_kv_rows(*args)
    check(args)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
args = inputs()
fixup_zero_kv_rows(*args)
torch.cuda.synchronize()
assert kernel_status()["fixup_zero_kv_rows"]["launches"] == {"cuda": 1, "reference": 1}
"""
    )


def test_a_child_forked_after_cuda_has_no_kernels() -> None:
    """Handles of the parent mean nothing there; it must say so and not crash."""
    run_python(
        FRESH
        + """
args = inputs()
fixup_zero_kv_rows(*args)
check(args)
child = os.fork()
if child == 0:
    try:
        driver.device(0)
    except driver.KernelUnavailable as error:
        os._exit(0 if "not initialised CUDA" in str(error) else 1)
    os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
args = inputs()
fixup_zero_kv_rows(*args)
check(args)
"""
    )


def test_without_compiled_kernels_the_reference_serves_and_says_so() -> None:
    run_python(
        FRESH
        + """
from pathlib import Path
driver.COMPILED = Path("/nowhere")
for calls in (1, 2):
    args = inputs()
    fixup_zero_kv_rows(*args)
    assert args[0].sum((1, 2)).tolist() == [0, 0, 128, 128]
    status = kernel_status()["fixup_zero_kv_rows"]
    assert status["path"] == "reference" and "no compiled kernels" in status["reason"], status
    assert status["launches"] == {"cuda": 0, "reference": calls}
"""
    )


def test_runs_on_the_current_stream() -> None:
    """Ordered after a long kernel on the same side stream, with no wait in between."""
    fixup, _ = small_inputs()
    expected = fixup[0].clone()
    expected[:20] = 0
    expected[50:60] = 0
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with cuda_launches(fixup=1), torch.cuda.stream(stream):
        before = fixup[0].clone()
        fixup[0].fill_(7)
        torch.cuda._sleep(20_000_000)
        fixup[0].copy_(before)
        fixup_zero_kv_rows(*fixup)
    assert torch.equal(fixup[0], expected)


def test_threads_do_not_share_arguments() -> None:
    """Each thread writes its own rows; a shared argument block would mix them up."""
    threads, rounds = 8, LAUNCHES // 8
    wrong: list[str] = []

    def work(me: int) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            out = torch.ones(4, 1, 64, device="cuda")
            lse = torch.ones(4, 1, device="cuda")
            cum = torch.tensor([0, 2, 4], device="cuda")
            kv = torch.tensor([0, 1], device="cuda")
            bad = torch.zeros((), device="cuda", dtype=torch.int64)
            for _ in range(rounds):
                out.fill_(me + 1)
                fixup_zero_kv_rows(out, lse, kv, cum)
                bad += (out[:2] != 0).any() | (out[2:] != me + 1).any()
            if bad.item():
                wrong.append(f"thread {me}: {bad.item()} of {rounds} launches")

    interval = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    try:
        with cuda_launches(fixup=threads * rounds):
            workers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


def test_a_repeated_launch_looks_at_its_arguments() -> None:
    """Calls like one before take a short way; whatever differs from it must not."""
    size, heads, tokens = 64, 4, 40
    torch.manual_seed(0)
    memory = torch.randn(6 * tokens * heads * size, device="cuda").bfloat16()
    each = tokens * heads * size
    lse = [torch.randn(heads, tokens, device="cuda") for _ in "ps"]

    def at(start: int) -> torch.Tensor:
        return memory[start : start + each].view(tokens, heads, size)

    def merged(out: torch.Tensor, prefix: torch.Tensor, suffix: torch.Tensor, count: int | None = None) -> None:
        expected, with_context = torch.empty_like(out), tokens if count is None else count
        parts = prefix.clone(), lse[0], suffix.clone(), lse[1]
        reference.merge_attn_states(expected, *parts, None, with_context, None, None, None, False)
        merge_attn_states(out, prefix, lse[0], suffix, lse[1], None, count)
        torch.testing.assert_close(out, expected, rtol=2**-6, atol=1e-3)  # rounded twice, in two orders

    with cuda_launches(merge=8):
        for _ in range(2):
            merged(at(0), at(each), at(2 * each))
        merged(at(3 * each), at(each), at(2 * each))  # elsewhere
        merged(at(3 * each), at(each), at(2 * each), 7)  # another option
        merged(at(each), at(each), at(2 * each))  # in place
        merged(at(1), at(2 * each + 1), at(3 * each + 3))  # unaligned
        lse[0] = lse[0].t().contiguous().t()  # another layout
        merged(at(0), at(each), at(2 * each))
        merged(at(0).float(), at(each).float(), at(2 * each).float())  # another dtype
    with pytest.raises(ValueError, match="must be exactly prefix_output"):
        merge_attn_states(at(8), at(0), lse[0], at(2 * each), lse[1])
    with pytest.raises(TypeError, match="must be a tensor, not NoneType"):
        merge_attn_states(at(0), at(each), None, at(2 * each), lse[1])


def test_a_device_that_is_not_current() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    with cuda_launches(fixup=2):
        for device in ("cuda:1", "cuda:0"):
            fixup, _ = small_inputs(device)
            before = fixup[0].clone()
            with torch.cuda.device(0):
                fixup_zero_kv_rows(*fixup)
                assert torch.cuda.current_device() == 0
            torch.cuda.synchronize(device)
            assert fixup[0][:20].eq(0).all() and torch.equal(fixup[0][20:50], before[20:50])


def test_torch_ops_launch_the_kernels() -> None:
    fixup, merge = small_inputs()
    with cuda_launches(fixup=1, merge=1):
        torch.ops.attnfix.fixup_zero_kv_rows(*fixup)
        torch.ops.attnfix.merge_attn_states(*merge, 30)
    assert fixup[0][:20].eq(0).all() and merge[0].isfinite().all()


def test_an_error_of_the_driver_is_raised() -> None:
    loaded = driver.device(0)
    with pytest.raises(driver.CudaError, match="CUDA_ERROR_INVALID_VALUE"):
        driver.Launch(loaded, "fixup_zero_kv_rows_packs", 1, 4096, ctypes.c_uint64(0), 1)((0,))  # 4096 threads: too many
    fixup, _ = small_inputs()
    with cuda_launches(fixup=1):
        fixup_zero_kv_rows(*fixup)
