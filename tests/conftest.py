"""Fixtures that need a device, and the watch on the Vulkan validation layer.

`--device` chooses the device of the `vulkan` fixture: a software one (the default, so that results
do not depend on the machine), or what `kompute-llm run --device` takes. Under
KOMPUTE_LLM_VALIDATION=1 a test fails when the validation layer says anything while it runs.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kompute_llm.engine.device import Device

VALIDATION = os.environ.get("KOMPUTE_LLM_VALIDATION", "0") not in ("", "0")
MANIFEST = "vulkan/explicit_layer.d/VkLayer_khronos_validation.json"
LIBRARY = "libVkLayer_khronos_validation"
_loaded: list[bool] = []  # whether the layer was there while the device was open; it may unload


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="software", help="device of the Vulkan tests")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "vulkan: uses a Vulkan device (set by the fixture's use)")
    config.addinivalue_line("markers", "slow: takes more than 20 seconds")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    installed = any(Path(r, MANIFEST).is_file() for r in ("/usr/share", "/usr/local/share", "/etc"))
    for item in items:
        if "vulkan" in getattr(item, "fixturenames", ()):
            item.add_marker("vulkan")
        if VALIDATION and not installed:
            item.add_marker(pytest.mark.skip(reason="the Khronos validation layer is missing"))


@pytest.fixture(scope="session")
def vulkan(request: pytest.FixtureRequest) -> Iterator[Device]:
    """The device that every Vulkan test shares; skips without one."""
    from kompute_llm.engine.device import Device, choose, list_devices
    from kompute_llm.engine.errors import DeviceError

    which = request.config.getoption("--device")
    try:
        if which == "software":
            found = [d for d in list_devices() if d.type == "cpu" and not d.usable]
            if not found:
                pytest.skip("no software Vulkan device (Debian: mesa-vulkan-drivers)")
            device = Device.open(found[0])
        else:
            device = Device.open(choose(which))
    except DeviceError as error:
        pytest.skip(str(error))
    with device:
        _loaded.append(LIBRARY in Path("/proc/self/maps").read_text())
        yield device


def _messages() -> list[str]:
    """What the validation layer has said in this process since the last call."""
    layer = importlib.import_module("kompute_llm._layer")
    return [str(message) for message in layer.validation_messages()]


def _must_be_silent(when: str) -> None:
    if VALIDATION and (said := _messages()):
        pytest.fail(f"the validation layer said {when}:\n" + "\n".join(said), pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail the test that made the validation layer speak."""
    result = yield
    _must_be_silent("during the test")
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Messages after the last test count too; silence counts only if the layer was loaded."""
    if not VALIDATION or not session.testscollected:
        return
    ran = any(item.get_closest_marker("skip") is None for item in session.items)
    if ran and not any(_loaded):
        problem = "the Khronos layer was not loaded, so its silence means nothing"
    elif ran and (said := _messages()):
        problem = "messages outside of the tests:\n" + "\n".join(said)
    else:
        return
    print(f"\nvalidation: {problem}")
    session.exitstatus = pytest.ExitCode.TESTS_FAILED
