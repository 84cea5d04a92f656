"""Exceptions that a user can cause or meet. Their messages are complete sentences for a terminal.

The command line turns every `KomputeLLMError` into one line on stderr and an exit code; nothing
else in the package prints or exits.
"""

from __future__ import annotations

from pathlib import Path


class KomputeLLMError(Exception):
    """Base of all expected errors. Exit code 1."""

    exit_code = 1


class UsageError(KomputeLLMError):
    """An option or argument has a value that cannot be used, whatever files hold. Exit code 2."""

    exit_code = 2


class FileError(KomputeLLMError):
    """A file that was named (a prompt, configuration, result, reference) is not there, cannot be
    read or written, or holds what cannot be used."""


class ModelError(KomputeLLMError):
    """A model file cannot be used: what is wrong, where, expected and actual.

    `path` is the file; `where` names the key or tensor ("tensor 'blk.0.attn_q.weight'").
    """

    def __init__(self, path: str | Path, problem: str, where: str = "") -> None:
        self.path, self.where, self.problem = str(path), where, problem
        super().__init__(f"{path}: {where}: {problem}" if where else f"{path}: {problem}")


class TokenizerError(KomputeLLMError):
    """The tokenizer or chat template of a model cannot be built or used."""


class ContextError(KomputeLLMError):
    """A prompt does not fit into the context; the message holds both numbers."""


class DeviceError(KomputeLLMError):
    """The Vulkan device failed: lost, out of memory, no such device, pipeline refused."""


class NumericError(KomputeLLMError):
    """Every logit is NaN or infinite: generation cannot go on."""
