"""Program 2: everything with a thread, a device or a clock.

Read `train` (one run, from start to end), `build` (what it consists of), `schedule` (its threads)
and `checkpointing` (what is saved, and when). An observation passes these packages in order:

    serving     messages of env servers become batches, actions become messages
    acting      batches become actions, and full pages of experience
    runtime     what crosses from acting to learning; threads and their watchdog
    learning    pages go into replay, replay into updates, parameters back to acting

The others:

    checkpoints the run directory and its checkpoints
    report      metrics, events, status, the terminal, the learning curve
    processes   this process and its children: signals, memory, env servers
    multihost   several learner processes as one run
    extras      `seedrl bench`, `compare`, `experiment`, `launch` and `watch`
    cli         one file per command

`pyproject.toml` has the layers in which these import each other; the import linter keeps them.
"""
