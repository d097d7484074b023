"""The papers' theory as formulas and simulations, to read, to check and to draw: one module per piece of theory."""
