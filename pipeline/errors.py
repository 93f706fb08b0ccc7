"""The error tree.

::

    SourcemillError              carries a stable `code` that callers and operators can rely on
    ├── TransientError           the same call may work later; `retry_after_s` when the other side said so
    │   └── StoreUnavailableError    a store, broker or provider can't be reached now
    └── PermanentError           trying again changes nothing
        ├── InvalidInputError    the caller's request is wrong; the message says what to do
        ├── NotFoundError        no such thing for this tenant
        ├── ConflictError        the name or state is taken
        ├── UnauthorizedError    no key, or a wrong one
        ├── TooLargeError        over a limit; the message names the limit
        ├── DocumentError        this document can't be read (`password_protected`, `broken_pdf`, …)
        ├── ParserCrashError     the parser process died or ran over its limits on these pages
        ├── CancelledStepError   the step was cancelled or another worker owns it now
        ├── StaleEpochError      a newer attempt writes this message's stream
        └── ConfigurationError   the settings can't work; the message names the setting
"""

from __future__ import annotations


class SourcemillError(Exception):
    """Base of every error that we raise on purpose."""

    default_code = "internal_error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code


class TransientError(SourcemillError):
    default_code = "temporarily_unavailable"

    def __init__(self, message: str, *, code: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message, code=code)
        self.retry_after_s = retry_after_s


class StoreUnavailableError(TransientError):
    default_code = "store_unavailable"


class PermanentError(SourcemillError):
    default_code = "failed"


class InvalidInputError(PermanentError):
    default_code = "invalid_request"


class NotFoundError(PermanentError):
    default_code = "not_found"


class ConflictError(PermanentError):
    default_code = "conflict"


class UnauthorizedError(PermanentError):
    default_code = "unauthorized"


class TooLargeError(PermanentError):
    default_code = "too_large"


class DocumentError(PermanentError):
    default_code = "unreadable_document"


class ParserCrashError(PermanentError):
    default_code = "parser_crashed"


class CancelledStepError(PermanentError):
    default_code = "cancelled"


class StaleEpochError(PermanentError):
    default_code = "stale_epoch"


class ConfigurationError(PermanentError):
    default_code = "configuration"
