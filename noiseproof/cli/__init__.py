"""The command line: one file for each verb, which registers itself with the application (app.py).

Nothing heavy is imported before a command runs, so that `--help` answers at once. Verbs of other packages come in by
the entry-point group `noiseproof.commands`: a module that registers a command with `noiseproof.cli.app.app`.
"""

import importlib
from importlib.metadata import entry_points

from noiseproof.cli.app import app, main

# the order of `noiseproof --help`
VERBS = (
    "demo", "fit", "predict", "export", "audit", "review", "relabel", "bench", "compare", "pretrain", "probe",
    "jacobian", "corrupt", "lists",
)  # fmt: skip

for _verb in VERBS:
    importlib.import_module(f"noiseproof.cli.{_verb}")
for _plugin in entry_points(group="noiseproof.commands"):
    _plugin.load()

__all__ = ["app", "main"]
