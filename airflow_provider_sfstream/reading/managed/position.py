"""Whether the position of a managed subscription can still be read, which its own stream does not say."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from airflow_provider_sfstream.clients.pubsub.client import PubSubClient
from airflow_provider_sfstream.exceptions import ReplayIdLostError, ServiceUnavailableError
from airflow_provider_sfstream.protocol.events import CONFIRM_TIMEOUT, Responses

_LOOK_SECONDS = 0.05


class PositionCheck:
    """Passes on what a managed stream says, once Salesforce has said that the position it goes on after can be read.

    Where it cannot, Salesforce goes on by itself where the subscription's ``errorRecoveryReplay`` says, without a word
    (Pub/Sub API guide, "ManagedSubscribe RPC Method"). So an ordinary subscription to the position is opened beside,
    for one event, until it was answered: with an event, an empty response, or a refusal. Its silence says nothing.

    :param clock: monotonic seconds.
    """

    def __init__(self, client: PubSubClient, clock: Callable[[], float]) -> None:
        self._client, self._clock = client, clock
        self.is_over = False

    def passed_on(self, responses: Responses, topic: str, position: bytes) -> Responses:
        """Yield ``responses``, from the first one on that an answer stands behind.

        :raises ReplayIdLostError: once, if the position cannot be read.
        :raises ServiceUnavailableError: if that is not said in the time in which Salesforce names the end of a stream.
        """
        ordinary = self._client.subscribe(topic, position, limit=1, idle_timeout=_LOOK_SECONDS)
        with closing(ordinary), closing(responses):
            self._look(ordinary)
            for response in responses:
                if response is None:
                    self._look(ordinary)
                else:
                    self._wait(ordinary, topic)
                yield response

    def _look(self, ordinary: Responses) -> None:
        if self.is_over:
            return
        try:
            self.is_over = next(ordinary, None) is not None
        except ReplayIdLostError:
            self.is_over = True  # said once; what comes after it is read from where Salesforce goes on
            raise

    def _wait(self, ordinary: Responses, topic: str) -> None:
        deadline = self._clock() + CONFIRM_TIMEOUT
        while not self.is_over:
            self._look(ordinary)
            if not self.is_over and self._clock() >= deadline:
                raise ServiceUnavailableError(
                    f"{topic}: Salesforce has not said within {CONFIRM_TIMEOUT:.0f} seconds whether the position of "
                    "the managed event subscription can still be read. Nothing was landed or committed."
                )
