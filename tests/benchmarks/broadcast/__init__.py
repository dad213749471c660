"""Central inference against actors that hold the parameters; see `__main__.py`."""
