"""Wei, Ren and Du, "On the Synergy Between Label Noise and Learning Rate Annealing …", OPT 2023.

Formulas: annealing.py (data, network, algorithms; their inner loops in _kernels.py) and probe.py (what is measured).
Figures of these: annealing_figures.py. Figures of networks: network_figures.py.
"""
