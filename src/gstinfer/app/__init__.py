"""A running job: sources, session and sinks."""
