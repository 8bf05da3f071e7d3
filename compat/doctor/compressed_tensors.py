"""Which scheme of compressed-tensors vLLM gives a layer: `ignore` and `targets` matched as 0.10.0 to 0.33.0 do it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

#: The class of kv_b_proj, which targets may name, too: any of them that its name contains, in any case
_CLASS = "ColumnParallelLinear"
_NAMES_READ = 20_000  # of `ignore`, or targets; models have some thousand


def names(text: Mapping[str, Any], projection: str, *prefixes: str) -> list[str]:
    """Names of a projection of attention in every layer, behind one of the prefixes that models have."""
    layers = min(int(text.get("num_hidden_layers") or 1), 1000)
    return [f"{prefix}layers.{layer}.self_attn.{projection}" for prefix in prefixes for layer in range(layers)]


def formats(quantization: Mapping[str, Any], layers: list[str]) -> set[str | None]:
    """The formats in which the layers are kept; None: a layer is left as it is. Raises ValueError for patterns that are not
    read."""
    ignored = _read(quantization.get("ignore"))
    targets = list(_targets(quantization))
    return {None if any(_is(name, word) for word in ignored) else _format(name, targets) for name in layers}


def _targets(quantization: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """(target, format) of each group, in the order in which they are tried."""
    common = quantization.get("format")
    for group in (quantization.get("config_groups") or {"": {}}).values():
        for target in _read(group.get("targets", ["Linear"])):
            yield target, group.get("format") or common or "a format that is not named"


def _format(name: str, targets: list[tuple[str, str | None]]) -> str | None:
    by_name = (kept for target, kept in targets if _is(name, target))
    by_class = (kept for target, kept in targets if _is_class(target))
    return next(by_name, None) or next(by_class, None)


def _is_class(target: str) -> bool:
    return _is(_CLASS, target) if target.startswith("re:") else target.lower() in _CLASS.lower()


def _is(name: str, word: str) -> bool:
    """A name is equal, or its beginning matches the regular expression behind `re:`."""
    if not word.startswith("re:"):
        return name == word
    pattern = word.removeprefix("re:")
    # A pattern of somebody else's may run for ever: groups that repeat, and many repetitions
    if len(pattern) > 500 or re.search(r"\)[*+{]", pattern) or len(re.findall(r"[*+]|\{", pattern)) > 4:
        raise ValueError(f"the pattern {pattern[:80]} is not read")
    try:
        return re.match(pattern, name) is not None
    except (re.error, RecursionError) as error:
        raise ValueError(f"the pattern {pattern[:80]} is none: {error}") from error


def _read(words: Any) -> list[str]:
    found = [str(word) for word in words or ()]
    if len(found) > _NAMES_READ:
        raise ValueError(f"{len(found)} names of layers are not read")
    return found
