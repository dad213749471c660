"""Checks an env server, in whatever language, against the contract of seedrl.proto.

It plays the learner's side over real gRPC: one dialogue after another, each with its own streams.
"""
