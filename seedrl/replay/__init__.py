"""Experience replay that lives on the device."""
