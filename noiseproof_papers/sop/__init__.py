"""Liu, Zhu, Qu and You, "Robust Training under Label Noise by Over-parameterization", ICML 2022.

Formulas: linear.py (the linear model, its descent and flow), convex.py (the program (26) it solves), recovery.py (when
that finds the truth). Figures of these: linear_figures.py. Figures and tables of networks: tables.py.
"""
