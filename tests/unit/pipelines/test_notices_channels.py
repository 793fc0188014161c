"""Who is told about a feed: channels by name, addresses from the environment alone, and nothing of them in any message."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.masking import Mask
from mappings.errors import ConfigError
from pipelines.settings import Channels, read_channels, read_settings

HOOK = "json://hooks.example.org/t0ps3cret-path-17"


def _channels(cwd: Path, **values: str) -> Channels:
    problems: list[str] = []
    channels = read_channels(values, cwd, problems)
    assert problems == []
    return channels


def _told(channels: Channels, owner: str = "", *notify: str) -> list[tuple[str, str]]:
    return [(one.name, one.address.get_secret_value()) for one in channels.recipients(owner, notify)]


def test_an_address_without_a_name_hears_of_every_feed(tmp_path: Path) -> None:
    channels = _channels(tmp_path, EVENTSYNC_NOTIFY="json://a.example/x  json://b.example/y")
    assert _told(channels) == [("all", "json://a.example/x"), ("all (2)", "json://b.example/y")]


def test_a_channel_hears_of_the_feeds_that_name_it_or_whose_owner_is_called_so(tmp_path: Path) -> None:
    channels = _channels(tmp_path, EVENTSYNC_NOTIFY="ops=json://a.example/x agenda@example.org,crew=json://b.example/y")
    assert _told(channels) == []
    assert _told(channels, "", "ops") == [("ops", "json://a.example/x")]
    assert _told(channels, "agenda@example.org") == [("agenda@example.org", "json://b.example/y")]
    assert _told(channels, "agenda@example.org", "crew", "ops") == [("crew", "json://b.example/y"), ("ops", "json://a.example/x")]


def test_an_address_with_a_place_for_the_owner_is_each_owners_own(tmp_path: Path) -> None:
    channels = _channels(tmp_path, EVENTSYNC_NOTIFY="mailtos://us:secret99@smtp.example.org?to={owner}")
    assert _told(channels, "agenda+1@example.org") == [
        ("all (agenda+1@example.org)", "mailtos://us:secret99@smtp.example.org?to=agenda%2B1@example.org")
    ]
    assert _told(channels, "team:agenda") == []
    assert _told(channels, "x@example.org&from=boss@example.org") == []


def test_a_file_has_addresses_on_lines_and_comments(tmp_path: Path) -> None:
    (tmp_path / "notify.txt").write_text(f"# who is told\nops={HOOK}\n\njson://a.example/x\n", "utf-8")
    channels = _channels(tmp_path, EVENTSYNC_NOTIFY="json://b.example/y", EVENTSYNC_NOTIFY_FILE="notify.txt")
    assert _told(channels, "", "ops") == [("ops", HOOK), ("all", "json://b.example/y"), ("all (2)", "json://a.example/x")]
    assert channels.unknown(["ops", "opps"]) == ("opps",)


def test_what_is_no_address_is_told_by_its_place_alone(tmp_path: Path) -> None:
    (tmp_path / "notify.txt").write_text("ops=s3cret-without-scheme\n", "utf-8")
    with pytest.raises(ConfigError) as refused:
        read_settings({"EVENTSYNC_NOTIFY": f"{HOOK} hush-hush-17 o%s={HOOK}", "EVENTSYNC_NOTIFY_FILE": "notify.txt"}, tmp_path)
    told = str(refused.value)
    assert [line.partition(": is no")[0] for line in told.splitlines()] == [
        "EVENTSYNC_NOTIFY: entry 2",
        "EVENTSYNC_NOTIFY: entry 3",
        f"EVENTSYNC_NOTIFY_FILE: {tmp_path / 'notify.txt'}:1",
    ]
    assert "s3cret" not in told
    assert "hush" not in told


def test_a_file_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"EVENTSYNC_NOTIFY_FILE: cannot read .*notify\.txt: No such file or directory"):
        read_settings({"EVENTSYNC_NOTIFY_FILE": "notify.txt"}, tmp_path)


@pytest.mark.parametrize(
    ("address", "secrets"),
    [
        ("slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#announcements", ["T1JJ3T3L2", "TIiajkdnlazkcOXrIdevi7FQ"]),
        ("tgram://123456789:abcdefg_hijklmnop/12315544/", ["abcdefg_hijklmnop", "123456789:abcdefg_hijklmnop"]),
        ("mailtos://me:p%40ss%2Fword@smtp.example.org?to=agenda@example.org", ["p%40ss%2Fword", "p@ss/word"]),
        ("json://hooks.example.org/eventsync?+X-Token=8a7b6c5d4e3f", ["8a7b6c5d4e3f"]),
        ("pover://user1Key2of3me@token4of5the6app", ["user1Key2of3me", "token4of5the6app"]),
    ],
)
def test_keys_in_addresses_are_masked_and_words_are_not(tmp_path: Path, address: str, secrets: list[str]) -> None:
    mask: Mask = read_settings({"EVENTSYNC_NOTIFY": f"ops={address}"}, tmp_path).mask
    for secret in [*secrets, address]:
        assert secret not in mask.hide(f"it said {secret}, and no more")
    plain = "eventsync told agenda@example.org and #announcements at smtp.example.org, hooks.example.org"
    assert mask.hide(plain) == plain


def test_settings_are_shown_without_addresses(tmp_path: Path) -> None:
    settings = read_settings({"EVENTSYNC_NOTIFY": f"ops={HOOK}"}, tmp_path)
    assert "t0ps3cret" not in repr(settings) + repr(settings.channels) + str(settings.model_dump())
