"""A run placed by Ray: its learner and env servers are processes of actors; gRPC carries steps."""
