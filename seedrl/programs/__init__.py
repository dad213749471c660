"""What all programs share: how a command line is read, and how a program ends."""
