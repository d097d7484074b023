"""Our losses in other libraries' loops: they carry the index of each example, call `step()`, and keep the loss's state.

Import the module of the library you use: `noiseproof.loops.lightning`, `noiseproof.loops.huggingface`.
"""
