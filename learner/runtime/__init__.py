"""What crosses threads, and how threads live."""
