"""The page of streams: what tasks left of them, for who may read their DAGs and connections."""
