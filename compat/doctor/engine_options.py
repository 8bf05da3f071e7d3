"""The options of the engines' servers as each release's own parser has them, and the variables that decide a verdict.

The tables are generated: `python -m scripts.flags.generate`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

#: What follows an option: nothing (SWITCH, or NEGATED: `--no-` negates it), a value, JSON with keys behind dots, at most one
#: value, any number of them; or how many
VALUE, SWITCH, NEGATED, JSON, OPTIONAL, SEVERAL = "value", "switch", "no", "json", "optional", "several"


class Option(NamedTuple):
    """`name`: in `Launch.options`; `names`: as typed; `takes`: what follows it."""

    name: str
    names: tuple[str, ...]
    takes: str


#: Options under names that the facts do not ask for -> the name, or the key of one, that they do ask for
RENAMED = {
    "sglang": {
        "mamba-scheduler-strategy": "mamba-radix-cache-strategy",
        "disable-decode-cuda-graph": "disable-cuda-graph",
    },
    "vllm": {
        "spec-method": "speculative-config.method",
        "spec-model": "speculative-config.model",
        "spec-tokens": "speculative-config.num_speculative_tokens",
    },
}
#: Options that no parser has: `sglang serve` takes them out of the line before
_BEFORE_THE_PARSER = {"sglang": (Option("model-type", ("--model-type",), VALUE),), "vllm": ()}


def path_of(engine: str) -> Path:
    return Path(__file__).with_name(f"options_{engine}.json")


def releases(engine: str) -> Collection[str]:
    """The releases that have a table."""
    return _table(engine).order.keys()


def options(engine: str, release: str | None = None) -> list[Option]:
    """The options of a release; of all of them where it is None or has no table, each as its newest release has it."""
    table = _table(engine)
    at = table.order.get(release or "")
    return [*(table.option(name, at) for name in table.options if table.has(name, at)), *_BEFORE_THE_PARSER[engine]]


@cache
def by_name(engine: str, release: str | None = None) -> Mapping[str, Option]:
    """The same, by each name as typed; for reading alone."""
    return {name: option for option in options(engine, release) for name in option.names}


def default(engine: str, release: str | None, name: str) -> Any:
    """The default of an option, None where it is no plain value, and where the release has no table or no such option."""
    table = _table(engine)
    at = table.order.get(release or "")
    return table.default(name, at) if at is not None and name in table.options and table.has(name, at) else None


def choices(engine: str, release: str, name: str) -> tuple[str, ...]:
    """The values that an option of a release may have, in no order; empty: any."""
    table = _table(engine)
    return table.values(name, "choices", table.order[release])


def read_by(engine: str, release: str | None, choice: str) -> frozenset[str]:
    """The options, `name` or `name.key`, that the release's own code for `choice` reads ("attention backend", "model runner",
    "graph mode"); that any release's reads where it is None or has no table."""
    return _table(engine).read_by(choice, release or "")


def in_front(engine: str) -> frozenset[str]:
    """The options, by name, that never reach the model: addresses, keys, logging, metrics, names, templates, parsers."""
    return _table(engine).front


@cache
def _table(engine: str) -> _Table:
    return _Table(json.loads(path_of(engine).read_text()))


class _Table:
    """The file of an engine. Beside a value stand the releases that have it, `first..last first..last`; nothing: all that have
    the option."""

    def __init__(self, found: dict[str, Any]):
        self.options: dict[str, dict[str, dict[str, str]]] = found["options"]
        self.choices: dict[str, dict[str, dict[str, str]]] = found["choices"]
        self.front = frozenset[str](found["front"])
        self.order = {name: at for at, name in enumerate(found["releases"])}
        self._spans = dict[str, list[range]]()

    def has(self, name: str, at: int | None) -> bool:
        return at is None or self._within(self.options[name]["names"][""], at)

    def option(self, name: str, at: int | None) -> Option:
        if at is None:
            span = self._read(self.options[name]["names"][""])
            at = span[-1][-1] if span else len(self.order) - 1
            names = tuple(filter(None, self.options[name]["names"]))
        else:
            names = tuple(filter(None, self.values(name, "names", at)))
        return Option(name, names, (*self.values(name, "takes", at), VALUE)[0])

    def default(self, name: str, at: int) -> Any:
        return json.loads((*self.values(name, "default", at), "null")[0])

    def values(self, name: str, kind: str, at: int) -> tuple[str, ...]:
        return tuple(value for value, span in self.options[name].get(kind, {}).items() if self._within(span, at))

    def read_by(self, choice: str, release: str) -> frozenset[str]:
        rows, at = self.choices.get(choice, {}), self.order.get(release)
        return frozenset(
            name for name, spans in rows.items() if at is None or any(self._within(span, at) for span in spans.values())
        )

    def _within(self, span: str, at: int) -> bool:
        return not span or any(at in run for run in self._read(span))

    def _read(self, span: str) -> list[range]:
        if span not in self._spans:
            ends = [run.partition("..") for run in span.split()]
            self._spans[span] = [range(self.order[first], self.order[last] + 1) for first, _, last in ends]
        return self._spans[span]


#: Variables that decide a verdict
VARIABLES = {
    "sglang": (
        "SGLANG_DEEPEP_V2_FORCE_MAX_LEN",
        "SGLANG_DISABLE_CONSECUTIVE_PREFILL_OVERLAP",
        "SGLANG_DISABLE_DRAFT_EXTEND_CUDA_GRAPH",
        "SGLANG_DISAGGREGATION_NUM_PRE_ALLOCATE_REQS",
        "SGLANG_ENABLE_OVERLAP_PLAN_STREAM",
        "SGLANG_ENABLE_SPEC_V2",
        "SGLANG_ENABLE_UNIFIED_RADIX_TREE",
        "SGLANG_EXPERIMENTAL_CPP_RADIX_TREE",
        "SGLANG_FLASHINFER_PREFILL_SPLIT_TILE_SIZE",
        "SGLANG_FLASHINFER_USE_PAGED",
        "SGLANG_HACK_FLASHMLA_BACKEND",
        "SGLANG_MAMBA_CONV_DTYPE",
        "SGLANG_TRITON_PREFILL_TRUNCATION_ALIGN_SIZE",
    ),
    "vllm": (
        "VLLM_ATTENTION_BACKEND",
        "VLLM_MLA_DISABLE",
        "VLLM_USE_V1",
        "VLLM_USE_V2_MODEL_RUNNER",
        "VLLM_USE_CUDNN_PREFILL",
        "VLLM_USE_TRTLLM_RAGGED_DEEPSEEK_PREFILL",
        "VLLM_DISABLE_FLASHINFER_PREFILL",
        "VLLM_TEST_FORCE_FP8_MARLIN",
        "VLLM_BATCH_INVARIANT",
        "VLLM_FLASH_ATTN_VERSION",
        "VLLM_ROCM_USE_AITER",
        "VLLM_ROCM_USE_AITER_UNIFIED_ATTENTION",
        "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
        "VLLM_USE_SIMPLE_KV_OFFLOAD",
    ),
}
