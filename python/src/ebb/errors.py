"""What goes wrong, as exceptions."""

from __future__ import annotations


class Error(Exception):
    """An error of the library.

    Attributes:
        code: what kind of error it is: "invalid argument", "T0 full", ...
        field: the option or argument that it is about; "": none.
    """

    def __init__(self, message: str, code: str = "", field: str = "") -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.code = code
        self.field = field


class InvalidArgument(Error, ValueError):
    """An option or an input is wrong; nothing was changed."""


class NotFound(Error):
    """A file or a name does not exist."""


class Unsupported(Error):
    """Well-formed, but nothing that this build can run."""


class Corrupt(Error):
    """A file does not hold what it should."""


class LimitReached(Error):
    """A context, a tier, memory or a disk is full; the same call succeeds once there is room."""


class IoError(Error, OSError):
    """The operating system refused a read or a write."""

    def __str__(self) -> str:
        return str(self.args[0])


class ScorerError(Error):
    """A policy in Python gave what is no answer, such as a number of another type."""


class ViewKept(Error):
    """A policy in Python kept a view of the engine's memory beyond the call that it was given to."""


class ViewExpired(Error):
    """What belongs to a step was read after the step was over."""


class SessionFailed(Error):
    """The session's policy raised an exception in an earlier step; the session takes no further step."""
