"""Edits that put the fault back into 0.5.13, and others that look like it: what the ledger is held against.

Each takes `read(module)`, the release's own source, and gives the new source of the modules that it changes.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import cast

from .fix import BACKEND

Read = Callable[[str], str]
Edit = Callable[[Read], "dict[str, str]"]

_TARGET, _DRAFT = "TRTLLMMLABackend", "TRTLLMMLAMultiStepDraftBackend"
_FLAG, _MASK, _BUFFERS = "needs_cpu_seq_lens", "cuda_graph_custom_mask", "get_verify_buffers_to_fill_after_draft"
_INFO, _OVERLAP = "sglang.srt.speculative.eagle_info_v2", "sglang.srt.managers.overlap_utils"
_WORKER = "sglang.srt.speculative.eagle_worker_v2"


def without_opt_out(tree: ast.Module, *, keep_attribute: bool = False) -> ast.Module:
    """The backends' module as it was before PR 26824. With `keep_attribute` the mask is still set to None at first."""
    drop(tree, lambda node: isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == _FLAG)
    drop(tree, lambda node: isinstance(node, ast.FunctionDef) and node.name == _BUFFERS)
    drop(tree, lambda node: isinstance(node, ast.If) and f"self.{_MASK} = " in ast.unparse(node))
    if not keep_attribute:
        drop(tree, lambda node: isinstance(node, ast.Assign) and ast.unparse(node) == f"self.{_MASK} = None")
    return tree


def drop(tree: ast.AST, wanted: Callable[[ast.stmt], bool]) -> None:
    """Take out every statement that is `wanted`. Raises LookupError if there is none."""
    found = 0
    for node in ast.walk(tree):
        for field in ("body", "orelse"):
            block = getattr(node, field, None)
            if isinstance(block, list):
                kept = [child for child in block if not wanted(child)]
                found += len(block) - len(kept)
                setattr(node, field, kept)
    if not found:
        raise LookupError("nothing to take out")


def function(tree: ast.AST, qualname: str) -> ast.FunctionDef:
    """The function at `qualname`."""
    node: ast.AST = tree
    for name in qualname.split("."):
        node = next(child for child in getattr(node, "body", ()) if getattr(child, "name", None) == name)
    return cast(ast.FunctionDef, node)


def prefixed(tree: ast.AST, qualname: str, statement: str) -> None:
    """Put a statement at the head of a function."""
    function(tree, qualname).body[:0] = ast.parse(statement).body


def _edit(*changes: Callable[[ast.Module], object]) -> Edit:
    def edit(read: Read) -> dict[str, str]:
        tree = ast.parse(read(BACKEND))
        for change in changes:
            change(tree)
        return {BACKEND: ast.unparse(ast.fix_missing_locations(tree))}

    return edit


def _elsewhere(module: str, change: Callable[[ast.Module], object]) -> Edit:
    """The fault in full in the backends, and a change in another module of the path."""

    def edit(read: Read) -> dict[str, str]:
        tree = ast.parse(read(module))
        change(tree)
        return {**_edit(without_opt_out)(read), module: ast.unparse(ast.fix_missing_locations(tree))}

    return edit


def _flags(tree: ast.Module, owners: Iterable[str]) -> Iterator[ast.AnnAssign]:
    for owner in tree.body:
        if isinstance(owner, ast.ClassDef) and owner.name in owners:
            yield from (node for node in owner.body if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == _FLAG)


def _without_flag(*owners: str) -> Callable[[ast.Module], None]:
    def change(tree: ast.Module) -> None:
        flags = list(_flags(tree, owners))
        drop(tree, lambda node: node in flags)

    return change


def _declined(tree: ast.Module) -> None:
    for flag in _flags(tree, (_TARGET, _DRAFT)):
        flag.value = ast.Constant(True)


def _declined_outright(tree: ast.Module) -> None:
    without_opt_out(tree)
    for owner in tree.body:
        if isinstance(owner, ast.ClassDef) and owner.name in (_TARGET, _DRAFT):
            owner.body[:0] = ast.parse(f"{_FLAG} = True").body


def _crashing(tree: ast.Module) -> None:
    """As for a day before PR 26738: no lengths of the draft's extension on the host, either."""
    drop(tree, lambda node: ast.unparse(node) == "forward_batch.extend_seq_lens_cpu = [num_draft_tokens] * bs")


def _asking_all(tree: ast.Module) -> None:
    """As before PR 26738, too: unset backends are asked."""
    body = function(tree, "decide_needs_cpu_seq_lens").body
    body[-1:] = ast.parse("def _():\n return any(b.needs_cpu_seq_lens for b in attn_backends)").body[0].body  # type: ignore[attr-defined]


def _reading(qualname: str, statement: str) -> Callable[[ast.Module], None]:
    return lambda tree: prefixed(tree, qualname, statement)


#: The fault itself, spelt in two ways
RECOGNISED: dict[str, Edit] = {
    "opt-out taken out": _edit(without_opt_out),
    "opt-out taken out, mask left at None": _edit(lambda tree: without_opt_out(tree, keep_attribute=True)),
}
#: Whoever wrote these may have meant something else: one that keeps half of the opt-out, or declines it, decided so
LOOKALIKES: dict[str, Edit] = {
    "only the target's flag taken out": _edit(_without_flag(_TARGET)),
    "only the draft's flag taken out": _edit(_without_flag(_DRAFT)),
    "flags alone taken out": _edit(_without_flag(_TARGET, _DRAFT)),
    "opt-out declined": _edit(_declined),
    "opt-out taken out and declined": _edit(_declined_outright),
    "opt-out declined after the class": _edit(
        without_opt_out, lambda tree: tree.body.extend(ast.parse(f"{_TARGET}.{_FLAG} = True").body)
    ),
    "replay reads seq_lens_cpu": _edit(
        without_opt_out, _reading(f"{_TARGET}.init_forward_metadata_out_graph", "longest = forward_batch.seq_lens_cpu.max()")
    ),
    "draft reads seq_lens_sum": _edit(
        without_opt_out, _reading(f"{_DRAFT}.init_forward_metadata_out_graph", "total = int(forward_batch.seq_lens_sum)")
    ),
    "a helper reads seq_lens_cpu": _edit(
        without_opt_out,
        lambda tree: tree.body.extend(ast.parse("def _longest(batch):\n    return max(batch.seq_lens_cpu)").body),
        _reading(f"{_TARGET}.init_forward_metadata", "longest = _longest(forward_batch)"),
    ),
    "before PR 26738: draft extend": _elsewhere(_INFO, _crashing),
    "before PR 26738: the decision": _elsewhere(_OVERLAP, _asking_all),
    "the tree is sized by the host": _elsewhere(
        _WORKER, _reading("EagleDraftWorker.draft", "total = int(batch.seq_lens_cpu.sum())")
    ),
}
