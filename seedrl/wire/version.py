"""The version of the wire contract, as exchanged in Hello, and limits of what it carries."""

# Differs between two sides that cannot talk to each other: payload layout, meaning of a message.
MAJOR = 3
# Grows with additions that the other side may ignore.
MINOR = 0

# The least that a learner may set as the longest message: every message of the handshake fits.
LEAST_MESSAGE_BYTES = 2**16

# Numbers that the last step of an episode may carry, and how long their names may be.
MOST_METRICS = 64
LONGEST_METRIC_BYTES = 128

# Groups that an env server may ask for. A learner may add one for each inference device, and one
# for evaluation; the steps of 1,023 are counted.
MOST_GROUPS = 1000
