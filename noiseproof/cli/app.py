"""The application that the commands are added to, and its entry point."""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, NoReturn

import typer

from noiseproof.errors import InputError, enough_memory, shortened

app = typer.Typer(
    name="noiseproof",
    help="Train on labels you can't trust.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from noiseproof import __version__

        typer.echo(f"noiseproof {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Say which version this is.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Train on labels you can't trust."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C ends the command with what can be done next, and exit code 130."""
    from noiseproof.distributed import is_main
    from noiseproof.training.interrupt import Interrupted

    try:
        yield
    except Interrupted as stop:
        if is_main():
            typer.echo(str(stop), err=True)
        raise typer.Exit(130) from None


def main() -> None:
    """The entry point: a user's mistake, or the machine's refusal, is one sentence and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show ± should not end a run
    warnings.formatwarning = lambda message, *_, **__: f"note: {message}\n"  # without the line of code it comes from
    try:
        with enough_memory():
            app()
    except InputError as error:
        _refuse(str(error))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _refuse(f"{where}{error.strerror or error}; check the path, its permissions and the disk")


def _refuse(sentence: str) -> NoReturn:
    """Say what was wrong, in one line, in which the user's own words are shortened if they are thousands."""
    for argument in map(str.strip, sys.argv):
        if len(argument) > 200:
            sentence = sentence.replace(argument, shortened(argument, 120))
    sys.stderr.write(f"error: {' '.join(sentence.splitlines())}\n")
    sys.exit(2)
