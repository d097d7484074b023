"""The Jacobian of a network's outputs by its weights, without materialising it: products, rows, singular values."""

from noiseproof.jacobian.operator import Jacobian
from noiseproof.jacobian.singular import exact_spectrum, label_vectors, top_singular
from noiseproof.jacobian.spectrum import plot_spectrum, spectrum_of_run

__all__ = ["Jacobian", "exact_spectrum", "label_vectors", "plot_spectrum", "spectrum_of_run", "top_singular"]
