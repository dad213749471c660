"""Names of files in the folder of a run, for all that write or read them.

The configuration is there from when the run begins to train, the others from its start.
"""

CONFIG = "config.json"
COMMANDS = "command.txt"  # the command lines of all sessions
STATUS = "status.json"
METRICS = "metrics.jsonl"
EVENTS = "events.jsonl"
LOGS = (
    "logs"  # a folder: what env servers write; in folders below it those of whoever plays the run
)
HOSTS = "hosts"  # a folder: what other hosts than the first write of themselves, each in its own
HOSTS_NOTE = ".hosts"  # by which hosts find that they share the folder
RECORDING = "recording"  # of a run in lock step, for who plays it again
WANDB_ID = "wandb_id.txt"  # its name at Weights & Biases
FINAL_SCORE = "final_score.json"  # what `seedrl evaluate --save` writes

# In the folder of an experiment, beside those of its runs.
EXPERIMENT = "experiment.json"
