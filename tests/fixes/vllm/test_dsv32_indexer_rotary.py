"""vllm.dsv32-indexer-rotary without an engine: which indexers get an embedding of their own, and that a compiler sees it."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from attnfix.compat.status.fix_state import FixState
from attnfix.patches.vllm.dsv32_indexer_rotary.fix import FIX
from attnfix.patches.vllm.dsv32_indexer_rotary.wrap import ROTARY
from tests.support import one_call

POSITIONS = torch.tensor([0, 1, 5])


class Rotary(torch.nn.Module):
    """Adds positions, or twice as many in the other style: then its results have one dimension more, as those of YaRN."""

    def __init__(self, is_neox_style):
        super().__init__()
        self.is_neox_style = is_neox_style
        self.register_buffer("table", torch.arange(8.0) * (1 + is_neox_style), persistent=False)

    def forward(self, positions, query, key):
        more = self.table[positions].view((1,) * self.is_neox_style + (-1, 1, 1))
        return query + more, key + more


def get_rope(head_size, rotary_dim, max_position, base, rope_scaling, is_neox_style):
    assert (head_size, rotary_dim, max_position, base, rope_scaling) == (2, 2, 8192, 10000, None)
    return Rotary(is_neox_style)


class Indexer(torch.nn.Module):
    def forward(self, hidden_states, qr, positions, rotary_emb):
        q, k = rotary_emb(positions, qr, hidden_states.unsqueeze(1))
        return torch.cat([q, qr], -1), torch.cat([k.squeeze(1), hidden_states], -1)


class Attention(torch.nn.Module):
    def __init__(
        self, vllm_config, config, qk_rope_head_dim, rope_theta=10000, rope_scaling=None, max_position_embeddings=8192
    ):
        if qk_rope_head_dim is None:
            raise TypeError("the engine's")
        super().__init__()
        self.rotary_emb, self.indexer = Rotary(False), Indexer() if hasattr(config, "index_topk") else None

    def forward(self, hidden_states, qr):
        return self.indexer(hidden_states, qr, POSITIONS, self.rotary_emb), self.rotary_emb(POSITIONS, qr, qr)[0]


def made(index=True, connector=None, cache_dir="", load_format="auto", aot=False, head=2):
    """(attention of such a server, corrections)."""
    config = SimpleNamespace(index_topk=2048) if index else SimpleNamespace()
    kv = connector and SimpleNamespace(kv_connector=connector)
    server = SimpleNamespace(
        kv_transfer_config=kv, compilation_config=SimpleNamespace(cache_dir=cache_dir),
        load_config=SimpleNamespace(load_format=load_format),
    )  # fmt: skip
    state, attention = FixState(FIX), object.__new__(Attention)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "vllm.envs", SimpleNamespace(VLLM_USE_AOT_COMPILE=aot))
        one_call.run(one_call.target_of(FIX, "__init__"), Attention.__init__, state, attention, server, config, head)
    return attention, state.counters.corrections


def inputs():
    return torch.randn(3, 2), torch.randn(3, 4, 2)


def test_the_indexer_rotates_by_halves_and_attention_in_pairs():
    attention, corrections = made()
    (hidden, qr), places = inputs(), POSITIONS.float()[:, None]
    (q, k), own = attention(hidden, qr)
    assert corrections == 1 and torch.equal(own, qr + places[..., None])
    assert torch.equal(q, torch.cat([qr + 2 * places[..., None], qr], -1))
    assert torch.equal(k, torch.cat([hidden + 2 * places, hidden], -1))


def test_its_table_is_a_buffer_of_the_model_and_in_no_checkpoint():
    attention, _ = made()
    assert f"indexer.{ROTARY}.table" in dict(attention.named_buffers()) and not attention.state_dict()


def test_a_compiler_sees_through_it():
    attention, _ = made()
    given = inputs()
    compiled = torch.compile(attention, backend="eager", fullgraph=True)(*given)
    assert all(map(torch.equal, compiled[0], attention(*given)[0]))


@pytest.mark.parametrize(
    "server",
    [{"index": False}, {"connector": "NixlConnector"}, {"cache_dir": "/cache"}, {"aot": True}, {"load_format": "tensorizer"}],
)
def test_other_models_and_servers_are_left_alone(server):
    attention, corrections = made(**server)
    assert corrections == 0 and "forward" not in vars(attention.indexer or attention)


def test_what_the_engine_raises_passes():
    with pytest.raises(TypeError, match="the engine's"):
        made(head=None)
