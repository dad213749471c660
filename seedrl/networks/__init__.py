"""Neural networks: torsos, recurrent cores and heads."""
