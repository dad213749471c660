"""An env server as a process, and several of them as processes of one parent."""
