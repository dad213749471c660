"""Job files, with which engines that exist place the processes of a run on machines."""
