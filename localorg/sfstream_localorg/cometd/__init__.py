"""Streaming API of the local org: CometD long polling, PushTopics and generic channels."""
