"""Which options the engine's own code reads where it chooses attention backend, model runner or graph mode.

By its syntax trees: a choice reads an option that makes the chosen value, or that stands in a test around it, and any in a
function whose name says that it chooses. In vLLM, fields of config classes are followed to their arguments.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Set
from pathlib import Path

_NONE = r"(?!)"
#: choice -> what is assigned where it is made; names of functions that make it
_VLLM = {
    "attention backend": (
        _NONE,
        r"get_attn_backend(_cls)?|get_valid_backends|select_attention_backend|_get_backend_priorit(y|ies)",
    ),
    "model runner": (_NONE, r"(?!_validate).*v2_model_runner.*"),
    "graph mode": (r"cudagraph_mode|enforce_eager", r"resolve_cudagraph_mode.*|_check_and_update_cudagraph_mode"),
}
_VLLM_FILES = (
    "config/*.py", "config.py", "platforms/cuda.py", "platforms/rocm.py", "platforms/interface.py", "attention/selector.py",
    "v1/attention/selector.py", "v1/worker/gpu_model_runner.py", "v1/worker/gpu/cudagraph_utils.py", "engine/arg_utils.py",
)  # fmt: skip
#: Attributes that are facts of their own, however they came about: config.json's, and the model runner
_OWN = {
    "use_v2_model_runner", "hf_config", "hf_text_config", "hf_image_processor_config", "model_arch_config", "architectures",
    "registry",
}  # fmt: skip


#: choice -> option, or `option.key` -> the functions that read it
Choices = dict[str, dict[str, list[str]]]


def choices(engine: str, root: Path, options: Mapping[str, str]) -> Choices:
    """Of the release at `root`; `options`: long name -> name in the file, of all that its parser takes."""
    named = {long.lstrip("-").replace("-", "_"): name for long, name in options.items()}
    found = of_vllm(root) if engine == "vllm" else of_sglang(root, named.keys())
    rows: Choices = {}
    for choice, fields in found.items():
        for field, where in fields.items():
            name, dot, key = field.partition(".")
            if name in named:
                rows.setdefault(choice, {})[named[name] + dot + key] = sorted(where)
    return rows


Found = dict[str, dict[str, set[str]]]


def of_vllm(root: Path) -> Found:
    """choice -> field of EngineArgs -> the functions that read it."""
    trees = {path: ast.parse(path.read_text()) for pattern in _VLLM_FILES for path in sorted(root.glob(pattern))}
    fields = _Fields(trees)
    found: Found = {}
    for path, tree in trees.items():
        for owner, function in _functions(tree):
            where = f"{path.relative_to(root)}:{'.'.join(filter(None, (owner, function.name)))}"
            for choice, (assigned, named) in _VLLM.items():
                whole = re.fullmatch(named, function.name)
                for node in [function] if whole else _makers(function, assigned):
                    for field in fields.read(node, owner):
                        found.setdefault(choice, {}).setdefault(field, set()).add(where)
    return found


#: choice -> fields of ServerArgs that it sets; names of functions that make it
_SGLANG = {
    "attention backend": (
        r"((prefill|decode)_)?attention_backend",
        r"_?get_default_attn_backend|_?get_default_attention_backend",
    ),
    "graph mode": (
        r"disable_cuda_graph|cuda_graph_backend_decode|disable_decode_cuda_graph|cuda_graph_config|decode\.backend",
        _NONE,
    ),
}
_SGLANG_FILES = "srt/server_args.py", "srt/arg_groups/*.py", "srt/arg_groups/*/*.py"
_ARGUMENTS = {"self", "server_args", "args", "view", "cfg", "resolved_view", "resolving_view"}


def of_sglang(root: Path, fields: Set[str]) -> Found:
    """choice -> field of ServerArgs -> the functions that read it; `fields` are all of them."""
    found: Found = {}
    for path in (path for pattern in _SGLANG_FILES for path in sorted(root.glob(pattern))):
        text = path.read_text()
        if not any(re.search(pattern, text) for patterns in _SGLANG.values() for pattern in patterns):
            continue
        for owner, function in _functions(ast.parse(text)):
            if function.name in ("from_cli_args", "add_cli_args"):
                continue
            where = f"{path.relative_to(root)}:{'.'.join(filter(None, (owner, function.name)))}"
            for choice, (assigned, named) in _SGLANG.items():
                whole = re.fullmatch(named, function.name)
                for node in [function] if whole else _makers(function, assigned):
                    for leaf in ast.walk(node):
                        if isinstance(leaf, ast.Attribute) and leaf.attr in fields and _base(leaf.value) in _ARGUMENTS:
                            found.setdefault(choice, {}).setdefault(leaf.attr, set()).add(where)
    return found


def _base(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        return _base(node.func)
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield "", node
        elif isinstance(node, ast.ClassDef):
            yield from ((node.name, item) for item in node.body if isinstance(item, ast.FunctionDef))


def _makers(node: ast.AST, assigned: str, tests: tuple[ast.AST, ...] = ()) -> Iterator[ast.AST]:
    """The values that such an attribute gets, also by an argument of its name, and the tests around them."""
    for child in ast.iter_child_nodes(node):
        around = tests
        if isinstance(node, (ast.If, ast.IfExp)) and child is not node.test:
            around = (*tests, node.test)
        if isinstance(child, (ast.Assign, ast.keyword)):
            names = [_name(target) for target in child.targets] if isinstance(child, ast.Assign) else [child.arg or ""]
            if any(re.fullmatch(assigned, name) for name in names) and not _of_prefill(child.value):
                yield from (child.value, *around)
        yield from _makers(child, assigned, around)
        if isinstance(child, ast.If) and isinstance(child.body[-1], ast.Return):
            tests = (*tests, child.test)  # what follows is under it, too


def _of_prefill(value: ast.AST) -> bool:
    """Whether a configuration of graphs is one of those of prefill alone."""
    text = ast.unparse(value)
    return "Phase.PREFILL" in text and "Phase.DECODE" not in text


def _name(target: ast.AST) -> str:
    """Of an attribute, with the phase before a `backend`; or of an item that has a text for its key."""
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        return str(target.slice.value)
    if not isinstance(target, ast.Attribute):
        return ""
    return f"{_base(target.value)}.backend" if target.attr == "backend" else target.attr


class _Fields:
    """Which field of EngineArgs makes an attribute of a config class."""

    def __init__(self, trees: Mapping[Path, ast.Module]):
        self.made: dict[tuple[str, str], set[str]] = {}
        self.classes: dict[str, dict[str, list[ast.AST]]] = {}
        self.declared: dict[str, set[str]] = {}
        for tree in trees.values():
            for node in ast.walk(tree):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.endswith("Config"):
                    for keyword in node.keywords:
                        fields = set(filter(None, map(_of_self, ast.walk(keyword.value))))
                        if keyword.arg and fields:
                            self.made.setdefault((_snake(node.func.id), keyword.arg), set()).update(fields)
                elif isinstance(node, ast.ClassDef) and node.name.endswith("Config"):
                    self.classes[_snake(node.name)] = _attributes(node)
                    self.declared[_snake(node.name)] = _declared(node)
                elif isinstance(node, ast.ClassDef) and node.name == "EngineArgs":
                    self.arguments = _declared(node)

    def read(self, node: ast.AST, owner: str) -> set[str]:
        seen: set[tuple[str, str]] = set()
        wanted = list(self._pairs(node, owner))
        while wanted:
            pair = wanted.pop()
            if pair in seen:
                continue
            seen.add(pair)
            if pair not in self.made and pair[1] not in _OWN:
                for maker in self.classes.get(pair[0], {}).get(pair[1], ()):
                    wanted += self._pairs(maker, pair[0])
        keys = {f"{config}.{key}" for config, key in seen if config in self.arguments and key in self.declared.get(config, ())}
        return keys | {field for pair in seen for field in self.made.get(pair, ()) if field in self.arguments}

    def _pairs(self, node: ast.AST, owner: str) -> Iterator[tuple[str, str]]:
        for leaf in ast.walk(node):
            if isinstance(leaf, ast.Attribute):
                name, attribute = _base(leaf.value), leaf.attr
            elif isinstance(leaf, ast.Call) and _base(leaf.func) == "getattr" and isinstance(leaf.args[1], ast.Constant):
                name, attribute = _base(leaf.args[0]), str(leaf.args[1].value)
            else:
                continue
            yield (_snake(owner) if name == "self" else name), attribute


def _attributes(node: ast.ClassDef) -> dict[str, list[ast.AST]]:
    """Name of an attribute -> what makes it: its method, or what methods assign to it."""
    found: dict[str, list[ast.AST]] = {}
    for item in node.body:
        if isinstance(item, ast.FunctionDef):
            found.setdefault(item.name, []).append(item)
            for leaf in ast.walk(item):
                if isinstance(leaf, ast.Assign):
                    for name in filter(None, map(_of_self, leaf.targets)):
                        found.setdefault(name, []).append(leaf.value)
    return found


def _declared(node: ast.ClassDef) -> set[str]:
    return {item.target.id for item in node.body if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)}


def _of_self(node: ast.AST) -> str:
    """The name of an attribute of self; empty: it is none."""
    mine = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return node.attr if mine and isinstance(node, ast.Attribute) else ""


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
