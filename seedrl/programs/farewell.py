"""How an env server begins the last line of its log, if it ends by its own decision.

Whoever has started it reads there whether it ended or merely died: an environment may end its
process with any exit code.
"""

FAREWELL = "ends: "
# Follows it when the learner has said that training is over.
FINISHED = "finished: "
