"""sglang.mamba2-h-grid without an engine: which states are taken, by position, and where those between chunks go."""

from __future__ import annotations

import random
from types import FunctionType, SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.sglang.mamba2_h_grid import wrap
from attnfix.patches.sglang.mamba2_h_grid.fix import FIX
from tests.support import one_call

CHUNK = 16
INDICES, METADATA, SCAN = (
    one_call.target_of(FIX, name)
    for name in ("_init_track_ssm_indices", "init_forward_metadata", "_mamba_chunk_scan_combined_fwd")
)


class Backend:
    mamba_chunk_size, device = CHUNK, "cpu"


class Heir(Backend):
    pass


def batch(new, cached=None, branches=None, host=True):
    """Requests that compute so many tokens; branches: {request: offset among them, that is tracked}."""
    cached, branches = cached or [0] * len(new), branches or {}
    wanted = [branches[at] + 1 if at in branches else tokens for at, tokens in enumerate(new)]
    mask = torch.tensor([tokens >= CHUNK for tokens in new])
    return SimpleNamespace(
        extend_seq_lens_cpu=list(new) if host else None, extend_seq_lens=torch.tensor(new, dtype=torch.int32),
        extend_prefix_lens=torch.tensor(cached, dtype=torch.int32), mamba_track_mask=mask,
        mamba_track_seqlens=torch.where(mask, torch.tensor([a + b for a, b in zip(cached, wanted)]), -1),
        mamba_track_indices=torch.arange(len(new)) + 100,
    )  # fmt: skip


def engines(self, mamba_cache_indices, forward_batch):
    """The engine's count of whole chunks, for those that are no whole number of chunks."""
    new, mask = forward_batch.extend_seq_lens, forward_batch.mamba_track_mask
    whole = (new // CHUNK).cumsum(0) - new // CHUNK
    wanted = forward_batch.mamba_track_seqlens - forward_batch.extend_prefix_lens
    inner = wanted[mask] % CHUNK != 0
    source = whole[mask][inner] + wanted[mask][inner] // CHUNK
    return source, forward_batch.mamba_track_indices[mask][inner], "of last states", "to"


#: How the engine's module asks for the chunk of the radix cache, by release
ASKS = {
    "0.5.13": lambda chunk: {"get_global_server_args": lambda: SimpleNamespace(mamba_cache_chunk_size=chunk)},
    "0.5.16": lambda chunk: {"get_server_args": lambda: SimpleNamespace(mamba_cache_chunk_size=chunk)},
    "0.5.18": lambda chunk: {"mamba_cache_chunk_size": lambda: chunk},
}


def indices(given, backend=None, asks=ASKS["0.5.13"](CHUNK)):  # noqa: B008
    """(what the engine gets to track, the state of the fix)"""
    function = FunctionType(engines.__code__, {**globals(), "Mamba2AttnBackend": Backend, **asks})
    state = FixState(FIX)
    return one_call.run(INDICES, function, state, backend or Backend(), torch.arange(len(given.mamba_track_mask)), given), state


def wanted_positions(new, branches):
    """Where in the batch the wanted states lie, of requests that do not take their last one: [(begin, end)]"""
    found, begin = [], 0
    for at, tokens in enumerate(new):
        if tokens >= CHUNK and (at in branches or tokens % CHUNK):
            found.append((begin, begin + (branches[at] if at in branches else tokens // CHUNK * CHUNK)))
        begin += tokens
    return found


@pytest.mark.parametrize("seed", range(40))
def test_every_state_is_that_of_its_position(seed):
    draw = random.Random(seed)
    new = [draw.choice([1, 3, 15, 16, 17, 25, 32, 40, 48, 50]) for _ in range(draw.randint(1, 7))]
    branches = {at: CHUNK for at, tokens in enumerate(new) if tokens > CHUNK and draw.random() < 0.3}
    given = batch(new, [draw.choice([0, 7, 32]) for _ in new], branches)
    (source, slots, *last), state = indices(given)
    stock = engines(None, None, given)
    assert slots.tolist() == stock[1].tolist() and last == list(stock[2:])
    positions = wanted_positions(new, branches)
    between = getattr(source, wrap._BETWEEN, None)
    computed = iter(zip(between.bounds.view(-1, 2).tolist(), between.homes.tolist()) if between else ())
    for at, (begin, end) in zip(source.tolist(), positions, strict=True):
        if end % CHUNK == 0:
            assert at * CHUNK == end
        else:
            assert next(computed) == ([begin, end], at), "the state is computed"
            assert begin < at * CHUNK < end, "it takes the place of one inside of the same request"
    assert not list(computed) and len(set(source.tolist())) == len(positions)
    right = source.tolist() == stock[0].tolist() and between is None
    assert bool(state.counters.corrections) != right


@pytest.mark.parametrize("new", [[50], [16, 32, 25, 3], [3, 5, 15], [48, 16], []])
def test_what_the_engine_counts_right_is_left_alone(new):
    assert not wrap.misses(new, CHUNK)
    given = batch(new or [1])
    _, state = indices(given)
    assert not state.counters.corrections


@pytest.mark.parametrize("new", [[5, 16], [5, 11, 17], [16, 17, 3, 20]])
def test_a_part_of_a_chunk_before_another_request_is_seen(new):
    assert wrap.misses(new, CHUNK)


@pytest.mark.parametrize("release", ASKS)
def test_with_pages_larger_than_a_chunk_the_engine_is_left_alone(release):
    """It counts and tracks by pages then: other requests take their last state, and other positions are kept."""
    given = batch([5, 2 * CHUNK + 3, CHUNK + 1])
    assert indices(given, asks=ASKS[release](CHUNK))[1].counters.corrections == 1
    (source, *_), state = indices(given, asks=ASKS[release](2 * CHUNK))
    assert not state.counters.corrections and getattr(source, wrap._BETWEEN, None) is None
    assert not indices(given, asks={})[1].counters.corrections, "where the engine cannot be asked"


def test_other_backends_and_batches_without_lengths_on_the_host_are_left_alone():
    """That of linear attention has no chunks of Mamba2."""
    linear = type("GDNAttnBackend", (), {"device": "cpu"})()
    for given, backend in ((batch([5, 20]), Heir()), (batch([5, 20]), linear), (batch([5, 20], host=False), Backend())):
        (source, *_), state = indices(given, backend)
        assert not state.counters.corrections and getattr(source, wrap._BETWEEN, None) is None


def test_a_state_before_the_first_chunk_leaves_all_to_the_engine():
    given = batch([5, 20])
    given.mamba_track_seqlens[1] = 7
    (source, *_), state = indices(given)
    assert source.tolist() == engines(None, None, given)[0].tolist() and not state.counters.corrections


@pytest.mark.parametrize("given, seen", [(batch([5, 20]), True), (batch([20]), False), (batch([5, 20], host=False), False)])
def test_what_is_missing_goes_with_the_batch_s_own_tensor(given, seen):
    between, source = wrap.Between(1, 2), torch.zeros(1)
    setattr(source, wrap._BETWEEN, between)
    mixed = SimpleNamespace(seq_idx=torch.zeros(1))

    def prepares(self, forward_batch):
        self.forward_metadata = SimpleNamespace(track_ssm_h_src=source, mixed_metadata=mixed)

    one_call.run(METADATA, prepares, FixState(FIX), SimpleNamespace(), given)
    assert (getattr(mixed.seq_idx, wrap._BETWEEN, None) is between) == seen


def scans(x, seq_idx=None):
    states = torch.zeros(1, 6, 1)
    last = chunk_state_varlen("B", x, "dt", "dA", torch.tensor([0, 6, 32]), states[0], initial_states="initial")  # noqa: F821
    return "out", "dt", "dA", states, "final", last


def test_the_scan_gets_the_states_between_chunks_where_they_are_looked_for():
    seen = []

    def kernel(B, x, dt, dA_cumsum, cu_seqlens, chunk_states, initial_states=None):
        """A state is the name of its bounds."""
        seen.append((B, x, dt, dA_cumsum, cu_seqlens.tolist(), initial_states))
        return torch.stack([100.0 * cu_seqlens[:-1] + cu_seqlens[1:]], 1)

    engine = FunctionType(scans.__code__, {**globals(), "chunk_state_varlen": kernel}, "scans", scans.__defaults__)
    seq_idx = torch.zeros(1)
    plain = one_call.run(SCAN, engine, FixState(FIX), "x", seq_idx=seq_idx)
    assert not plain[3].any() and len(seen) == 1
    setattr(seq_idx, wrap._BETWEEN, wrap.Between(torch.tensor([6, 22, 51, 67]), torch.tensor([1, 4])))
    *_, states, final, last = one_call.run(SCAN, engine, FixState(FIX), "x", seq_idx=seq_idx)
    assert states[0, :, 0].tolist() == [0, 622, 0, 0, 5167, 0]
    assert last.tolist() == plain[5].tolist() and final == "final"
    given = ("B", "x", "dt", "dA")
    assert seen[-2:] == [(*given, [0, 6, 32], "initial"), (*given, [6, 22, 51, 67], None)]
