"""Liu, Zhu, Qu and You, "Robust Training under Label Noise by Over-parameterization", ICML 2022."""
