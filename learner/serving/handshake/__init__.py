"""What is asked of a connection before it may take part."""
