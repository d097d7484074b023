"""Coresets: a few points that stand for all, by facility location (k-medoids)."""

from noiseproof.coreset.facility import ALGORITHMS as ALGORITHMS
from noiseproof.coreset.facility import Coreset as Coreset
from noiseproof.coreset.facility import facility_location as facility_location
