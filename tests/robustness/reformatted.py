"""The same code written otherwise: what a gate that reads code, and no text, must still recognise."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Callable, Iterator


def _unparsed(source: str) -> bytes:
    """No comments, other quotes, one statement a line."""
    return ast.unparse(ast.parse(source)).encode()


def _tabs(source: str) -> bytes:
    """Indented by tabs. What `unparse` writes has no line that begins inside a string but in docstrings."""
    lines = ast.unparse(ast.parse(source)).split("\n")
    return "\n".join("\t" * ((len(line) - len(line.lstrip(" "))) // 4) + line.lstrip(" ") for line in lines).encode()


def _other_docstrings(source: str) -> bytes:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)):
            documented = ast.get_docstring(node, clean=False) is not None
            node.body[: int(documented)] = [ast.Expr(ast.Constant("Other words."))]
    return ast.unparse(ast.fix_missing_locations(tree)).encode()


def _comments(source: str) -> bytes:
    """A comment of its own before each statement's line, and one behind it."""
    return _at_line_ends(source, lambda line: line + "  # looked at", before="# here\n")


def _trailing_blanks(source: str) -> bytes:
    return _at_line_ends(source, lambda line: line + " \t ")


def _at_line_ends(source: str, change: Callable[[str], str], before: str = "") -> bytes:
    """Change every line that ends a statement: never one inside a string, or one that goes on."""
    lines = source.split("\n")
    ends = {token.start[0] for token in _tokens(source) if token.type == tokenize.NEWLINE}
    starts = {node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)}
    return "\n".join(
        (before if number in starts else "") + (change(line) if number in ends else line)
        for number, line in enumerate(lines, 1)
    ).encode()


def _split_lines(source: str) -> bytes:
    """A line break behind every comma in brackets."""
    lines, depth = source.split("\n"), 0
    breaks: list[tuple[int, int]] = []
    for token in _tokens(source):
        if token.type == tokenize.OP:
            depth += (token.string in "([{") - (token.string in ")]}")
            if token.string == "," and depth:
                breaks.append(token.end)
    for row, column in reversed(breaks):
        lines[row - 1] = f"{lines[row - 1][:column]}\n{lines[row - 1][column:]}"
    return "\n".join(lines).encode()


def _tokens(source: str) -> Iterator[tokenize.TokenInfo]:
    return tokenize.generate_tokens(io.StringIO(source).readline)


#: name -> what becomes of a file's text
REFORMATTED: dict[str, Callable[[str], bytes]] = {
    "unparsed": _unparsed,
    "indented by tabs": _tabs,
    "split at commas": _split_lines,
    "comments": _comments,
    "other docstrings": _other_docstrings,
    "trailing blanks": _trailing_blanks,
    "CRLF": lambda source: source.replace("\n", "\r\n").encode(),
    "CR": lambda source: source.replace("\n", "\r").encode(),
    "byte order mark": lambda source: b"\xef\xbb\xbf" + source.encode(),
    "no newline at the end": lambda source: source.rstrip("\n").encode(),
}
