"""The fault of sglang.mha-draft-extend-routing, put back into a release's source by an AST edit: read -> new sources."""

from __future__ import annotations

import ast
from collections.abc import Callable

_MODULE = "sglang.srt.layers.attention.trtllm_mha_backend"
EDITED = ("0.5.11", "0.5.12")
Edit = Callable[[Callable[[str], str]], dict[str, str]]


def _edit(change: Callable[[ast.If, list[ast.stmt]], None]) -> Edit:
    """An edit that hands the routing `if` and the statements it stands among to `change`."""

    def edit(read: Callable[[str], str]) -> dict[str, str]:
        tree = ast.parse(read(_MODULE))
        method = next(
            node
            for owner in tree.body
            if isinstance(owner, ast.ClassDef) and owner.name == "TRTLLMHAAttnBackend"
            for node in owner.body
            if isinstance(node, ast.FunctionDef) and node.name == "forward_extend"
        )
        routing = next(node for node in method.body if isinstance(node, ast.If) and "target_verify" in ast.unparse(node.test))
        change(routing, method.body)
        return {_MODULE: ast.unparse(ast.fix_missing_locations(tree))}

    return edit


def _test(text: str) -> Edit:
    def change(routing: ast.If, body: list[ast.stmt]) -> None:
        routing.test = ast.parse(text, mode="eval").body

    return _edit(change)


def _local(statement: str, text: str) -> Edit:
    def change(routing: ast.If, body: list[ast.stmt]) -> None:
        body[body.index(routing) : body.index(routing)] = ast.parse(statement).body
        routing.test = ast.parse(text, mode="eval").body

    return _edit(change)


def _nested(routing: ast.If, body: list[ast.stmt]) -> None:
    second = ast.parse(_V2, mode="eval").body
    routing.orelse = [ast.If(second, routing.body, routing.orelse)]


def _turned(routing: ast.If, body: list[ast.stmt]) -> None:
    routing.test = ast.parse(f"not ({_VERIFY} or {_V2})", mode="eval").body
    routing.body, routing.orelse = routing.orelse, routing.body


_BATCH_MODE = "forward_batch.forward_mode"
_VERIFY, _V2 = f"{_BATCH_MODE}.is_target_verify()", f"{_BATCH_MODE}.is_draft_extend_v2()"
_PAIR = "(ForwardMode.TARGET_VERIFY, ForwardMode.DRAFT_EXTEND_V2)"

EDITS: dict[str, Edit] = {
    "as upstream wrote it": _test(f"{_VERIFY} or {_V2}"),
    "order swapped": _test(f"{_V2} or {_VERIFY}"),
    "in a tuple": _test(f"{_BATCH_MODE} in {_PAIR}"),
    "compared": _test(f"{_BATCH_MODE} == ForwardMode.TARGET_VERIFY or {_BATCH_MODE} == ForwardMode.DRAFT_EXTEND_V2"),
    "through a local": _local(f"use_decode = {_VERIFY} or {_V2}", "use_decode"),
    "through the mode in a local": _local(f"mode = {_BATCH_MODE}", "mode.is_target_verify() or mode.is_draft_extend_v2()"),
    "nested if": _edit(_nested),
    "branches turned": _edit(_turned),
    "v1, too": _test(f"{_VERIFY} or {_BATCH_MODE}.is_draft_extend(include_v2=True)"),
    "behind a setting": _test(f"{_VERIFY} or (self.speculative_num_draft_tokens and {_V2})"),
}
#: Not the fault, or not in a spelling that is known: left alone.
UNRECOGNISED = frozenset({"branches turned", "v1, too", "behind a setting"})
