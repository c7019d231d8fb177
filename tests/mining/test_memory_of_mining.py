"""The memory of mining hard negatives."""

import subprocess

from tests.warm_python import ROOT, python


def test_memory_does_not_grow_with_the_text(tmp_path):
    """Bytes that Python and numpy allocate; 4 bytes for each further pair are 64 kB. FAISS is not seen.

    They are those of a process that does nothing else.
    """
    command = [python(), "-m", "tests.mining.memory_of_mining", str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    _, of_few, of_many = map(int, run.stdout.split())
    assert of_many < of_few + 32_000
