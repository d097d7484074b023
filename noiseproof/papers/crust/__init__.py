"""Mirzasoleiman, Cao and Leskovec, "Coresets for Robust Training of Neural Networks …", NeurIPS 2020."""
