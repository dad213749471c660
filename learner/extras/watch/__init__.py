"""The page of `seedrl watch`: reads the files of run folders, and nothing of a running learner.

`page/` is what the browser gets, without a build step; its charts are drawn by uPlot, a file of
which is kept there so that the page needs no network.
"""
