"""`fit`: the one training loop, with a method for labels that are partly wrong."""

from __future__ import annotations

from contextlib import suppress

import torch
from torch import Tensor

from noiseproof import checks, distributed
from noiseproof.errors import InputError
from noiseproof.methods import build as build_method
from noiseproof.models.parts import freeze_backbone
from noiseproof.models.weights import start_with
from noiseproof.runs.loading import start_from
from noiseproof.runs.result import FitResult
from noiseproof.training import setup
from noiseproof.training.evaluate import Evaluation, conclude
from noiseproof.training.interrupt import Interrupted
from noiseproof.training.progress import counting
from noiseproof.training.settings import Fitting, verb
from noiseproof.training.weights import Weighted, by_class


@verb(Fitting)
def fit(call: Fitting) -> FitResult:
    """Train a model on labels that are partly wrong.

    Under torchrun the processes share each batch, and the main one writes.
    Where the data knows its `true_labels`, they are used for reporting only, as is the test set. The caller's own
    random state is left alone.

    Args:
        {settings}

    Raises:
        InputError: a mistake in the arguments, in one sentence.
        Interrupted: Ctrl-C; the run is saved if `out` was given, and `.result` is what it has come to.
    """
    parts, method = setup.Setup(call), build_method(call.method)
    call = parts.call  # type: ignore[assignment]
    if parts.rate.loss == "full" and call.eval_examples == 0:
        raise InputError("the schedule goes by the loss of the training set, which eval_examples=0 does not measure")
    data, val, given_test = (setup.as_tokens(name, getattr(call, name), call.model) for name in ("data", "val", "test"))
    train, held_out, rows = setup.split_validation(data, val, call.seed)
    train = by_class(train, call.class_weight)
    method = method if train.weights is None else Weighted(method)
    checks.require(len(train) >= 2, "data", call.data, "two examples or more")
    test = setup.match("test", given_test, train)
    model = setup.choose_model(call.model, train)
    augment = setup.choose_augment(call.augment, train, method.num_views)
    augments = setup.build_augments(augment, method.num_views, train)
    parts.check_batch(train, method.num_views)
    some = _some(len(train), call.eval_examples)
    evaluate = Evaluation(some, val=held_out, test=None if test is None else test.clean())

    with parts.running():
        models = setup.build_models(model, method.num_models, train, parts.device)
        if call.sync_batch_norm and distributed.world() > 1:
            models = setup.synchronised(models)
        if call.init is not None and not call.resume:
            start_from(models, call.init)
        if call.weights is not None and not call.resume:
            start_with(models, call.weights)
        if call.freeze is not None:
            for one in models:
                freeze_backbone(one)
        run = parts.run(models, train, val=held_out, predicts=call.eval_examples != 0)
        setup.check_model(run)
        setup.check_views(run, augments)
        setup.check_sizes(run, augments)
        evaluate.begin(run)
        init = None if call.init is None else str(call.init)
        described = parts.describe(model, run, method, augment=augment, val=held_out, test=test, init=init)
        own = {"resume": call.resume, "out": parts.folder is None}
        distributed.check_same(described | own, "", "make the same call in each")
        loop = parts.loop(run, method, augments, evaluate)
        loop.open(described)

        def results(kept: int | None = None) -> FitResult:
            architecture = model if isinstance(model, str) else None
            with counting("auditing", show=call.progress is True and distributed.is_main()):
                result = conclude(run, method, evaluate, data, rows, test, architecture, kept, call.audit_features)
                if parts.folder is not None and distributed.is_main():
                    result.save(parts.folder.path, score_test=call.score_test)
            return result

        try:
            with torch.enable_grad():
                return results(loop.train())
        except Interrupted as stop:
            if stop.by_hand and run.history and distributed.world() == 1:
                run.models.eval()
                with suppress(KeyboardInterrupt):  # the second: nobody waits for results
                    stop.result = results()
            raise


def _some(n: int, limit: int | None) -> Tensor | None:
    """Positions of `limit` of n examples, always the same ones; None for all."""
    if limit is None or limit >= n:
        return None
    return torch.randperm(n, generator=torch.Generator().manual_seed(0))[:limit].sort().values
