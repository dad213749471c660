"""What an env server does about environments that fail, hang or grow."""
