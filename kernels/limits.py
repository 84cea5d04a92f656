"""What a kernel may assume of a device: the limits and features that choose variants and grids.

Values come from the Vulkan device (engine/device.py fills them in); tests override them to stand
for smaller devices. Sizes are bytes unless the name says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Limits:
    """Device limits by their Vulkan meaning. The defaults are the minima of Vulkan 1.2."""

    workgroup_invocations: int = 128  # maxComputeWorkGroupInvocations
    workgroup_size: tuple[int, int, int] = (128, 128, 64)  # maxComputeWorkGroupSize
    grid: tuple[int, int, int] = (65535, 65535, 65535)  # maxComputeWorkGroupCount
    shared_bytes: int = 16384  # maxComputeSharedMemorySize
    storage_range: int = 1 << 27  # maxStorageBufferRange
    allocation: int = 1 << 30  # maxMemoryAllocationSize
    push_bytes: int = 128  # maxPushConstantsSize
    subgroup_size: int = 1  # subgroupSize, the size that pipelines get by default
    subgroup_min: int = 1  # minSubgroupSize
    subgroup_max: int = 1  # maxSubgroupSize
    subgroup_count: int = 0  # maxComputeWorkgroupSubgroups; 0 = no size control, no limit
    subgroup_arithmetic: bool = False  # arithmetic and shuffle operations in compute shaders
    full_subgroups: bool = False  # required size and full subgroups may be asked for
    float16: bool = False  # shaderFloat16
    storage16: bool = False  # storageBuffer16BitAccess
    int8: bool = False  # shaderInt8
    int_dot: bool = False  # shaderIntegerDotProduct, 4x8 packed signed accelerated
    coopmat: bool = False  # VK_KHR_cooperative_matrix with f16 factors, f32 sums, in subgroups
    coopmat_shape: tuple[int, int, int] = (16, 16, 16)  # M, N, K of one such matrix product
    software: bool = False  # runs on the CPU: lanes are SIMD elements, gathers are slow
    compute_units: int = 1  # how many workgroups keep the device busy; a hint, 1 = unknown

    def with_(self, **changes: object) -> Limits:
        """A copy with some limits overridden."""
        return replace(self, **changes)  # type: ignore[arg-type]

    @property
    def units(self) -> int:
        """Compute units to keep busy; a middling GPU's where the driver does not tell."""
        return self.compute_units if self.compute_units > 1 or self.software else 32

    @property
    def subgroups(self) -> bool:
        """Whether the subgroup builds (SG1) are safe: size known, subgroups full, operations."""
        return self.subgroup_arithmetic and self.full_subgroups and self.subgroup_size > 1

    @property
    def most(self) -> int:
        """The largest workgroup along x, also for pipelines that require a subgroup size."""
        whole = self.subgroup_size * self.subgroup_count if self.subgroups else 0
        return min(self.workgroup_invocations, self.workgroup_size[0], whole or 1 << 30)

    def workgroup(self, wanted: int, multiple: int = 1) -> int:
        """The largest power of two <= `wanted` that fits, never below `multiple`."""
        size = multiple
        while size * 2 <= min(wanted, self.most):
            size *= 2
        return size
