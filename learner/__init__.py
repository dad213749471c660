"""Program 2: everything with a thread, a device or a clock.

Read `train` (one run, from start to end), `build` (what it consists of), `schedule` (its threads)
and `checkpointing` (what is saved, and when). An observation passes these packages in order:

    serving     messages of env servers become batches, actions become messages
    acting      batches become actions, and full pages of experience
    threads     what crosses from acting to learning; workers, watchdog
    learning    pages go into replay, replay into updates, parameters back to acting

The others:

    saving      checkpoints, the run folder, recordings
    multihost   several learner processes as one run
    reporting   metrics, events, status, progress, the learning curve
    session     reports of a running session, and when it is over
    processes   this process and its children: signals, memory, env servers
    watch       the dashboard of `seedrl watch`: reads run folders only
    bench       `seedrl bench`
    extras      `seedrl launch --on ray`, `seedrl experiment`, `seedrl compare`
    cli         one file per command

Imports go one way, from the bottom of this list to its top; the import linter keeps it
(pyproject.toml).
"""
