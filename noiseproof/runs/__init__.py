"""What a run leaves behind: its folder, checkpoint, result, label table and report; and the loader of trained models.

Nothing here trains: loading a model does not import the training loop.
"""
