"""GPUs that a training is planned for: peak speed from their vendors' data sheets, and memory."""

import re
from typing import NamedTuple

from fairseq_xl.errors import UserError, quoted

SHARE = 0.3  # of the peak that a training reaches, by default


class GPU(NamedTuple):
    """A GPU: peak TFLOP/s of dense products, and memory in GiB as torch reports it, rounded down."""

    half: float  # of 16-bit values
    single: float  # of FP32 values, without TF32
    memory: float
    bf16: bool = True  # has tensor cores for bf16


GPUS = {
    "T4": GPU(65, 8.1, 14.5, bf16=False),
    "V100": GPU(125, 15.7, 31.7, bf16=False),
    "TPUv3": GPU(123, 123, 32),  # a chip: two cores of 16 GiB; it multiplies FP32 values in bf16
    "RTX4090": GPU(165, 82.6, 23.5),
    "L4": GPU(121, 30.3, 22),
    "A100": GPU(312, 19.5, 79.1),
    "H100": GPU(989, 67, 79.1),
    "H200": GPU(989, 67, 139.7),
    "MI300X": GPU(1307, 163.4, 191.5),
}


def gpu_named(name: str) -> GPU:
    """The GPU of a name; raises `UserError` for another one."""
    if name not in GPUS:
        raise UserError(f"there is no GPU {quoted(name)}: expected one of {', '.join(GPUS)}")
    return GPUS[name]


def count_and_name(gpus: str) -> tuple[int, str]:
    """64 and V100 of ``64 V100``; raises `UserError` for other words."""
    count, _, name = gpus.partition(" ")
    if not re.fullmatch(r"[1-9]\d{0,5}", count):
        raise UserError(f"{quoted(gpus)}: expected a number and a GPU, such as 64 V100")
    gpu_named(name)
    return int(count), name


def hours(flops: float, count: int, name: str, precision: str, share: float) -> float:
    """Hours of `flops` at a share of the peak speed of some GPUs; bf16 without tensor cores is as fast as FP32."""
    gpu = gpu_named(name)
    in_fp32 = precision == "fp32" or (precision.endswith("bf16") and not gpu.bf16)
    return flops / (count * (gpu.single if in_fp32 else gpu.half) * 1e12 * share) / 3600
