"""Writes the results of `measure` as a picture, and the profile as a table."""

import logging
from pathlib import Path

NAMES = {"fairseq_xl": "fairseq_xl", "fairseq": "fairseq masked_lm", "transformers": "transformers XLM-R"}


def write_profile(found: dict, output: Path) -> None:
    """Writes the milliseconds of one step by kind of operation and system, and each system's slowest operators."""
    profiles = found["speed"]["profile"]
    lines = [f"{'milliseconds of a step':24}" + "".join(f"{system:>14}" for system in profiles)]
    for kind in next(iter(profiles.values()))["kinds"]:
        lines.append(f"{kind:24}" + "".join(f"{found['kinds'][kind]:14.1f}" for found in profiles.values()))
    totals = [sum(found["kinds"].values()) for found in profiles.values()]
    lines.append(f"{'all':24}" + "".join(f"{total:14.1f}" for total in totals))
    for system, profile in profiles.items():
        lines += ["", f"{NAMES[system]:48}{'ms':>10}{'calls':>8}"]
        lines += [f"{name[:47]:48}{spent:10.1f}{calls:8}" for name, spent, calls in profile["operators"]]
    output.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_picture(found: dict, output: Path) -> None:
    """Draws tokens per second with the bound of the matrix products, peak memory, and time by kind of operation."""
    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # fairseq leaves the root logger at DEBUG
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (speed, memory, time) = pyplot.subplots(1, 3, figsize=(13, 4), layout="constrained")
    systems, measured = list(NAMES), found["speed"]
    names = [NAMES[system].replace(" ", "\n") for system in systems]
    speed.bar(names, [measured["tokens_per_second"][system] for system in systems], color=["C0", "C1", "C2"])
    speed.axhline(measured["tokens_per_second"]["matmul"], color="black", linestyle="--", label="matrix products alone")
    speed.set(title="training step", ylabel="tokens per second")
    speed.legend(loc="upper right")
    speed.margins(y=0.15)
    for place, (label, peaks) in enumerate(
        {
            f"vocabulary {found['shape']['vocabulary']:,}, with Adam's state": measured["peak_mib"],
            f"vocabulary {found['memory']['vocabulary']:,}, without": found["memory"]["peak_mib"],
        }.items()
    ):
        places = [number + 0.4 * place - 0.2 for number in range(len(systems))]
        memory.bar(places, [peaks[system] / 1024 for system in systems], width=0.4, label=label)
    memory.set_xticks(range(len(systems)), names)
    memory.set(title="peak memory", ylabel="GiB")
    memory.legend(fontsize="small", loc="upper left")
    memory.margins(y=0.25)
    beneath = [0.0] * len(systems)
    for number, kind in enumerate(measured["profile"][systems[0]]["kinds"]):
        heights = [measured["profile"][system]["kinds"][kind] / 1000 for system in systems]
        time.bar(names, heights, bottom=beneath, label=kind, color=f"C{number}" if number < 10 else "lightgrey")
        beneath = [low + height for low, height in zip(beneath, heights)]
    time.set(title="where a profiled step's time goes", ylabel="seconds")
    time.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5), reverse=True)
    figure.savefig(output, dpi=120)
    pyplot.close(figure)
