"""Time of `import noiseproof` (all of its training code) against `import torch`, and of `noiseproof --help`.

python benchmarks/startup.py         fresh processes, in turn; writes results/startup.json
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from common import machine, show, write

CASES = {
    "import torch": [sys.executable, "-c", "import torch"],
    "import noiseproof": [sys.executable, "-c", "import noiseproof"],
    "import noiseproof; noiseproof.fit": [sys.executable, "-c", "import noiseproof; noiseproof.fit"],
    "noiseproof --help": [sys.executable, "-m", "noiseproof", "--help"],
}


def main(rounds: int = 9) -> None:
    seconds: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(rounds):
        for name, call in CASES.items():
            began = time.perf_counter()
            subprocess.run(call, check=True, capture_output=True)
            seconds[name].append(time.perf_counter() - began)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    rows = [
        [
            name,
            f"{median[name]:.2f} s",
            f"{min(values):.2f} … {max(values):.2f}",
            f"{median[name] / median['import torch']:.2f}",
        ]
        for name, values in seconds.items()
    ]
    show("Start-up", ["what", "median", "range", "relative to import torch"], rows)
    write("startup", {"seconds": seconds, "machine": machine()})


if __name__ == "__main__":
    main()
