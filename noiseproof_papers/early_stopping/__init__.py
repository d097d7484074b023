"""Li, Soltanolkotabi and Oymak, "Gradient Descent with Early Stopping is Provably Robust …", AISTATS 2020.

clusters.py has the data, the network and its descent, bounds.py the theorems; theory.py measures them: Figure 6 and
Theorem 2.3. figures.py (Figures 1, 3, 4) and spectra.py (Figure 5, Table 1) train networks, and criteria.py compares
what `early_stop` can go by.
"""
