"""How an env server begins the last line of its log, if it ends by its own decision.

One that has heard that training is over says so before it closes its environments, which may write
more lines.

Whoever has started it reads there whether it ended or merely died: an environment may end its
process with any exit code. Whoever starts another in its place tells that one so.
"""

FAREWELL = "ends: "
# Follows it when the learner has said that training is over.
FINISHED = "finished: "
# The environment variable in which the next one finds the exit code of the one that died.
ENDED_VARIABLE = "SEEDRL_ENV_SERVER_ENDED"
