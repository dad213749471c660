"""Processes of this machine: started, tied to their parent, supervised; nothing of learning."""
