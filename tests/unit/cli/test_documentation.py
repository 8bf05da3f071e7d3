"""The address of the documentation, once the package has one."""

from __future__ import annotations

from email.message import Message

import pytest

from attnfix import cli
from attnfix.cli import output


@pytest.mark.parametrize("address", [None, "https://docs.example.org/attnfix"])
def test_help_and_explain_name_the_documentation_where_there_is_one(address, monkeypatch, capsys):
    told = Message()
    told["Project-URL"] = "Source, https://example.org/source"
    if address:
        told["Project-URL"] = f"Documentation, {address}"
    monkeypatch.setattr(output, "metadata", lambda name: told)
    assert output.documentation() == address
    for words in (["--help"], ["doctor", "--help"], ["explain", "vllm.mla-context-order"]):
        try:
            cli.main(words)
        except SystemExit as end:
            assert not end.code
        last = capsys.readouterr().out.strip().splitlines()[-1]
        assert last.lower() == f"documentation: {address}" if address else "documentation" not in last.lower()
