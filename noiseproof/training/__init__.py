"""The one training loop of `fit` and `pretrain`: its settings, set-up, batches, evaluation, processes and progress.

It knows no method by name. Read settings.py, then fit.py, then loop.py.
"""
