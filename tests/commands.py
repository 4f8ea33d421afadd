"""A command line under test: what it answers, and how it refuses."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class CommandLine:
    """A command line, its commands and its name."""

    main: Callable[[list[str]], int]
    commands: Mapping[str, type]
    name: str

    def refused(self, capsys: pytest.CaptureFixture[str], *argv: str | Path) -> str:
        """The error of a command that must be refused: one paragraph on stderr, nothing else, no file."""
        before = sorted(Path.cwd().rglob("*"))
        capsys.readouterr()
        assert self.main([str(part) for part in argv]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        message = printed.err.splitlines()[-1]
        assert message.startswith(f"{self.name}: ")
        assert "Traceback" not in printed.err
        assert sorted(Path.cwd().rglob("*")) == before
        return message

    def answered(self, capsys: pytest.CaptureFixture[str], *argv: str | Path) -> dict[str, Any]:
        """What a command answers with --json; stdout holds nothing else."""
        capsys.readouterr()
        assert self.main([*(str(part) for part in argv), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    def misspelt(self, capsys: pytest.CaptureFixture[str], *argv: str) -> str:
        """What is said about a word that is no command and no option."""
        with pytest.raises(SystemExit, match=r"^2$"):
            self.main(list(argv))
        return capsys.readouterr().err

    def explained(self, capsys: pytest.CaptureFixture[str], *argv: str) -> str:
        """The help."""
        with pytest.raises(SystemExit, match=r"^0$"):
            self.main(list(argv))
        return capsys.readouterr().out

    def assert_explained(self, capsys: pytest.CaptureFixture[str], name: str, *positional: str) -> str:
        """The help of a command, which tells what it does and names every option."""
        text = self.explained(capsys, name, "--help")
        words = " ".join(text.replace("│", " ").split())
        for option in dataclasses.fields(self.commands[name]):
            flag = f"--{option.name.replace('_', '-')}"
            known = {flag, flag.replace("--", "--no-"), option.name.upper(), *positional}
            assert option.name == "command" or any(spelling in text for spelling in known), option.name
        source = self.commands[name].__doc__
        assert source is not None
        assert source in words
        return words
