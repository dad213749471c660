"""What `seedrl plan` says: how a fleet would run, from what its parts cost."""
