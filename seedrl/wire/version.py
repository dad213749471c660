"""The version of the wire contract, as exchanged in Hello."""

# Differs between two sides that cannot talk to each other: payload layout, meaning of a message.
MAJOR = 2
# Grows with additions that the other side may ignore.
MINOR = 0
