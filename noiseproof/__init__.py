"""noiseproof: train on labels you can't trust.

    import noiseproof as nf

    data = nf.load("digits")
    noisy = nf.noise.apply(data, "symmetric:0.4")
    result = nf.fit("mlp", noisy, epochs=50)

The public names stand in `__init__.pyi`, for editors and type checkers and for this file alike: each is imported when
it is first used, so that `import noiseproof` and the command line stay quick.
"""

import lazy_loader

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]
