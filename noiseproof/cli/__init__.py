"""The command line: `noiseproof demo | fit | pretrain | probe | corrupt | reproduce | jacobian | methods | models | …`.

A module holds a command or two that belong together. Nothing heavy is imported before a command runs, so that `--help`
answers at once.
"""

from noiseproof.cli.app import app, main
from noiseproof.cli.fit import fit  # the order of `noiseproof --help`
from noiseproof.cli.pretrain import pretrain, probe
from noiseproof.cli.studies import demo, jacobian, reproduce
from noiseproof.cli.tables import corrupt, methods, models, recipes

__all__ = [
    "app", "corrupt", "demo", "fit", "jacobian", "main", "methods", "models", "pretrain", "probe", "recipes",
    "reproduce",
]  # fmt: skip
