"""Recorded launches: what a file keeps of them, and that a replay sees a kernel that differs, refuses, dies or hangs."""

import json
import math
import sys
from types import SimpleNamespace

import pytest
import torch

from tests.differential import stand_ins
from tests.differential.launches import Kept, decode, encode, key


def call(*args, **kwargs):
    said = {"of": "", "args": [encode(one) for one in args], "kwargs": {name: encode(one) for name, one in kwargs.items()}}
    return json.loads(json.dumps(said))


@pytest.mark.parametrize("value", [
    torch.tensor([3, -1, 2**31 - 1], dtype=torch.int32), torch.tensor([[0.1, float("-inf")], [float("inf"), 2.5]]),
    torch.tensor(0.25), torch.empty(0, 4), torch.arange(12).view(3, 4).t(), torch.tensor([0.5]).expand(3, 2),
])  # fmt: skip
def test_integers_and_short_tensors_are_kept(value):
    back = decode(json.loads(json.dumps(encode(value))), "cpu", 1)
    assert back.dtype == value.dtype and back.stride() == value.stride()
    assert torch.equal(back, value)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.uint8])
def test_others_are_drawn_with_the_strides_and_the_alignment_that_they_had(dtype):
    value = torch.zeros(2, 9, 2, 64, dtype=dtype)[:, :, 1, 3:40]
    back = [decode(json.loads(json.dumps(encode(value))), "cpu", seed) for seed in (1, 1, 2)]
    assert back[0].dtype == dtype and back[0].shape == value.shape and back[0].stride() == value.stride()
    assert back[0].data_ptr() % 16 == value.data_ptr() % 16
    same, again, other = (one.contiguous().view(torch.uint8) for one in back)
    assert torch.equal(same, again) and not torch.equal(same, other)
    assert same.float().std() > 10


def test_launches_of_one_kind_are_bounded_and_the_richest_stay():
    kept = Kept(2)
    for rows in (1, 5, 9, 7):
        kept.offer({"entry": "a", "new": None, "plan": None, "call": call(torch.arange(rows), causal=True)})
    kept.offer({"entry": "a", "new": None, "plan": None, "call": call(torch.arange(3), causal=False)})
    sizes = sorted(launch["call"]["args"][0]["shape"][0] for launch in kept.launches())
    assert sizes == [3, 7, 9] and len({key(launch) for launch in kept.launches()}) == 2


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stand-ins")
    from tests.support.kernels_that_fail import ENTRY_POINTS

    lines = [{"about": {"engine": "none", "release": "1", "entry_points": "tests.support.kernels_that_fail"}}]
    for entry in ENTRY_POINTS:
        x = torch.zeros(5, 3, 64, dtype=torch.bfloat16)
        lines += [
            {"entry": entry.name, "new": None, "plan": None, "call": call(x, **given)} for given in ({"out": x}, {"out": x})
        ]
    (folder / "launches.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    words = [str(folder / "launches.jsonl"), "--device", "cpu", "--launch-seconds", "5", "--out", str(folder / "out.json")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["stand_ins", *words])
        assert stand_ins.main() == 1
        patch.setattr("sys.argv", ["stand_ins", *words, "--entry", "doubled"])
        assert stand_ins.main() == 0  # what it finds now; the file keeps the others
    return json.loads((folder / "out.json").read_text())["entry_points"]


@pytest.mark.parametrize(("name", "outcome"), [
    ("doubled", "agrees"), ("wrong", "differs"), ("other_last_row", "agrees"), ("other_last_row of a cache", "differs"),
    ("refuses", "refused"), ("refuses as well", "both refuse"), ("dies", "died"), ("hangs", "hung"), ("nowhere", "absent"),
])  # fmt: skip
def test_what_a_replay_says_of_both_launches_of_a_kernel(evidence, name, outcome):
    assert evidence[name][outcome] == 2, evidence[name]
    assert (outcome in ("agrees", "both refuse")) == (not evidence[name]["problems"])


def test_the_worst_difference_is_told(evidence):
    assert evidence["wrong"]["worst"] == pytest.approx(0.1, rel=0.1) and evidence["doubled"]["worst"] == 0


def test_vllms_stand_ins_refuse_keys_of_another_dtype_than_their_kernels_take():
    from tests.differential.vllm import flashinfer, kernels

    q, k = torch.zeros(3, 2, 64, dtype=kernels.FP8), torch.zeros(3, 2, 64, dtype=torch.bfloat16)
    lengths = torch.tensor([0, 3], dtype=torch.int32)
    flash = {"cu_seqlens_q": lengths, "max_seqlen_q": 3, "cu_seqlens_k": lengths, "max_seqlen_k": 3, "softmax_scale": 1.0}
    with pytest.raises(RuntimeError):
        kernels.flash_attn_varlen_func(q=q, k=k, v=k, fa_version=3, **flash)
    with pytest.raises(RuntimeError):
        kernels.flash_attn_varlen_func(q=q, k=q, v=q, out=torch.zeros(3, 2, 64, dtype=torch.half), fa_version=3, **flash)
    assert kernels.flash_attn_varlen_func(q=q, k=q, v=q, out=k.clone(), fa_version=3, **flash).dtype == torch.bfloat16
    ragged = flashinfer.Ragged()
    ragged.plan(lengths, lengths, 2, 2, 64, causal=True, sm_scale=1.0, q_data_type=kernels.FP8)
    with pytest.raises(ValueError):
        ragged.run(q, k, k)
    ragged.plan(lengths, lengths, 2, 2, 64, causal=True, sm_scale=1.0, q_data_type=torch.bfloat16)
    assert ragged.run(k, k, k).shape == k.shape


@pytest.mark.parametrize(
    ("capability", "backend", "keys", "bad", "read"),
    [
        ((8, 0), "auto", 100, 75, False),
        ((8, 0), "auto", 100, 76, True),  # the first key that the first row sees
        ((9, 0), "auto", 100, 64, True),  # FA3 begins with a tile
        ((9, 0), "auto", 100, 63, False),
        ((9, 0), "fa2", 100, 75, False),
        ((8, 0), "auto", 10, 0, True),
    ],
)
def test_flashinfers_fa2_reads_no_key_before_the_window(monkeypatch, capability, backend, keys, bad, read):
    from tests.differential.vllm import flashinfer

    platform = SimpleNamespace(get_device_capability=lambda: capability)
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "vllm.platforms", SimpleNamespace(current_platform=platform))
    cache = torch.zeros(10, 2, 16, 1, 64, dtype=torch.half)
    cache[bad // 16, :, bad % 16] = math.nan
    pages, last = -(-keys // 16), (keys - 1) % 16 + 1
    ints = lambda *values: torch.tensor(values, dtype=torch.int32)  # noqa: E731
    q = torch.zeros(1, 1, 64, dtype=torch.half)
    prefill = flashinfer.PagedPrefill(backend=backend)
    plan = ints(0, pages), torch.arange(pages, dtype=torch.int32), ints(last), 1, 1, 64, 16
    prefill.plan(ints(0, 1), *plan, causal=True, sm_scale=1.0, window_left=23, q_data_type=torch.half)
    assert bool(prefill.run(q, cache).isnan().any()) == read
    decode = flashinfer.PagedDecode(backend=backend)
    decode.plan(*plan, sm_scale=1.0, window_left=23, q_data_type=torch.half)
    assert bool(decode.run(q, cache).isnan().any()) == (read and bad >= keys - 24)  # FA2, on Hopper too
