"""Mirzasoleiman, Cao and Leskovec, "Coresets for Robust Training of Neural Networks …", NeurIPS 2020.

bounds.py has what is provable of coresets, theory.py measures it on a small network, and tables.py trains networks:
Figure 1 and Tables 1 and 2.
"""
