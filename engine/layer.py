"""Puts the runtime layer (engine/layer.c) between Kompute and the Vulkan driver.

The loader reads the manifest and the environment when Kompute creates its instance, and at no
other time: so both exist only while that happens, and nothing is left behind.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import logging
import os
import struct
import tempfile
import threading
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .errors import DeviceError

NAME = "VK_LAYER_KOMPUTE_LLM_runtime"
VALIDATION = "VK_LAYER_KHRONOS_validation"
# 1.3.239 knows VK_LAYER_ENABLES, newer ones a variable per setting. The layer asks for
# synchronization validation through the instance as well; this adds what shaders access, and
# hazards between submits.
_CHECKS = {
    "VK_LAYER_ENABLES": "VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT"
    ":VALIDATION_CHECK_ENABLE_SYNCHRONIZATION_VALIDATION_QUEUE_SUBMIT",
    "VK_KHRONOS_VALIDATION_VALIDATE_SYNC": "true",
    "VK_KHRONOS_VALIDATION_SYNCVAL_SHADER_ACCESSES_HEURISTIC": "true",
    "VK_KHRONOS_VALIDATION_SYNCVAL_SUBMIT_TIME_VALIDATION": "true",
    "VK_LAYER_DUPLICATE_MESSAGE_LIMIT": "0",  # repeated messages count
}
_lock = threading.Lock()  # the environment belongs to the whole process


def extension() -> Any:
    """The module `kompute_llm._layer`. Raises DeviceError where it was not built."""
    try:
        from kompute_llm import _layer  # type: ignore[attr-defined]
    except ImportError as e:
        raise DeviceError(f"The runtime layer is missing, install kompute-llm again: {e}") from e
    return _layer


def validation_wanted() -> bool:
    """Whether KOMPUTE_LLM_VALIDATION=1 asks for the Khronos validation layer."""
    return os.environ.get("KOMPUTE_LLM_VALIDATION", "0") not in ("", "0")


def manifest(library: str) -> str:
    """The layer's description for the loader, as JSON text."""
    layer = {
        "name": NAME, "type": "GLOBAL", "library_path": library, "api_version": "1.3.239",
        "implementation_version": "1", "description": "Runtime layer of kompute-llm",
    }  # fmt: skip
    return json.dumps({"file_format_version": "1.1.2", "layer": layer})


def environment(current: Mapping[str, str], folder: str, validation: bool) -> dict[str, str]:
    """The variables that put the layer in folder `folder` on top of all others.

    Kompute enables the Khronos validation layer wherever the loader lists it. A VK_LAYER_PATH
    replaces the system's folders, so that layer is out of sight unless it is asked for.
    """

    def joined(*parts: str) -> str:
        return os.pathsep.join(p for p in parts if p)

    users = current.get("VK_INSTANCE_LAYERS", "")
    changes = {"VK_INSTANCE_LAYERS": joined(NAME, users)}
    if current.get("VK_LAYER_PATH"):
        changes["VK_LAYER_PATH"] = joined(folder, current["VK_LAYER_PATH"])
    elif validation or users:
        changes["VK_ADD_LAYER_PATH"] = joined(folder, current.get("VK_ADD_LAYER_PATH", ""))
    else:
        changes["VK_LAYER_PATH"] = folder
    if validation:
        changes.update({k: v for k, v in _CHECKS.items() if k not in current})
    elif VALIDATION not in users:
        disabled = current.get("VK_LOADER_LAYERS_DISABLE", "")
        changes["VK_LOADER_LAYERS_DISABLE"] = ",".join(x for x in (disabled, VALIDATION) if x)
    return changes


@functools.cache
def _report_at_exit() -> None:
    """Log what the validation layer said and nobody asked for; once per process."""
    module = extension()

    def report() -> None:
        for message in module.validation_messages():
            logging.getLogger("kompute_llm.validation").warning(message)

    atexit.register(report)


@contextlib.contextmanager
def active(validation: bool) -> Iterator[Any]:
    """Instances created meanwhile get the layer; yields the extension module."""
    module = extension()
    with _lock, tempfile.TemporaryDirectory(prefix="kompute-llm-") as folder:
        Path(folder, "layer.json").write_text(manifest(os.path.abspath(module.__file__)))
        changes = environment(os.environ, folder, validation)
        before = {k: os.environ.get(k) for k in changes}
        os.environ.update(changes)
        module.validation(validation)
        if validation:
            _report_at_exit()
        try:
            yield module
        finally:
            module.validation(False)
            for key, value in before.items():
                if value is None:
                    del os.environ[key]
                else:
                    os.environ[key] = value


class PipelineCache:
    """Compiled pipelines on disk: one file per device, driver and driver build."""

    def __init__(self, ids: tuple[int, int, int], driver: str, uuid: bytes) -> None:
        vendor_id, device_id, version = ids
        root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        # The UUID should tell builds of a driver apart; one of Mesa's is the same in all of them.
        build = f"{version:x}.{zlib.crc32(driver.encode()):08x}"
        name = f"pipelines-{vendor_id:04x}-{device_id:04x}-{build}-{uuid.hex()}.bin"
        self.path = Path(root, "kompute-llm", name)
        # VkPipelineCacheHeaderVersionOne: size, version 1, vendor, device, UUID of the driver.
        self._header = struct.pack("<4I", 32, 1, vendor_id, device_id) + uuid
        self._saved = b""

    def load(self) -> bytes:
        """The saved pipelines; empty when there are none or they belong to another driver."""
        try:
            data = self.path.read_bytes()
        except OSError:
            return b""
        if not data.startswith(self._header):
            return b""
        self._saved = data
        return data

    def save(self, data: bytes) -> None:
        """Replace the file in one step. A cache that cannot be written is no error."""
        if data == self._saved or not data.startswith(self._header):
            return
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self.path.parent, delete=False) as f:
                f.write(data)
            os.replace(f.name, self.path)
            self._saved = data
