"""Things by name, as text: `elr`, `elr(beta=0.9)`, `early_stop(elr(lam=7), patience=5)`. Parsed, never evaluated."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from noiseproof.errors import InputError, shortened, shown, unknown

T = TypeVar("T")
_DASH = re.compile(r"""('[^']*'|"[^"]*")|(?<=[A-Za-z])-(?=[A-Za-z])""")  # quoted text, or a dash inside a name


def build_call(text: str, known: Mapping[str, Callable[..., Any]], *, kind: str) -> Any:
    """Call the `known` callable that `text` names, with the literals (or further calls) it gives.

    Names may be written with `-` for `_` and in any case.

    Raises:
        InputError: a name or option that does not exist (with the nearest that does), a value that is no literal,
            or text that is no call.
    """
    with _not_too_deep(text, kind):
        return _build(_parse(text, kind), known, kind)


@contextmanager
def _not_too_deep(text: str, kind: str) -> Iterator[None]:
    try:
        yield
    except (RecursionError, MemoryError):
        raise InputError(f"cannot read {kind} {shown(text)}: it is nested too deeply; write it flat") from None


def build_as(
    cls: type[T], given: str | T, known: Mapping[str, Callable[..., Any]], *, kind: str, name: str, example: str
) -> T:
    """What an argument `name` of a function asks for: one of `cls` as it is, or from text.

    Raises:
        InputError: it is neither, with text that would do; or as of `build_call`.
    """
    if isinstance(given, cls):
        return given
    if isinstance(given, str):
        built = build_call(given, known, kind=kind)
        assert isinstance(built, cls)
        return built
    if inspect.isclass(given) and issubclass(given, cls):
        raise InputError(f"{name} must be an instance, got the class {given.__name__}; write {given.__name__}()")
    raise InputError(f"{name} must be a {cls.__name__} or text such as {example!r}, got {type(given).__name__}")


def _parse(text: str, kind: str) -> ast.expr:
    try:
        return ast.parse(_DASH.sub(lambda match: match[1] or "_", text.strip()), mode="eval").body
    except (SyntaxError, ValueError):
        raise InputError(
            f"cannot read {kind} {shown(text)}; write a name or a call, e.g. 'name' or 'name(option=0.5)'"
        ) from None


def split_call(text: str, *, kind: str) -> tuple[str, dict[str, Any]]:
    """The name and the options of a call such as `mlp(widths=[64, 64])`."""
    with _not_too_deep(text, kind):
        tree = _parse(text, kind)
        if isinstance(tree, ast.Name):
            return tree.id.lower(), {}
        if not (isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name)) or tree.args:
            raise InputError(f"cannot read {kind} {shown(text)}; write a name or a call, e.g. 'name(option=0.5)'")
        return tree.func.id.lower(), {str(keyword.arg): _value(keyword.value, {}, kind) for keyword in tree.keywords}


def _build(tree: ast.expr, known: Mapping[str, Callable[..., Any]], kind: str) -> Any:
    if isinstance(tree, ast.Name):
        name, arguments, keywords = tree.id, [], []
    elif isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        name, arguments, keywords = tree.func.id, tree.args, tree.keywords
    else:
        raise InputError(
            f"cannot read {kind} {shown(ast.unparse(tree))}; write a name or a call, e.g. 'name(option=0.5)'"
        )
    name = name.lower()
    if name not in known:
        raise unknown(kind, name, known)
    build = known[name]
    parameters = inspect.signature(build).parameters
    options = [key for key in parameters if key != "self"]
    for place, keyword in enumerate(keywords):
        if keyword.arg not in options:
            raise unknown(f"option of {kind} {name!r}:", str(keyword.arg), options or ["(it has none)"])
        if keyword.arg in [earlier.arg for earlier in keywords[:place]]:
            raise InputError(f"{kind} {name!r}: option {keyword.arg!r} is given twice; keep one")
    args = [
        _build(argument, known, kind) if isinstance(argument, ast.Name) else _value(argument, known, kind)
        for argument in arguments
    ]
    kwargs = {str(keyword.arg): _option(keyword, parameters[str(keyword.arg)], known, kind) for keyword in keywords}
    try:
        inspect.signature(build).bind(*args, **kwargs)
    except TypeError as error:
        raise InputError(f"{kind} {name!r}: {error}; its options are {', '.join(options) or 'none'}") from None
    return build(*args, **kwargs)


def _option(
    keyword: ast.keyword, parameter: inspect.Parameter, known: Mapping[str, Callable[..., Any]], kind: str
) -> Any:
    name = keyword.value.func if isinstance(keyword.value, ast.Call) else keyword.value
    text = shortened(ast.unparse(keyword.value), 120)
    if isinstance(name, ast.Name) and name.id.lower() not in known:
        raise InputError(f"cannot read {keyword.arg}={text} in {kind}; quote text: {keyword.arg}={text!r}")
    if isinstance(name, ast.Name) and parameter.kind is parameter.KEYWORD_ONLY:  # what is wrapped comes first
        raise InputError(f"{keyword.arg} must be a number, quoted text or a list, got the {kind} {text}")
    return _value(keyword.value, known, kind)


def _value(tree: ast.expr, known: Mapping[str, Callable[..., Any]], kind: str) -> Any:
    if isinstance(tree, ast.Call) or (isinstance(tree, ast.Name) and tree.id.lower() in known):
        return _build(tree, known, kind)
    try:
        return ast.literal_eval(tree)
    except (ValueError, TypeError):
        text = shown(ast.unparse(tree))
        raise InputError(
            f"cannot read {text} in {kind}; values are numbers, True, False, None, lists and quoted text"
        ) from None
