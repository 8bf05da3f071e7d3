"""The kernel that sglang.qwen35-mrope feeds, at the sizes of Qwen3.5's attention. Needs it from sglang 0.5.15 to 0.5.18."""

from __future__ import annotations

import inspect
import json
import os
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from attnfix.patches.sglang.qwen35_mrope.wrap import cos_sin

_MODULES = ("sglang.kernels.ops.attention.fused_qk_rmsnorm_rope_gate", "sglang.srt.layers.fused_qk_rmsnorm_rope_gate")
HEADS, KV_HEADS, DIM, ROTARY, SECTION, BASE, EPS = 32, 2, 256, 64, (11, 11, 10), 1e7, 1e-6


@pytest.fixture(scope="module")
def kernel() -> Any:
    for name in _MODULES:
        try:
            found = import_module(name).fused_qk_gemma_rmsnorm_rope_gate
        except ImportError:
            continue
        if "mrope_axis_map" not in inspect.signature(found).parameters:
            return found
    pytest.skip("no sglang from 0.5.15 to 0.5.18 is installed")


def rotary() -> Any:
    angles = torch.arange(8192.0, device="cuda")[:, None] * BASE ** (-torch.arange(ROTARY // 2, device="cuda") / (ROTARY // 2))
    return SimpleNamespace(cos_sin_cache=torch.cat([angles.cos(), angles.sin()], -1), mrope_section=SECTION)


def drawn(tokens: int) -> tuple[Any, ...]:
    draw = torch.Generator("cuda").manual_seed(tokens)
    shapes = (tokens, HEADS * 2 * DIM), (tokens, KV_HEADS * DIM), (DIM,), (DIM,)
    return tuple((torch.randn(*shape, generator=draw, device="cuda") / 4).bfloat16() for shape in shapes)


def image(tokens: int) -> torch.Tensor:
    """int64 [3, tokens]: text, an image of 32 columns, text."""
    positions = torch.arange(tokens, device="cuda").expand(3, -1).clone()
    inside = torch.arange(tokens // 2, device="cuda")
    begin = tokens // 4
    span = slice(begin, begin + len(inside))
    positions[:, span] = begin + torch.stack([0 * inside, inside // 32, inside % 32])
    positions[:, span.stop :] += int(positions[:, span].max()) + 1 - span.stop
    return positions


def run(kernel: Any, given: tuple[Any, ...], table: Any, positions: Any) -> torch.Tensor:
    q, k, _ = kernel(*given, table, positions, EPS, HEADS, KV_HEADS, DIM, ROTARY)
    return torch.cat([q, k], -1)


def exact(given: tuple[Any, ...], positions: Any) -> torch.Tensor:
    q_gate, k, q_weight, k_weight = (one.double() for one in given)
    half = ROTARY // 2
    lanes = torch.arange(half, device="cuda")
    axes = torch.tensor([lane % 3 if lane < 3 * SECTION[lane % 3] else 0 for lane in range(half)], device="cuda")
    angles = (positions[axes].T.double() * BASE ** (-lanes.double() / half))[:, None]

    def rotated(rows: Any, weight: Any) -> Any:
        rows = rows / (rows.square().mean(-1, keepdim=True) + EPS).sqrt() * (1 + weight)
        first, second, rest = rows.split([half, half, DIM - ROTARY], -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], -1).flatten(1)

    q = q_gate.view(-1, HEADS, 2, DIM)[:, :, 0]
    return torch.cat([rotated(q, q_weight), rotated(k.view(-1, KV_HEADS, DIM), k_weight)], -1)


def corrected(kernel: Any, given: tuple[Any, ...], of: Any, positions: Any) -> torch.Tensor:
    table = cos_sin(of, positions)
    return run(kernel, given, table, torch.arange(len(table), device="cuda"))


@pytest.mark.parametrize("tokens", [64, 1000, 4096])
def test_images_keep_height_and_width_and_text_its_bits(kernel: Any, tokens: int) -> None:
    given, of, positions = drawn(tokens), rotary(), image(tokens)
    reference = exact(given, positions)

    def error(found: Any) -> float:
        return float((found.double() - reference).norm() / reference.norm())

    stock = run(kernel, given, of.cos_sin_cache, positions)
    assert error(corrected(kernel, given, of, positions)) < 4e-3 < 1e-2 < error(stock)
    text = torch.arange(tokens, device="cuda").expand(3, -1).contiguous()
    assert torch.equal(corrected(kernel, given, of, text), run(kernel, given, of.cos_sin_cache, text))


def test_a_captured_graph_follows_its_positions(kernel: Any) -> None:
    given, of, positions = drawn(1000), rotary(), image(1000)
    static = torch.zeros_like(positions)
    corrected(kernel, given, of, static)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = corrected(kernel, given, of, static)
    static.copy_(positions)
    graph.replay()
    assert torch.equal(found, corrected(kernel, given, of, positions))


def test_what_the_correction_costs(kernel: Any) -> None:
    """Microseconds of a layer, eager and replayed; told, and written where $ATTNFIX_GPU_OUT is set."""
    seconds = {}
    for tokens in (64, 1000, 4096, 8192):
        given, of, positions = drawn(tokens), rotary(), image(tokens)
        sides = {
            "stock": lambda: run(kernel, given, of.cos_sin_cache, positions),  # noqa: B023  called here
            "corrected": lambda: corrected(kernel, given, of, positions),  # noqa: B023
        }
        for side, step in sides.items():
            step()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
            seconds[tokens, side] = [round(min(timed(one) for _ in range(5)), 1) for one in (step, graph.replay)]
    told = {f"{tokens} tokens, {side}": times for (tokens, side), times in seconds.items()}
    print(torch.cuda.get_device_name(), json.dumps(told, indent=1))
    if out := os.environ.get("ATTNFIX_GPU_OUT"):
        (Path(out) / "qwen35-mrope.json").write_text(json.dumps({"gpu": torch.cuda.get_device_name(), "us": told}))
    assert seconds[8192, "corrected"][1] < 3 * seconds[8192, "stock"][1] + 200


def timed(step: Any) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(50):
        step()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 20
