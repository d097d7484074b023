"""Zhou, Xiong, Yuan and Hoi, "A Theory-Driven Self-Labeling Refinement Method …", NeurIPS 2021.

Formulas: contrast.py (Theorems 1 and 2, and what holds instead). Figures of these: contrast_figures.py. Tables of
networks: tables.py.
"""
