"""The `seedrl` command: one file per sub-command."""
