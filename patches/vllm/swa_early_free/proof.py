"""Proof of vllm.swa-early-free: whose keys windows read on a server whose blocks are all in use, while drafts are refused.

Spared: servers without drafts, servers that schedule a step at a time, and layers of full attention.
"""

from typing import Any

from attnfix.patches.lab.vllm.windows import NGRAM, SCHEDULER, Windowed, served

from . import wrap

_AHEAD, _INTERFACE = "vllm.v1.core.sched.async_scheduler", "vllm.v1.kv_cache_interface"
_NGRAM = "vllm.v1.spec_decode.ngram_proposer_gpu"
_CHUNKS, _REFERENCE = f"{_NGRAM}:NgramProposerGPU", f"{_INTERFACE}:RSWASpec"
SYNC: dict[str, Any] = {"ahead": False, "scheduler": {"async_scheduling": False}}


class Proof(Windowed):
    modules = (SCHEDULER, "vllm.v1.core.kv_cache_manager", _AHEAD, _INTERFACE, _NGRAM)
    may_lack = (_AHEAD, _NGRAM)
    needs = f"{_AHEAD}:AsyncScheduler._update_after_schedule: scheduled_spec_decode_tokens"
    absent = "drafts are not scheduled ahead"
    bug = (
        # With drafts of EAGLE or MTP, chunked local attention frees no blocks
        served("chunk", blocks=24, drafts=3, speculative=NGRAM, where=_CHUNKS),
        served("reference", blocks=22, drafts=10, where=_REFERENCE),
        served("window", blocks=24, drafts=6),
        served("full", "window", blocks=60, drafts=6),
        served("window", blocks=32, drafts=6, caching=False),
    )
    spared = (
        served("window", blocks=24, drafts=0),
        served("full", "window", blocks=60, drafts=6, **SYNC),
        served("full", blocks=60, drafts=6),
    )
    broken = {
        "the correction does nothing": (wrap.settled, lambda real, computed, ahead: computed),
        "half of the tokens in flight count": (wrap.settled, lambda real, computed, ahead: real(computed, ahead // 2)),
        "windows are left as they are": (wrap, "_WIDTHS", ("attention_chunk_size", "rswa_window")),
        "chunks are left as they are": (wrap, "_WIDTHS", ("sliding_window", "rswa_window")),
        "R-SWA is left as it is": (wrap, "_WIDTHS", ("sliding_window", "attention_chunk_size")),
    }
    broken_where = {"chunks are left as they are": _CHUNKS, "R-SWA is left as it is": _REFERENCE}
