"""What a check found."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any


class Status(enum.StrEnum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"
    """Works, and could be better."""
    PROBLEM = "problem"
    """A run will fail, or be many times slower than it could."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: `check` names what was looked at, `message` what was found, `remedy` what to do about it."""

    check: str
    status: Status
    message: str
    remedy: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"check": self.check, "status": self.status, "message": self.message, "remedy": self.remedy}


def ok(check: str, message: str) -> Finding:
    return Finding(check, Status.OK, message)


def note(check: str, message: str, remedy: str | None = None) -> Finding:
    return Finding(check, Status.NOTE, message, remedy)


def problem(check: str, message: str, remedy: str | None = None) -> Finding:
    return Finding(check, Status.PROBLEM, message, remedy)
