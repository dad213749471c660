"""This process and its children: signals, memory and XLA settings, env servers."""
