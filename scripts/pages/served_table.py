"""The table of docs/seen-on-a-gpu.md, engines that served: what docs/evidence/e2e-*.json hold, made by the gpu_e2e scripts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any

EVIDENCE = Path(__file__).resolve().parents[2] / "docs/evidence"
_TITLES = {
    "order": "`vllm.mla-context-order`: a long prompt beside a fresh one, against alone",
    "empty": "`vllm.empty-context-chunks`, `vllm.lse-log-base`: seven contexts in one step, against another backend",
    "dcp": "`vllm.dcp-empty-shard`: short prompts where two ranks share the KV, against two that share heads alone",
    "dcp-graphs": "the same, decoded in CUDA graphs",
    "dcp-pages": "`vllm.dcp-page-counts`, `vllm.lse-log-base`: a Llama through FlashInfer where two ranks share the KV",
    "padded": "`vllm.padded-v-merge`: seven contexts in one step through FlashAttention 2, against 3",
    "dcp-spec": "`vllm.dcp-spec-graph`: two ranks that share the KV, n-gram speculation and CUDA graphs, against two without",
    "dcp-split": "`vllm.dcp-fa2-split`: rests of prompts beside new ones, FlashAttention 2, two ranks that share the KV",
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
    "windows": "`sglang.flashinfer-swa-prefill`, `sglang.flashinfer-soft-cap`: a Gemma 2 with a window, against float64",
    "fp8-prefix": "`sglang.flashinfer-fp8-prefix`: a calibrated FP8 KV cache, half of the prompt cached",
    "context-wall": "`sglang.fa3-context-limit`: requests with drafts up to the context length",
    "draft-lengths": "`sglang.mla-draft-lengths`: a DeepSeek-V2 that drafts for itself, accepted tokens of a step",
    "context-wall-kernel": "`sglang.fa3-context-limit`: FlashAttention 3 alone over the backend's page tables",
    "mamba2": "the `sglang.mamba…` fixes: conversations of a NemotronH, earlier turns cached",
    "verify": "`sglang.eagle-swa-verify`: n-gram speculation behind prompts longer than the window, against the Triton backend",
    "window-decode": "`sglang.triton-window-decode`: the tokens that a Gemma 2 generates beyond its window, against float64",
    "metrics": "HTTP server: `attnfix status` and the engine's metrics page",
    "no-harm mla-large": "no harm, DeepSeek-V2 of 2.6 billion weights: 200 requests where no fix has anything to do",
    "no-harm dense-large": "no harm, Llama or Granite of 2.4 billion weights: the same requests",
    "no-harm hybrid-large": "no harm, Qwen3-Next or, on sglang, NemotronH of about 2 billion weights: the same requests",
    "no-harm mla": "no harm, DeepSeek-V2 of 4 layers, where the CPU takes the time: the same requests",
    "no-harm dense": "no harm, Llama of 4 layers: the same requests",
    "no-harm hybrid": "no harm, Qwen3-Next or NemotronH of 8 layers: the same requests",
}


#: What cases of scripts/serve/gpu_probe.py, served.py and e2e_firing.py begin with. served_releases and firing_table show the
#: latter two
_PROBE, SERVED, FIRING = "probe ", "served ", "firing "


def table() -> str:
    """One row for each case, in the order of the files and of _TITLES."""
    header = ("served", "engine", "GPU", "stock", "with attnfix", "kernels", "checks that failed")
    rows = [header, ("---",) * len(header), *_rows()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def runs(folder: Path) -> list[dict[str, Any]]:
    """What each e2e-*.json there holds, and its name as "file". Not to be changed: each page of a fix asks again."""
    return [_read(path, path.stat().st_mtime_ns) for path in sorted(folder.glob("e2e-*.json"))]


@cache
def _read(path: Path, modified: int) -> dict[str, Any]:
    return json.loads(path.read_text()) | {"file": path.name}


def _rows() -> Iterator[tuple[str, ...]]:
    for found in runs(EVIDENCE):
        cases = {name: case for name, case in found["cases"].items() if not name.startswith((SERVED, FIRING))}
        for name, case in sorted(cases.items(), key=lambda entry: _place(entry[0])):
            engine = f"[{found['engine']} {found['release']}](evidence/{found['file']})"
            kernels = "one emulated, others real" if "emulated" in case else "real"
            failed = "; ".join(case["failures"]) or "none"
            yield (
                _title(name),
                engine,
                _gpus(found["gpu"], case),
                *_seen(name, case),
                kernels,
                failed,
            )


def _title(name: str) -> str:
    return _TITLES.get(name) or f"`attnfix probe` of a server, {name.removeprefix(_PROBE)}"


def _gpus(name: str, case: dict[str, Any]) -> str:
    """What a case ran on. Several ranks may have shared a GPU; a case that does not tell had one for each."""
    ranks = case.get("settings", {}).get("tensor_parallel_size", 1)
    gpus = case.get("gpus", ranks)
    return (f"{gpus} {name}" if gpus > 1 else name) + (f", {ranks} ranks on it" if ranks > gpus else "")


def _place(name: str) -> tuple[int, str]:
    """The probe comes last."""
    return (len(_TITLES) if name.startswith(_PROBE) else list(_TITLES).index(name), name)


def _seen(name: str, case: dict[str, Any]) -> tuple[str, str]:
    """What stock did, and what patched did."""
    kind = name.partition(" ")[0]
    if kind in _WHOLE:
        return _WHOLE[kind](case)
    sides, of = case["sides"], _BY_SIDE.get(kind, _difference)
    return of(sides["stock"]), of(sides["patched"])


def _of_no_harm(case: dict[str, Any]) -> tuple[str, str]:
    if "invalid" in case:  # what makes it so is among the checks that failed
        return "-", "no comparison"
    speed, cpu = case["ratio"]["tokens_per_s"], case["ratio"]["cpu_s"]
    others = {name.split()[1] for name, rounds in case["rounds_with_other_tokens"].items() if rounds}
    tokens = {0: "the same tokens", 1: "other tokens"}.get(len(others), "other tokens, stock too")
    return f"{case['tokens_per_s']['stock']:.0f} tokens/s", f"{tokens}, {_times(speed)} tokens/s, {_times(cpu)} CPU seconds"


def _of_page(case: dict[str, Any]) -> tuple[str, str]:
    counted = sum(value for name, value in case["page"]["after"].items() if name.startswith("attnfix_corrections_total"))
    return "-", f"{len(case['processes'])} processes with records, {counted:.0f} corrections on the page"


def _of_probes(case: dict[str, Any]) -> tuple[str, str]:
    return _of_probe(case["sides"].get("stock")), _of_probe(case["sides"].get("patched"))


def _of_windows(case: dict[str, Any], name: str = "Triton", beside: str = "triton") -> tuple[str, str]:
    sides = case["sides"]
    speed = f", {_times(case['speed']['tokens per second'])} prefill tokens/s" if "speed" in case else ""
    return _distance(sides["stock"]), f"{_distance(sides['patched'])} ({name} {_distance(sides[beside])}){speed}"


def _of_verification(case: dict[str, Any]) -> tuple[str, str]:
    """Greedy tokens as the reference has them before the first other one, on average."""
    told = {}
    for name, side in case["sides"].items():
        told[name] = f"{fmean(side['equal tokens']):.1f} of {case['new']} tokens"
    return told["stock"], f"{told['patched']} (without speculation {told['without speculation']})"


def _of_decode(case: dict[str, Any]) -> tuple[str, str]:
    """The distance of the steps of an answer from what is right, of the answer that came out furthest."""
    worst = {name: max(one["decode"] for one in side["each"]) for name, side in case["sides"].items()}
    return f"{worst['stock']:.2g}", f"{worst['patched']:.2g} (fa3 {worst['fa3']:.2g})"


def _of_drafts(case: dict[str, Any]) -> tuple[str, str]:
    """Accepted tokens of a step behind short prompts, on each backend, and on the one that has not the bug."""
    told: dict[str, list[str]] = {"stock": [], "patched": []}
    for name, one in case["sides"].items():
        side, _, kind = name.partition(", ")
        if side in told:
            each = one.get("accepted", {}).get("short")
            told[side].append(f"{kind} {fmean(each):.2f}" if each else f"{kind} not served: {one['said'] or one['ended']}")
    right = fmean(case["sides"]["fa3"]["accepted"]["short"])
    return "; ".join(told["stock"]), f"{'; '.join(told['patched'])} (fa3 {right:.2f} of {case['drafts']})"


def _of_kernel(case: dict[str, Any]) -> tuple[str, str]:
    """What lies behind a page table: other slots, and no slots."""

    def told(side: str) -> str:
        both = (case["sides"][f"{side}, {words}"] for words in ("slots", "none"))
        return "; ".join(one["error"] if "error" in one else f"{one['scenario']['error']:.2g}" for one in both)

    return told("stock"), told("patched")


def _distance(side: dict[str, Any]) -> str:
    """Root mean square of a log-probability's difference from what is right, of the prompt that came out furthest from it."""
    return f"{max(one[how] for one in side['each'] for how in ('cold', 'cached')):.2g}"


def _of_probe(side: dict[str, Any] | None) -> str:
    """Each verdict, how often it was said, and how far this server's answers move by themselves."""
    if side is None:
        return "-"
    if not side["runs"]:
        return f"the server did not start: {side['error']}"
    said = Counter(run.get("verdict") or "no verdict" for run in side["runs"])
    floors = [run["floor"] for run in side["runs"] if "floor" in run]
    told = ", ".join(f"{verdict} {count} of {len(side['runs'])}" for verdict, count in said.items())
    return f"{told} (floor {max(floors):.2g})" if floors else told


def _of_turns(side: dict[str, Any]) -> str:
    """Turns that found an earlier one in the cache: how many were answered wrongly, and the largest difference."""
    return f"{side['red']} of {side['hits']} turns wrong, at most {side['worst']:.2g} (none cached: {side['floor']:.2g})"


def _of_parts(side: dict[str, Any]) -> str:
    """`_distance` of prefills and of decodes."""
    worst = {how: max(one[how] for one in side["each"]) for how in ("prefill", "decode")}
    return ", ".join(f"{how} {distance:.2g}" for how, distance in worst.items())


def _times(ratio: dict[str, float]) -> str:
    return f"{ratio['ratio']:.3f} ({ratio['low']:.3f}-{ratio['high']:.3f}) times the"


def _difference(side: dict[str, Any]) -> str:
    """The largest difference of a log-probability among the top 20, over everything that was compared. What was not finite is
    null in the file."""
    if "ended" in side:
        return f"the engine ended: {side['said'] or side['ended']}".split(". ")[0]
    seen = side["compared"].values()
    differences = [one["difference"] for one in seen]
    largest = "not finite" if None in differences else f"{max(differences):.2g}"
    return f"{largest}, {min(one['in_common'] for one in seen)} of the top 20"


#: By the first word of a case's name: what is told of the whole case, or of each side; of others, the largest difference
_WHOLE: dict[str, Callable[[dict[str, Any]], tuple[str, str]]] = {
    "no-harm": _of_no_harm, "metrics": _of_page, "probe": _of_probes, "context-wall-kernel": _of_kernel, "windows": _of_windows,
    "fp8-prefix": partial(_of_windows, name="paged-only mode", beside="stock, paged"), "verify": _of_verification,
    "window-decode": _of_decode, "draft-lengths": _of_drafts,
}  # fmt: skip
_BY_SIDE = {
    **dict.fromkeys(("prefix-cache", "prefix-cache-mamba2", "mamba2"), _of_turns),
    **dict.fromkeys(("q-scale", "q-scale-mixed"), _of_parts),
}
