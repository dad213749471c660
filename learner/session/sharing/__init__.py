"""What of a run is shared out: over the devices of a host, and over hosts."""
