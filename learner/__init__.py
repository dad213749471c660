"""Binary 2: whatever has a thread, a device or a clock.

An observation passes these packages in order:

    serving     hops 3-4: bytes from env servers to batches that are due, actions to bytes
    acting      hop 5: batches to actions, and to full pages of experience
    threads     what crosses from the acting to the learning thread, and how threads live
    learning    hops 6-8: pages into replay, replay to updates, updates to published parameters

and the others stand around them:

    saving      what outlives the process: checkpoints, the run folder, recordings
    multihost   several learner processes as one run: who they are, what they agree on, who is lost
    reporting   what a run says of itself: metrics, progress, the learning curve
    launch      processes on this machine; knows nothing of learning
    session     a run from start to end: the only package that wires the ones above
    watch       the page of `seedrl watch`: reads run folders, and nothing of a running learner
    bench       what `seedrl bench` measures
    extras      what a run can do without: `seedrl launch --on ray`, `experiment`, `compare`
    cli         one file per command

Imports go one way: cli, extras, bench or watch, session, saving,
acting, then serving or learning, then multihost, then threads, reporting or launch. The import
linter holds that (pyproject.toml).
"""
