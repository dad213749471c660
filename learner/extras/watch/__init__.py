"""The page of `seedrl watch`: reads the files of run folders, and nothing of a running learner."""
