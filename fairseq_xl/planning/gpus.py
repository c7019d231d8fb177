"""GPUs that a training is planned for: peak speed and memory from their vendors' data sheets."""

import re
from typing import NamedTuple

from fairseq_xl.errors import UserError, quoted

SHARE = 0.3  # of the peak that a training reaches, by default


class GPU(NamedTuple):
    """A GPU: peak TFLOP/s of dense products of 16-bit values and of FP32 values (without TF32), and memory in GB."""

    half: float
    single: float
    memory: int


GPUS = {
    "T4": GPU(65, 8.1, 16),
    "V100": GPU(125, 15.7, 32),
    "TPUv3": GPU(123, 123, 32),  # a chip; it multiplies FP32 values in bfloat16
    "RTX4090": GPU(165, 82.6, 24),
    "L4": GPU(121, 30.3, 24),
    "A100": GPU(312, 19.5, 80),
    "H100": GPU(989, 67, 80),
    "H200": GPU(989, 67, 141),
    "MI300X": GPU(1307, 163.4, 192),
}


def gpu_named(name: str) -> GPU:
    """The GPU of a name; raises `UserError` for another one."""
    if name not in GPUS:
        raise UserError(f"there is no GPU {quoted(name)}: expected one of {', '.join(GPUS)}")
    return GPUS[name]


def hours(flops: float, gpus: str, precision: str, share: float) -> float:
    """Hours of `flops` at a share of the peak speed of ``64 V100``; raises `UserError` for other words."""
    count, _, name = gpus.partition(" ")
    if not re.fullmatch(r"[1-9]\d{0,5}", count):
        raise UserError(f"{quoted(gpus)}: expected a number and a GPU, such as 64 V100")
    gpu = gpu_named(name.partition(" ")[0])
    peak = gpu.single if precision == "fp32" else gpu.half
    return flops / (int(count) * peak * 1e12 * share) / 3600
