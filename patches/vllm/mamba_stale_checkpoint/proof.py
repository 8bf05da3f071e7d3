"""Proof of vllm.mamba-stale-checkpoint: the states of prompts in chunks, where the engine stores checkpoints between them.

Spared: prompts that are computed at once.
"""

from dataclasses import replace

from attnfix.patches.lab.vllm.checkpoints import Checkpoints, launch, long_prompts, two_prompts, whole_prompts
from attnfix.patches.lab.vllm.scheduling import case

from . import wrap

NGRAM = {"method": "ngram", "prompt_lookup_max": 4}


def retained(of):
    return replace(of, launch={**of.launch, "cache": {**of.launch["cache"], "prefix_cache_retention_interval": None}})


def _of_row(tables, rows, columns, blocks, drafts):
    return (blocks != 0) & ((tables[rows] == blocks[:, None]).sum(1) == 1)


class Proof(Checkpoints):
    needs = "store_prefill_checkpoint"
    absent = "layers of Mamba2 store no checkpoints"
    bug = (
        case(long_prompts, **launch(1)),
        case(long_prompts, **launch(1, speculative=NGRAM)),
        # None, two, and a block reserved for each chunk
        *(case(two_prompts, **launch(*how)) for how in ((0, 0), (2, 0), (1, None))),
    )
    spared = tuple(case(whole_prompts, **launch(drafts)) for drafts in range(4))
    around = {"`--prefix-cache-retention-interval None`": {"bug": tuple(map(retained, bug))}}
    broken = {
        "all are reserved": (wrap, "is_reserved", lambda tables, rows, columns, blocks, drafts: blocks == blocks),
        "none is reserved": (wrap, "is_reserved", lambda tables, rows, columns, blocks, drafts: blocks != blocks),
        "the null block is reserved": (wrap, "NULL_BLOCK", -1),
        "the column itself counts": (wrap.is_reserved, lambda real, tables, rows, columns, *more: (
            real(tables, rows, columns - 1, *more)
        )),
        "the state's column is left out": (wrap.is_reserved, lambda real, tables, rows, columns, *more: (
            real(tables, rows, columns + 1, *more)
        )),
        "a block that was a draft's is never reserved": (wrap, "is_reserved", _of_row),
    }  # fmt: skip
