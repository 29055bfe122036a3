"""The errors of workers."""

from __future__ import annotations

from typing import Any


class ToolError(Exception):
    """The failure of a tool, with a code.

    A tool raises it to end its job with ``code``. ``Context.checkpoint`` and ``Context.call`` raise
    it with the code of the runtime's refusal. ``details`` is a JSON object.
    """

    def __init__(self, code: str, message: str, retryable: bool = False, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable
        self.details = details

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    def payload(self) -> dict[str, Any]:
        """Return the payload of ``tool.error``."""
        payload: dict[str, Any] = {"code": self.code, "message": self.message, "retryable": self.retryable}
        if self.details is not None:
            payload["details"] = self.details
        return payload

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> ToolError:
        """Return the error that a payload describes."""
        details = payload.get("details")
        details = details if isinstance(details, dict) else None
        code = str(payload.get("code", "UNKNOWN"))
        if details is not None:
            code = str(details.get("arcp_code") or details.get("code") or code)
        return cls(code, str(payload.get("message", "")), bool(payload.get("retryable")), details)


class WorkerError(Exception):
    """The runtime refuses the worker, and another attempt would be refused too.

    ``code`` is the code of the refusal, such as ``UNAUTHENTICATED``.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Cancelled(Exception):
    """The job was cancelled. The methods of :class:`SyncContext` raise it in the thread of the tool."""
