"""Tables of GPU runs, for docs/seen-on-a-gpu.md and docs/evidence/README.md, from docs/evidence/runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from packaging.version import Version

from attnfix.cli.listing import span
from scripts.evidence import archive, summaries
from scripts.evidence.summaries import KINDS, PROBE, short_gpu

_TITLES = {
    "order": "`vllm.mla-context-order`: a long prompt beside a fresh one, against alone",
    "empty": "`vllm.empty-context-chunks`, `vllm.lse-log-base`: seven contexts in one step, against another backend",
    "dcp": "`vllm.dcp-empty-shard`: short prompts where two ranks share the KV, against two that share heads alone",
    "dcp-graphs": "the same, decoded in CUDA graphs",
    "dcp-pages": "`vllm.dcp-page-counts`, `vllm.lse-log-base`: a Llama through FlashInfer where two ranks share the KV",
    "padded": "`vllm.padded-v-merge`: seven contexts in one step through FlashAttention 2, against 3",
    "dcp-spec": "`vllm.dcp-spec-graph`: two ranks that share the KV, n-gram speculation and CUDA graphs, against two without",
    "dcp-split": "`vllm.dcp-fa2-split`: rests of prompts beside new ones, FlashAttention 2, two ranks that share the KV",
    "pooling": "`vllm.pooling-chunk-race`: embeddings of prompts of up to six chunks, a Llama, against one chunk",
    "uniform-decode": "`vllm.gdn-uniform-decode`: prompts as short as a verification, a Qwen3-Next with MTP, against no graphs",
    "prefix-cache": "`vllm.mamba-prefix-cache`: conversations of a Qwen3-Next with MTP, earlier turns cached",
    "prefix-cache-mamba2": "the same of a NemotronH with MTP",
    "mamba-checkpoint": "`vllm.mamba-stale-checkpoint`: a NemotronH with one draft, chunks of two blocks, against one chunk",
    "one-token": "`vllm.padded-one-token-prompt`: prompts of one token beside answers, a Qwen3-Next with MTP, against alone",
    "one-token-mamba2": "the same of a NemotronH with MTP",
    "q-scale": "`vllm.flashinfer-q-scale`: a Llama with scales of queries that stay bfloat16, against Triton's backend",
    "q-scale-mixed": "the same, where prefills have FP8 queries",
    "quantized": "`vllm.quantized-mla-context`: an AWQ model, cached prefix against none",
    "lse": "`sglang.lse-log-base`: cached prefix against none",
    "hybrid": "`sglang.hybrid-chunk-metadata`: prefill and decode by two backends, cached prefix against none",
    "encoder": "`sglang.encoder-prefix-cache`: embeddings of a BERT, texts that begin alike, against no cache and no chunks",
    "short-chunks": "`sglang.short-chunk-hang`: prompts beyond a chunk of a deterministic server, against a chunk of 8192",
    "beside-sglang": "a patched server beside a stock one at one store, HiCache's: a Llama with settings of YaRN",
    "beside-vllm": "the same at ExampleConnector's store",
    "windows": "`sglang.flashinfer-swa-prefill`, `sglang.flashinfer-soft-cap`: a Gemma 2 with a window, against float64",
    "fp8-prefix": "`sglang.flashinfer-fp8-prefix`: a calibrated FP8 KV cache, half of the prompt cached",
    "context-wall": "`sglang.fa3-context-limit`: requests with drafts up to the context length",
    "draft-lengths": "`sglang.mla-draft-lengths`: a DeepSeek-V2 that drafts for itself, accepted tokens of a step",
    "context-wall-kernel": "`sglang.fa3-context-limit`: FlashAttention 3 alone over the backend's page tables",
    "mamba2": "the `sglang.mamba…` fixes: conversations of a NemotronH, earlier turns cached",
    "page-grid": "`sglang.gdn-page-grid`: conversations of a Qwen3-Next, pages of 128 tokens, earlier turns cached",
    "page-grid-35": "the same of a Qwen3.5",
    "parallel-layers": "`sglang.mamba2-prefill-graph`: prompts of a Falcon-H1, against no prefill graph",
    "parallel-turns": "the same: conversations, earlier turns cached",
    "images": "`sglang.qwen35-mrope`: images in prompts of a tiny Qwen3.5, against transformers in float32",
    "verify": "`sglang.eagle-swa-verify`: n-gram speculation behind prompts longer than the window, against the Triton backend",
    "window-decode": "`sglang.triton-window-decode`: the tokens that a Gemma 2 generates beyond its window, against float64",
    "metrics": "HTTP server: `attnfix status` and the engine's metrics page",
    "no-harm mla-large": "DeepSeek-V2 of 2.6 billion weights",
    "no-harm dense-large": "Llama or Granite of 2.4 billion weights",
    "no-harm hybrid-large": "Qwen3-Next or, on sglang, NemotronH of about 2 billion weights",
    "no-harm images-large": "Qwen3.5 of about 2 billion weights, text alone",
    "no-harm mla": "DeepSeek-V2 of 4 layers, where the CPU takes the time",
    "no-harm dense": "Llama of 4 layers",
    "no-harm hybrid": "Qwen3-Next or NemotronH of 8 layers",
}
#: What cases begin with in which no fix has anything to do
_HARMLESS = "no-harm"


def runs() -> list[dict[str, Any]]:
    """All summaries. Not to be changed: each page of a fix asks again."""
    return _runs()


@cache
def _runs() -> list[dict[str, Any]]:
    return summaries.read()


def served() -> str:
    """One row for each case with a fix, in the order of the titles; figures of several releases stand in their order."""
    found: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    for name, case, run in _cases():
        if not name.startswith(_HARMLESS):
            found.setdefault(name, []).append((case, run))
    rows = []
    for name in sorted(found, key=list(_TITLES).index):
        title = _TITLES[name] + ("; one kernel emulated" if found[name][0][0].get("emulated") else "")
        each = [(*_where(run, case), case.get("stock", "-"), case["attnfix"], _failed(case)) for case, run in found[name]]
        rows.append((title, *("<br>".join(column) for column in zip(*each, strict=True))))
    return _table(("served", "engine", "GPU", "stock", "with attnfix", "checks that failed"), rows)


def harmless() -> str:
    """Servers in which no fix has anything to do."""
    found = [one for one in _cases() if one[0].startswith(_HARMLESS)]
    found.sort(key=lambda one: list(_TITLES).index(one[0]))
    rows = [
        (_TITLES[name], *_where(run, case), case.get("stock", "-"), case["attnfix"], _failed(case)) for name, case, run in found
    ]
    return _table(("model", "engine", "GPU", "stock", "with attnfix", "checks that failed"), rows)


def probes() -> str:
    """Verdicts of `attnfix probe` on servers, stock → patched; one row for each run."""
    rows = []
    for run in runs():
        found = {name.removeprefix(PROBE): case for name, case in run.get("cases", {}).items() if name.startswith(PROBE)}
        told = (f"`{name}`: {' → '.join(_sides(case))}" for name, case in found.items())
        if found:
            rows.append((*_where(run, {}), "; ".join(told)))
    return _table(("engine", "GPU", "said of each server"), rows)


def _sides(case: dict[str, Any]) -> list[str]:
    return [case[side] for side in ("stock", "attnfix") if side in case]


def releases() -> str:
    """One row for each release that served a model of each kind, the newest first."""
    header = ("release", "GPU", *KINDS, "fixes that stand", "corrected", "checks that failed")
    found = [run for run in runs() if "served" in run]
    return _table(header, (_released(run) for run in _newest_first(found)))


def _released(run: dict[str, Any]) -> tuple[str, ...]:
    of = run["served"]
    corrected = ", ".join(f"`{fix.partition('.')[2]}`" for fix in of["corrected"])
    kinds = (of.get(kind, "not asked") for kind in KINDS)
    return (*_where(run, {}, "runs"), *kinds, str(of["stands"]), corrected or "-", "; ".join(of["failed"]) or "none")


def firing() -> str:
    """One row for each fix that corrected in nearly every step, the newest release first."""
    header = ("fix", "engine", "GPU", "requests", "stock", "patched", "first token", "corrections", "checks that failed")
    rows = []
    for run in _newest_first(runs()):
        for fix, case in run.get("firing", {}).items():
            valid = "tokens" in case
            speed = f"{_times(case['tokens'])} the tokens/s" if valid else "no comparison"
            first = f"{_times(case['first'])} the time" if valid else "-"
            figures = (case.get("stock", "-"), speed, first, case.get("corrections", "-"), _failed(case))
            rows.append((f"`{fix}`", *_where(run, case), case["requests"], *figures))
    return _table(header, rows) if rows else "No row was measured yet."


def firing_of(fix: str) -> list[str]:
    """A sentence for each valid row of that fix, the newest release first."""
    return [
        f"{run['engine']} {run['release']} ({short_gpu(run['gpu'])}), {case['requests']}: {_times(case['tokens'])} "
        f"stock's tokens/s, {_times(case['first'])} its time to the first token"
        for run in _newest_first(runs())
        for name, case in run.get("firing", {}).items()
        if name == fix and "tokens" in case
    ]


def corrected(fix: str) -> str:
    """Where a served engine's own kernels ran behind a correction of this fix: releases and GPUs. Empty: nowhere."""
    seen = [run for run in runs() if fix in run.get("corrected", ())]
    found = sorted({run["release"] for run in seen}, key=Version)
    return f"{span(found)} ({', '.join(sorted({short_gpu(run['gpu']) for run in seen}))})" if seen else ""


def table() -> str:
    """Every run: its summary, the machine, versions, days and commit."""
    rows = []
    for run in runs():
        engine = f"{run['engine']} {run['release']}" if "engine" in run else ""
        what = "; ".join(part for part in (run.get("what", "engines that serve"), engine) if part)
        link = f"[{run['file'].removesuffix('.json')}](runs/{run['file']})"
        torch = f"{run['versions']['torch']}, Python {run['versions']['python']}"
        rows.append((link, run["gpu"], what, torch, run.get("dates", "-"), run["commit"]))
    return _table(("run", "GPU", "what ran", "torch", "days", "kept with"), rows)


def raw() -> str:
    """A sentence with the archive's size and hash."""
    size = archive.ARCHIVE.stat().st_size // 1000
    return f"[raw.tar.xz](raw.tar.xz): {len(archive.members())} records, {size} kB, sha256 `{archive.sha256()}`."


def _cases() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Each case but the probe's, with its run."""
    for run in runs():
        yield from ((name, case, run) for name, case in run.get("cases", {}).items() if not name.startswith(PROBE))


def _newest_first(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    served = [run for run in found if "release" in run]
    return sorted(served, key=lambda run: (run["engine"], Version(run["release"])), reverse=True)


def _where(run: dict[str, Any], case: dict[str, Any], folder: str = "evidence/runs") -> tuple[str, str]:
    shared = f", {case['on']}" if "on" in case else ""
    return f"[{run['engine']} {run['release']}]({folder}/{run['file']})", short_gpu(run["gpu"]) + shared


def _failed(case: dict[str, Any]) -> str:
    return "; ".join(case.get("failed", ())) or "none"


def _times(ratio: list[float]) -> str:
    middle, low, high = ratio
    return f"{middle:.3f} ({low:.3f}-{high:.3f}) times"


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, ("---",) * len(header), *rows))
