"""Names of managed subscriptions, and tracking of their commits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_sfstream.exceptions import CommitError, CommitFailedError, ConfigurationError
from airflow_provider_sfstream.salesforce.identifiers import ManagedSubscription
from airflow_provider_sfstream.salesforce.pubsub.managed_stream import Commits, commit_error_from

ORDERS = ManagedSubscription("Orders")


class TestNames:
    @pytest.mark.parametrize("text", ["Orders", "a", "Order_Events_2", "x" * 80, "A1_b2"])
    def test_valid_developer_names_are_parsed(self, text: str) -> None:
        subscription = ManagedSubscription(text)
        assert (subscription.developer_name, subscription.subscription_id) == (text, None)
        assert subscription.text == str(subscription) == text

    @pytest.mark.parametrize("text", ["18x000000000001", "18x000000000001AAA", "18xWs0000004CKXIA2"])
    def test_valid_subscription_ids_are_parsed(self, text: str) -> None:
        subscription = ManagedSubscription(text)
        assert (subscription.developer_name, subscription.subscription_id) == (None, text)
        assert subscription.text == str(subscription) == text

    @pytest.mark.parametrize(
        "text",
        [
            *("", " Orders", "Orders ", "_Orders", "Orders_", "Or__ders", "1Orders", "Or-ders", "x" * 81, "Örders"),
            *("18x", "18x00000000001", "18x0000000000011", "18x000000000001AAAA", "18y000000000001", "Orders\n"),
            *(None, 18, b"Orders"),
        ],
    )
    def test_text_that_is_neither_a_name_nor_an_id_is_refused(self, text: str) -> None:
        with pytest.raises(ConfigurationError, match="Nothing was contacted"):
            ManagedSubscription(text)


class TestCommits:
    def test_response_acknowledges_earlier_commits_and_no_later_ones(self) -> None:
        commits = Commits(ORDERS)
        requests = [commits.sent(replay_id) for replay_id in (b"1", b"2", b"3")]
        assert len(set(requests)) == 3
        assert commits.answered(requests[1], None) is None
        assert [commits.outcome(replay_id) for replay_id in (b"1", b"2", b"3")] == [True, True, False]
        assert (commits.acknowledged, commits.unanswered) == (b"2", True)
        commits.answered(requests[2], None)
        assert (commits.acknowledged, commits.unanswered) == (b"3", False)

    def test_error_belongs_to_its_own_commit(self) -> None:
        commits = Commits(ORDERS)
        first, second, third = (commits.sent(replay_id) for replay_id in (b"1", b"2", b"3"))
        assert isinstance(commits.answered(second, "It failed."), CommitFailedError)
        assert not commits.outcome(b"1")
        with pytest.raises(CommitFailedError, match="It failed"):
            commits.outcome(b"2")
        commits.answered(third, None)
        assert commits.outcome(b"1")
        with pytest.raises(CommitFailedError):
            commits.outcome(b"2")
        assert not commits.unanswered
        assert commits.answered(first, None) is None
        assert commits.acknowledged == b"3", "a late response does not move the position back"

    def test_the_last_commit_of_a_replay_id_counts(self) -> None:
        commits = Commits(ORDERS)
        commits.answered(commits.sent(b"1"), "It failed.")
        again = commits.sent(b"1")
        assert not commits.outcome(b"1")
        commits.answered(again, None)
        assert commits.outcome(b"1")

    def test_response_to_an_unknown_commit_is_ignored(self) -> None:
        commits = Commits(ORDERS)
        assert commits.answered("someone else's", None) is None
        assert commits.answered("someone else's", "It failed.") is None
        assert (commits.acknowledged, commits.unanswered) == (None, False)
        with pytest.raises(CommitError, match=r"Orders.*31 was not committed on this stream"):
            commits.outcome(b"1")

    def test_number_of_remembered_commits_is_bounded(self) -> None:
        commits = Commits(ORDERS)
        requests = [commits.sent(number.to_bytes(4, "big")) for number in range(2_500)]
        assert len(commits._sent) == 1_000
        commits.answered(requests[-1], None)
        assert commits.outcome((2_400).to_bytes(4, "big"))

    @given(st.lists(st.tuples(st.integers(0, 30), st.booleans())))
    def test_commit_is_acknowledged_only_by_its_own_or_a_later_response(self, answers: list[tuple[int, bool]]) -> None:
        commits = Commits(ORDERS)
        requests = [commits.sent(bytes([number])) for number in range(31)]
        failed = set()
        for number, succeeds in answers:
            if commits.answered(requests[number], None if succeeds else "It failed.") is not None:
                failed.add(number)
        through = max((number for number, succeeds in answers if succeeds), default=-1)
        for number in range(31):
            if number in failed:
                with pytest.raises(CommitError):
                    commits.outcome(bytes([number]))
            else:
                assert commits.outcome(bytes([number])) is (number <= through)


@pytest.mark.parametrize(
    ("message", "retriable"),
    [
        ("Provide a Replay ID: it is missing.", False),
        ("The Replay ID is invalid.", False),
        ("The event is out of the retention window.", False),
        ("The Replay ID has not been delivered yet.", False),
        ("A newer Replay ID is committed; this one is older.", False),
        ("Something went wrong.", True),
        ("", True),
    ],
)
def test_commit_error_about_the_replay_id_is_not_retriable(message: str, retriable: bool) -> None:
    error = commit_error_from(message, subscription=ORDERS, replay_id=b"\x01\x02")
    assert error.retriable is retriable
    assert isinstance(error, CommitFailedError) is retriable
    for part in ("Orders", "0102", message, "no event is lost"):
        assert part in str(error)
