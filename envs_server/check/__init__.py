"""`seedrl check-env` and `seedrl check-env-server`: an environment, or an env server, on trial."""
