"""Times that everything keeps to: how often to look, how long to wait, how often to warn."""

# Between two looks at what nothing announces (a file, a process, a clock).
POLL_SECONDS = 0.1
# For a thread, process or peer that was asked to end, before it is ended.
GRACE_SECONDS = 5.0
# The same warning is not repeated sooner.
WARNING_SECONDS = 60.0
