"""How a measurement is made, and what it says."""
