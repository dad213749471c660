"""Times that everything keeps to: how often to look, how long to wait, how often to warn."""

# Defaults of `serving.ready_deadline_seconds` and `serving.step_deadline_seconds`.
READY_DEADLINE_SECONDS, STEP_DEADLINE_SECONDS = 120.0, 60.0
# The most that the first of them may be: env servers end themselves if building takes longer.
MOST_READY_DEADLINE_SECONDS = 600.0

# Between two looks at what nothing announces (a file, a process, a clock).
POLL_SECONDS = 0.1
# For a thread, process or peer that was asked to end, before it is ended.
GRACE_SECONDS = 5.0
# The same warning is not repeated sooner.
WARNING_SECONDS = 60.0
