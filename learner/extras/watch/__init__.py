"""The page of `seedrl watch`: reads files of run directories, and nothing of a running learner."""
