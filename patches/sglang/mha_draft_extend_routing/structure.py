"""Recognises the fault of sglang.mha-draft-extend-routing, which lived on main between two releases and got into none.

The routing test of `forward_extend` is computed for every mode. Where it holds for TARGET_VERIFY and DRAFT_EXTEND_V2 and for
nothing else, the one of the releases is put in its place; the class must then be that of a release, digest for digest. Those
releases have no metadata of DRAFT_EXTEND_V2 for the decode kernel. Any other code is not recognised.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from copy import deepcopy

from attnfix.compat.digest import digest

_MODULE = "sglang.srt.layers.attention.trtllm_mha_backend"
BACKEND = f"{_MODULE}:TRTLLMHAAttnBackend"
#: Digests of the class in the releases before and after the fault
HEALTHY = {
    "4fe33e8a940b25262d223317152a3dcf75bd3305a5160bf5b126b7220bff9ff8": "0.5.11",
    "54b54ae71fb53d60253487d2e1635a0f8ad14f305e92246dc091510ff9787d02": "0.5.12",
}
#: What else decides, with its digests in those releases: fields of the metadata, what the module calls ForwardMode, the modes,
#: how a variable is read
REST = {
    f"{_MODULE}:TRTLLMMHAMetadata": ("66809510d3271d8d2751846a754cb501cf90043adf712c9b751ce080f51ef4b9",),
    f"{_MODULE}:ForwardMode": ("119f54c2a52ca2a54394561ab73c23995bb5401a68984df52aea1bbda5c23632",),
    "sglang.srt.model_executor.forward_batch_info:ForwardMode": (
        "25afddaece9c0b3ed78e1adb67f7ed071715f44259de5511cbba593e1b6666f9",
        "95ee0adbaf6a0dcdb057aad9b8195e1cbfdb9d4475c094ebe2f46c0ca971545e",
    ),
    "sglang.srt.environ:EnvField": ("d694dad3c3da908c649d88211b4877e303c37b5b3931016154d5f4bfbc4c92a4",),
}

_RELEASED = "forward_batch.forward_mode.is_target_verify()"
_MODE = digest(ast.parse("forward_batch.forward_mode", mode="eval").body)
_FAULT = frozenset({"TARGET_VERIFY", "DRAFT_EXTEND_V2"})
_ASKED = {"is_target_verify": "TARGET_VERIFY", "is_draft_extend_v2": "DRAFT_EXTEND_V2"}
#: What a local holds: the mode itself (None), or whether it is one of these
_Names = dict[str, "frozenset[str] | None"]


def recognise(locate: Callable[[str], ast.AST | None]) -> str | None:
    """A short reason where the code that `locate` finds is the fault, in full; else None."""
    for place, known in REST.items():
        node = locate(place)
        if node is None or digest(node) not in known:
            return None
    repaired = _repaired(locate(BACKEND))
    release = HEALTHY.get(digest(repaired)) if repaired else None
    return f"the backend of {release}, but DRAFT_EXTEND_V2 goes to the decode kernel" if release else None


def _repaired(backend: ast.AST | None) -> ast.AST | None:
    """A copy of the class with the releases' routing test, and without the locals that led to another; None without one."""
    backend = deepcopy(backend)
    method = next((node for node in getattr(backend, "body", ()) if getattr(node, "name", None) == "forward_extend"), None)
    if not isinstance(backend, ast.ClassDef) or not isinstance(method, ast.FunctionDef):
        return None
    names: _Names = {}
    for statement in list(method.body):
        if isinstance(statement, ast.If) and _modes(_merged(statement).test, names) == _FAULT:
            routing = _merged(statement)
            routing.test = ast.parse(_RELEASED, mode="eval").body
            method.body[method.body.index(statement)] = routing
            left = {node.id for node in ast.walk(method) if isinstance(node, ast.Name)}
            return None if left & names.keys() else backend
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name not in names:
                if _is_mode(value, names):
                    names[name] = None
                elif modes := _modes(value, names):
                    names[name] = modes
                else:
                    continue
                method.body.remove(statement)
    return None


def _merged(branch: ast.If) -> ast.If:
    """`if a: x elif b: x else: y` as `if a or b: x else: y`."""
    match branch.orelse:
        case [ast.If(test=test, body=body, orelse=orelse)] if [*map(digest, body)] == [*map(digest, branch.body)]:
            return _merged(ast.If(ast.BoolOp(ast.Or(), [branch.test, test]), body, orelse))
    return branch


def _modes(test: ast.expr, names: _Names) -> frozenset[str] | None:
    """The modes for which an expression is true; None for one that asks, or may ask, for anything else."""
    match test:
        case ast.Name(id=name):
            return names.get(name)
        case ast.BoolOp(op=ast.Or(), values=values):
            parts = [_modes(value, names) for value in values]
            return None if None in parts else frozenset().union(*parts)  # type: ignore[arg-type]
        case ast.Call(func=ast.Attribute(value=of, attr=asked), args=[], keywords=[]) if _is_mode(of, names):
            return frozenset({_ASKED[asked]}) if asked in _ASKED else None
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[one]) if _is_mode(left, names):
            return _named([one])
        case ast.Compare(left=left, ops=[ast.In()], comparators=[ast.Tuple(elts=many)]) if _is_mode(left, names):
            return _named(many)
    return None


def _is_mode(node: ast.expr, names: _Names) -> bool:
    local = isinstance(node, ast.Name) and node.id in names and names[node.id] is None
    return local or digest(node) == _MODE


def _named(nodes: list[ast.expr]) -> frozenset[str] | None:
    found = set()
    for node in nodes:
        match node:
            case ast.Attribute(value=ast.Name(id="ForwardMode"), attr=name) if name in _FAULT:
                found.add(name)
            case _:
                return None
    return frozenset(found)
