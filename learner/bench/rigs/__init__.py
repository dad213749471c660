"""What is measured: the system or a part of it, and what it is held against."""
