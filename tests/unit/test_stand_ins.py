"""Recorded launches: what a file keeps of them, and that a replay sees a kernel that differs, refuses, dies or hangs."""

import json
import math
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch

from tests.differential import stand_ins
from tests.differential.launches import EntryPoint, Kept, decode, encode, key
from tests.differential.recorder import Recorder


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


def test_what_is_not_run_when_the_time_is_up_is_told(tmp_path):
    about = {"engine": "none", "release": "1", "entry_points": "tests.support.kernels_that_fail"}
    x = torch.zeros(5, 3, 64, dtype=torch.bfloat16)
    lines = [{"about": about}, *({"entry": "hangs", "new": None, "plan": None, "call": call(x, out=x)} for _ in range(2))]
    (tmp_path / "launches.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    words = [str(tmp_path / "launches.jsonl"), "--device", "cpu", "--minutes", "0.1", "--out", str(tmp_path / "out.json")]
    began = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["stand_ins", *words])
        assert stand_ins.main() == 1
    assert time.monotonic() - began < 30
    assert json.loads((tmp_path / "out.json").read_text())["entry_points"]["hangs"]["not run"] == 2


def test_each_kernel_that_is_compiled_has_a_process_and_entry_points_take_turns():
    def launch(dtype, **planned):
        return {"new": call(), "plan": [call(**planned)], "call": call(torch.zeros(3, 2, 64, dtype=dtype))}

    half, bf16 = torch.float16, torch.bfloat16
    launches = [
        launch(half),
        launch(bf16),
        launch(bf16),
        launch(bf16, window_left=7),
        launch(bf16, window_left=-1),
        launch(half),
    ]
    parts = stand_ins._parts({"one": [0, 1, 2, 3, 4], "other": [5]}, launches)
    assert parts == [("other", [5]), ("one", [1, 2, 4]), ("one", [0]), ("one", [3])]


def test_a_schedule_is_made_anew_by_the_call_that_made_it_also_where_it_was_copied():
    recorder = Recorder((), 3)
    made = {"tiles": "schedule", "splits": "schedule"}
    schedule = recorder._wrapped(
        EntryPoint("schedule", "", "", like=False, alone=False),
        lambda lengths: (torch.zeros(2, 8, dtype=torch.int32), torch.zeros(len(lengths) + 1, dtype=torch.int32)),
    )
    kernel = recorder._wrapped(EntryPoint("kernel", "", "", made=made), lambda **given: None)
    schedule(torch.tensor([1]))
    tiles, splits = schedule(torch.tensor([5, 9]))
    kernel(tiles=tiles, splits=splits, causal=True)
    kernel(tiles=tiles.clone(), splits=splits.clone(), causal=False)
    launches = recorder.kept.launches()
    assert len(launches) == 2
    for one in launches:
        given = one["call"]["kwargs"]
        assert [given[name]["at"] for name in made] == [0, 1]
        assert all(given[name]["call"]["args"][0]["values"] == [5, 9] for name in made)


def test_a_mask_is_kept_and_a_quantised_cache_is_not():
    mask, cache = torch.tensor([1, 0, 0, 1], dtype=torch.uint8), torch.ones(2, 4, 1, 8, dtype=torch.uint8)
    assert torch.equal(decode(json.loads(json.dumps(encode(mask))), "cpu", 1), mask)
    assert "values" not in encode(cache)


def test_what_lies_behind_the_columns_of_a_table_is_there_for_who_reads_by_its_stride():
    table = torch.arange(15, dtype=torch.int32).view(3, 5)[:, :4]
    back = decode(json.loads(json.dumps(encode(table))), "cpu", 1)
    assert torch.equal(back, table) and back.as_strided((3, 5), (5, 1)).shape == (3, 5)


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
    shape = {"causal": True, "sm_scale": 1.0, "q_data_type": kernels.FP8}
    with pytest.raises(AssertionError, match="FP8 output"):  # the output's dtype is the query's where none is named
        ragged.plan(lengths, lengths, 2, 2, 64, **shape)
    ragged.plan(lengths, lengths, 2, 2, 64, **shape, o_data_type=torch.bfloat16)
    with pytest.raises(ValueError):
        ragged.run(q, k, k)
    ragged.plan(lengths, lengths, 2, 2, 64, causal=True, sm_scale=1.0, q_data_type=torch.bfloat16)
    assert ragged.run(k, k, k).shape == k.shape


def test_flashinfers_fast_plan_of_a_cuda_graph_copies_nothing():
    from tests.differential.vllm import flashinfer

    ints = lambda *values: torch.tensor(values, dtype=torch.int32)  # noqa: E731
    indptr, indices, last = ints(0, 0), ints(0, 0), ints(0)
    wrapper = flashinfer.PagedDecode(
        use_cuda_graph=True, paged_kv_indptr_buffer=indptr, paged_kv_indices_buffer=indices, paged_kv_last_page_len_buffer=last
    )
    shape, options = (1, 1, 64, 16), {"sm_scale": 1.0, "q_data_type": torch.half}
    wrapper.plan(ints(0, 1), ints(1), ints(3), *shape, **options)
    assert (indptr[1], indices[0], last[0]) == (1, 1, 3)
    flashinfer.fast_decode_plan(wrapper, ints(0, 2), ints(1, 2), ints(5), *shape, **options)
    assert (indptr[1], indices[0], last[0]) == (1, 1, 3)


def test_flash_attention_3_takes_sinks_of_bfloat16_alone_and_no_float16_model_with_others_is_drawn():
    from tests.differential.vllm import kernels, space

    q, lengths = torch.zeros(3, 2, 64, dtype=torch.half), torch.tensor([0, 3], dtype=torch.int32)
    flash = {"cu_seqlens_q": lengths, "max_seqlen_q": 3, "cu_seqlens_k": lengths, "max_seqlen_k": 3, "softmax_scale": 1.0}
    with pytest.raises(RuntimeError, match="S aux"):
        kernels.flash_attn_varlen_func(q=q, k=q, v=q, s_aux=torch.zeros(2, dtype=torch.half), fa_version=3, **flash)
    assert (
        kernels.flash_attn_varlen_func(q=q, k=q, v=q, s_aux=torch.zeros(2).bfloat16(), fa_version=3, **flash).dtype == q.dtype
    )
    settings = {"attention-backend": "FLASH_ATTN", "sinks": True, "dtype": "float16", "decode-context-parallel-size": 1}
    assert "sinks" in space.impossible(settings)
    assert space.impossible(settings | {"decode-context-parallel-size": 2}) is None
    assert space.impossible(settings | {"dtype": "bfloat16"}) is None


def test_a_merge_of_two_empty_sides_is_no_number_in_sglang_and_is_told_from_others():
    from tests.differential.sglang import kernels

    v, full, empty = torch.ones(2, 1, 8), torch.zeros(2, 1), torch.tensor([[0.0], [float("-inf")]])
    out, lse = kernels.merge_state_v2(v, empty, 3 * v, empty)
    assert torch.equal(out[0], 2 * v[0]) and out[1].isnan().all() and lse[1].isnan().all()
    assert torch.equal(kernels.merge_state_v2(v, empty, 3 * v, full)[0][1], 3 * v[1])
    launches = [{"entry": "a", "new": None, "plan": None, "call": call(v, one)} for one in (full, empty, empty - float("inf"))]
    assert len({key(launch) for launch in launches}) == 3


def test_entry_points_with_few_launches_come_first():
    launches = [{"new": None}] * 7
    parts = stand_ins._parts({"a": [0, 1, 2, 3], "b": [4], "c": [5, 6]}, launches)
    assert [name for name, _ in parts] == ["b", "c", "a"]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_recorded_launches_replay_without_the_engine(engine):
    file = next((stand_ins.ROOT / "tests/differential/recorded").glob(f"{engine}-*.jsonl.xz"))
    _, launches = stand_ins.read(file)
    first: dict[str, int] = {}
    for number, launch in enumerate(launches):  # one of each entry point, of FlashAttention one with a schedule
        name = launch["entry"]
        if name not in first or launch["call"]["kwargs"].get("scheduler_metadata"):
            first[name] = number
    code = f"""
import sys
for name in ("vllm", "sglang", "torchvision", "transformers"):
    sys.modules[name] = None
from pathlib import Path
from tests.differential import stand_ins_worker
for name, number in {first!r}.items():
    stand_ins_worker.main(Path({str(file)!r}), name, [number], "cpu", True)
"""
    ran = subprocess.run([sys.executable, "-c", code], cwd=stand_ins.ROOT, capture_output=True, text=True)
    said = [json.loads(line) for line in ran.stdout.splitlines()]
    outcomes = [(one["outcome"], one.get("why")) for one in said if "outcome" in one]
    assert ran.returncode == 0, ran.stderr
    assert len(outcomes) == len(first)
    # A query of FP8 beside other keys is refused by both: docs/upstream/vllm-dcp-fp8-query.md
    assert {outcome for outcome, _ in outcomes} <= {"agrees", "both refuse", "undefined"}, outcomes
    assert sum(outcome == "agrees" for outcome, _ in outcomes) >= len(first) - 1


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


def test_a_schedule_of_vllm_is_as_long_as_an_h100_made_it():
    """32 of the 33 launches on record; the last one has one query a request, which is not masked."""
    from tests.differential.vllm.kernels import get_scheduler_metadata

    lengths = []
    _, launches = stand_ins.read(stand_ins.ROOT / "tests/differential/recorded/vllm-0.33.0.jsonl.xz")
    for launch in launches:
        if launch["entry"] == "get_scheduler_metadata":
            given = launch["call"]["kwargs"]
            window = given.pop("window_size", None)
            made = get_scheduler_metadata(**given, window_size=tuple(window["tuple"]) if window else None)
            lengths.append((given["batch_size"], given["num_splits"], len(made)))
    seen = {(2, 0, 9), (3, 0, 9), (4, 0, 9), (4, 32, 13), (11, 32, 37), (14, 32, 49), (16, 32, 49), (16, 32, 33)}
    assert set(lengths) == seen and len(lengths) == 33
