"""Which labels look wrong, from arrays alone: the two modes of losses, and what neighbours say."""
