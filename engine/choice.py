"""Which executor runs a model: the one place that knows both.

A GPU is preferred; a software Vulkan device (lavapipe) is slower than the CPU executor, so it is
taken only when it is named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import ContextError, DeviceError
from .runner import Notify, Opened, Progress, RunnerConfig, unheard

if TYPE_CHECKING:
    from .container import Container
    from .device_info import DeviceInfo
    from .spec import ModelSpec

ANY_VULKAN = "vulkan"  # the best Vulkan device, a software one too


def open_runner(
    container: Container, spec: ModelSpec, config: RunnerConfig, progress: Progress,
    notify: Notify = unheard,
) -> Opened:  # fmt: skip
    """Load a model where `config.device` says; the notes say what was chosen and why.

    Raises UsageError for a device that is not there and for options that the model cannot
    follow, DeviceError for a device that fails, ContextError for a KV cache that its memory
    cannot hold.
    """
    spec = spec.with_expert_top_p(config.expert_top_p)
    which = (config.device or "").strip().casefold()
    if which == "cpu":
        return _open_cpu(container, spec, config, progress, notify)
    from .device_info import choose  # no Vulkan is touched when the CPU was asked for

    if which:
        info = choose(None if which == ANY_VULKAN else which)
        return _open_vulkan(container, spec, config, progress, info)
    gpu, why = find_gpu()
    if gpu is None:
        return _open_cpu(container, spec, config, progress, notify, f"{why}: using the CPU")
    return _open_vulkan(container, spec, config, progress, gpu)


def check_device(which: str | None) -> None:
    """Raise what open_runner would for the name of a device, before a model is loaded."""
    name = (which or "").strip().casefold()
    if name not in ("", "cpu"):
        from .device_info import choose

        choose(None if name == ANY_VULKAN else name)


def find_gpu() -> tuple[DeviceInfo | None, str]:
    """The best usable device that is not software, or None and the reason."""
    from .device_info import choose, list_devices

    try:
        infos = list_devices()
    except DeviceError as e:
        return None, f"no Vulkan ({str(e).rstrip('.')})"
    if not infos:
        return None, "no Vulkan device found"
    usable = [i for i in infos if not i.usable]
    if not usable:
        return None, "; ".join(f"{i.name} cannot be used ({i.usable})" for i in infos)
    best = choose(None, usable)
    if best.type == "cpu":
        return None, f"no GPU found, {best.name} is software (--device {best.index} takes it)"
    return best, ""


def _open_cpu(
    container: Container, spec: ModelSpec, config: RunnerConfig, progress: Progress,
    notify: Notify, *notes: str,
) -> Opened:  # fmt: skip
    from .cpu import CpuRunner

    check_context(spec, config, host_free(), "host memory")
    runner = CpuRunner(
        container, spec, config.n_ctx, cache_k=config.cache_k, cache_v=config.cache_v,
        math=config.math, batch=config.batch, threads=config.threads, progress=progress,
        notify=notify,
    )  # fmt: skip
    return Opened(runner, "CPU", notes)


def _open_vulkan(
    container: Container, spec: ModelSpec, config: RunnerConfig, progress: Progress,
    info: DeviceInfo,
) -> Opened:  # fmt: skip
    free = max((h.free for h in info.heaps if h.device_local), default=0)
    check_context(spec, config, free, f"memory of {info.name}")
    from .device import Device  # the only import of kp
    from .vulkan import VulkanRunner

    device = Device.open(info)
    try:
        runner = VulkanRunner(
            container, spec, device, config.n_ctx, cache_k=config.cache_k,
            cache_v=config.cache_v, batch=config.batch, math=config.math, progress=progress,
        )  # fmt: skip
    except BaseException:
        device.close()
        raise
    return Opened(runner, "Vulkan")


def cache_bytes(spec: ModelSpec, config: RunnerConfig) -> int:
    """Bytes of keys and values of the whole context."""
    n_ctx, batch = config.n_ctx, min(config.batch, config.n_ctx)
    kinds = config.cache_k.upper(), config.cache_v.upper()
    return sum(spec.kv_bytes(n_ctx, batch, kind) // 2 for kind in kinds)


def check_context(spec: ModelSpec, config: RunnerConfig, free: int | None, where: str) -> None:
    """Refuse a context whose caches (and rope table, float32 pairs) `free` bytes cannot hold."""
    ropes = sum(rope.dims for rope in spec.ropes)
    need = cache_bytes(spec, config) + config.n_ctx * ropes * 4
    if free is not None and need > free:
        raise ContextError(
            f"a context of {config.n_ctx} tokens needs {need / 2**30:.2f} GiB of {where}, "
            f"{free / 2**30:.2f} GiB are free: lower -c/--ctx"
        )


def host_free() -> int | None:
    """Bytes of host memory that can be allocated without swapping, where Linux tells."""
    try:
        with open("/proc/meminfo", encoding="ascii") as f:
            facts = dict(line.split(":", 1) for line in f)
        return int(facts["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
