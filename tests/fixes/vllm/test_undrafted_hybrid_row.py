"""vllm.undrafted-hybrid-row without an engine: which rows become verifications of one token, and in which steps."""

from __future__ import annotations

import shlex
from types import SimpleNamespace

import numpy as np
import pytest

from attnfix.cli import doctor
from attnfix.compat.doctor.condition import HIT
from attnfix.compat.doctor.deployment import Deployment
from attnfix.compat.doctor.launch_command import read
from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.undrafted_hybrid_row.fix import FIX
from tests.support import one_call
from tests.support.deployments import MODELS, MTP

K = 3
#: Computed tokens, those of the prompt, scheduled ones, accepted ones of the last step, and drafts of this one
AHEAD, BEHIND_NONE, VERIFIED = (9, 5, 1, 2, -1), (9, 5, 1, 1, -1), (9, 5, 1 + K, 3, K)
REST, SHORT, LONG = (8, 9, 1, 1, -1), (0, K, K, 1, -1), (0, 20, 20, 1, -1)
ONE, LOST = (0, 1, 1, 1, -1), (8, 9, 1, 2, -1)
GDN, MAMBA2, OTHER = ("GDNAttentionMetadataBuilder", "Mamba2AttentionMetadataBuilder", "Mamba1AttentionMetadataBuilder")


def sorted_stably(self, masks):
    return masks.argsort(stable=True)


def sorted_apart(self, masks):
    return masks.argsort()


def array(values):
    return np.array(values, dtype=np.int32)


class Runner(SimpleNamespace):
    def build(
        self, num_tokens, num_reqs, max_query_len, ubatch_slices=None, logits_indices=None, use_spec_decode=False,
        for_cudagraph_capture=False,
    ):  # fmt: skip
        if self.ends:
            raise RuntimeError("the engine's")
        return use_spec_decode, self.num_decode_draft_tokens.np.tolist() if use_spec_decode else None


def runner(rows, kind, ahead=False, mode="none", drafts=K, ends=False, verifies=True, sort=sorted_stably):
    computed, prompts, new, accepted, drafted = (array(column) for column in zip(*rows))
    stale = array([2] * (len(rows) + 1))  # of a step before, and of a row that has left
    if (drafted >= 0).any():
        stale = array([*drafted, -1])
    batch = SimpleNamespace(num_accepted_tokens_cpu=accepted, num_computed_tokens_cpu=computed, num_prompt_tokens=prompts)
    builder = type(kind, (), {"use_spec_decode": verifies, "build": sort})()
    return Runner(
        num_spec_tokens=drafts, input_batch=batch, use_async_scheduling=ahead, uniform_decode_query_len=1 + drafts, ends=ends,
        query_start_loc=SimpleNamespace(np=array([0, *np.cumsum(new)])), num_decode_draft_tokens=SimpleNamespace(np=stale),
        attn_groups=[[SimpleNamespace(get_metadata_builder=lambda ubatch: builder)]],
        cache_config=SimpleNamespace(mamba_cache_mode=mode),
    )  # fmt: skip


def build(rows, kind=GDN, asked=True, ubatches=None, **launch):
    """(what the builder is told, rows that were corrected), of a step that a request asked for, or of a dummy one."""
    server, state = runner(rows, kind, **launch), FixState(FIX)
    before = server.num_decode_draft_tokens.np.tolist()
    target = one_call.target_of(FIX, "_build_attention_metadata")
    drafted = any(row[-1] >= 0 for row in rows)
    try:
        found = one_call.run(
            target, Runner.build, state, server, 99, len(rows), 9, ubatch_slices=ubatches,
            logits_indices="rows" if asked else None, use_spec_decode=drafted,
        )  # fmt: skip
    finally:
        assert server.num_decode_draft_tokens.np.tolist() == before and state.armed
    return found, state.counters.corrections


@pytest.mark.parametrize(
    "kind, rows, told",
    [
        (GDN, [AHEAD, VERIFIED], [1, K, -1]),
        (GDN, [AHEAD, BEHIND_NONE], [1, 1, -1]),
        (GDN, [AHEAD, REST, SHORT], [1, 1, -1, -1]),
        (GDN, [REST, AHEAD], [1, 1, -1]),
        (GDN, [VERIFIED, REST, AHEAD], [K, 1, 1, -1]),
        (MAMBA2, [AHEAD, BEHIND_NONE, LONG], [1, 1, -1, -1]),
    ],
)
def test_decodes_without_drafts_become_verifications(kind, rows, told):
    assert build(rows, kind) == ((True, told), 1)


@pytest.mark.parametrize("rows, corrected", [([AHEAD, VERIFIED], 1), ([AHEAD, REST], 1), ([AHEAD, LONG], 0)])
def test_where_rows_are_not_sorted_stably_verifications_stand_alone(rows, corrected):
    assert build(rows, sort=sorted_apart)[1] == corrected


@pytest.mark.parametrize(
    "rows, launch",
    [
        ([BEHIND_NONE, LONG], {}),
        ([AHEAD], {"asked": False}),
        ([AHEAD], {"ubatches": "two"}),
        ([AHEAD], {"ahead": True}),
        ([AHEAD], {"kind": OTHER}),
        ([AHEAD], {"kind": MAMBA2, "mode": "all"}),
        ([AHEAD, SHORT], {"kind": MAMBA2}),
        ([SHORT, AHEAD], {}),
        ([AHEAD, ONE], {}),
        ([VERIFIED, AHEAD, ONE], {}),
        ([AHEAD, LOST], {}),
        ([AHEAD], {"kind": MAMBA2, "verifies": False}),
        ([AHEAD], {"drafts": 0}),
    ],
)
def test_other_steps_are_left_alone(rows, launch):
    told = (True, [*(row[-1] for row in rows), -1]) if VERIFIED in rows else (False, None)
    assert build(rows, **launch) == (told, 0)


@pytest.mark.parametrize("kind, rows", [(GDN, [BEHIND_NONE, VERIFIED]), (GDN, [VERIFIED]), (MAMBA2, [AHEAD, VERIFIED])])
def test_steps_with_drafts_are_as_the_engine_has_them(kind, rows):
    assert build(rows, kind) == ((True, [*(row[-1] for row in rows), -1]), 0)


def test_what_the_engine_raises_passes_and_leaves_its_buffer():
    with pytest.raises(RuntimeError, match="the engine's"):
        build([AHEAD], ends=True)


@pytest.mark.parametrize(
    "release, model, more, by",
    [
        ("0.25.1", "Next", "-sc.method=ngram", ""),
        ("0.25.1", "Next", "-sc.method=ngram --enable-prefix-caching", ""),
        ("0.25.1", "Next", "-sc.method=ngram_gpu", "leaves it alone: async scheduling"),
        ("0.25.1", "Nemotron", "-sc.method=ngram", ""),
        ("0.25.1", "Nemotron", "-sc.method=ngram --enable-prefix-caching", "may leave it alone: Mamba2 states in each block"),
        ("0.28.0", "Nemotron", "-sc.method=ngram", ""),
        ("0.28.0", "Nemotron", "-sc.method=ngram --mamba-cache-mode all", "leaves it alone: Mamba2 states in each block"),
        ("0.28.0", "Nemotron", "-sc.method=ngram --mamba-cache-mode align", ""),
    ],
)
def test_doctor_says_where_the_fix_stays_out(release, model, more, by):
    launch = read(shlex.split(f"{FIX.switch}=1 {MTP}{more}"))
    deployment = Deployment("vllm", config=MODELS[model], launch=launch, environment={})
    (row,) = [row for row in doctor.examine(deployment, release) if row["fix"] == FIX.id]
    assert row["verdict"] == HIT and row["attnfix"].startswith(by or "corrects it")
