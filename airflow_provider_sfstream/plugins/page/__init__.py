"""Page of streams: the status that tasks stored, for users who may read their DAGs and connections."""
