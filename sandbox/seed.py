"""What a fresh sandbox holds: channels, classifications and the API keys to rehearse with.

How it is stored is `store`'s; the default key's secret is handed in by whoever starts the sandbox.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from sandbox.keys import STARTING_SCOPES, ApiKey, made_key


@dataclass(frozen=True, slots=True)
class Channel:
    """A publish destination; `owners` are the accounts that own it or have access to it."""

    id: int
    slug: str
    name: str
    owners: frozenset[str]


@dataclass(frozen=True, slots=True)
class Classification:
    """A public classification; only its slug is ever sent in an event."""

    slug: str
    name: str
    description: str


DEFAULT_KEY: Final = "default"
OWNER: Final = "demo"
CLASSIFICATIONS_VERSION: Final = "2026-03-02"
ALL_SCOPES: Final = frozenset({*STARTING_SCOPES, "events:read", "media:create"})

CHANNELS: Final = (
    Channel(101, "city-agenda", "City agenda", frozenset({OWNER})),
    Channel(102, "krakow-culture", "Kraków culture", frozenset({OWNER})),
    Channel(103, "osaka-fireworks", "Osaka fireworks", frozenset({OWNER})),
    Channel(104, "kids-workshops", "Kids' workshops", frozenset({OWNER})),
    Channel(105, "members-only", "Members only", frozenset({"club"})),
)

CLASSIFICATIONS: Final = (
    Classification("music", "Music", "Concerts and live music of any kind."),
    Classification("classical", "Classical", "Orchestras, chamber music, recitals."),
    Classification("opera", "Opera", "Opera and operetta."),
    Classification("jazz", "Jazz", "Jazz and improvised music."),
    Classification("culture", "Culture", "Culture that fits no narrower class."),
    Classification("theatre", "Theatre", "Plays and other stage work."),
    Classification("dance", "Dance", "Ballet, contemporary and social dance."),
    Classification("circus", "Circus", "Circus, puppetry and street arts."),
    Classification("comedy", "Comedy", "Stand-up, cabaret and improvisation."),
    Classification("film", "Film", "Screenings and cinema programmes."),
    Classification("exhibition", "Exhibition", "Museums, galleries and shows."),
    Classification("literature", "Literature", "Readings, launches and book clubs."),
    Classification("talk", "Talk", "Lectures, debates and panels."),
    Classification("workshop", "Workshop", "Hands-on courses and classes."),
    Classification("tech", "Tech", "Meetups and conferences on technology."),
    Classification("family", "Family", "For children and the people who bring them."),
    Classification("festival", "Festival", "Several days or stages under one name."),
    Classification("fireworks", "Fireworks", "Fireworks and light shows."),
    Classification("tradition", "Tradition", "Feasts, processions and customs."),
    Classification("food", "Food", "Tastings, dinners and cookery."),
    Classification("market", "Market", "Markets and fairs."),
    Classification("tour", "Tour", "Guided walks and visits."),
    Classification("nature", "Nature", "Parks, gardens and the outdoors."),
    Classification("sport", "Sport", "Matches, races and open training."),
    Classification("wellness", "Wellness", "Yoga, health and rest."),
    Classification("nightlife", "Nightlife", "Clubs, DJs and late bars."),
)

REVISED_VERSION: Final = "2026-10-01"
REVISED: Final = (
    *(one for one in CLASSIFICATIONS if one.slug not in {"nightlife", "workshop"}),
    Classification("workshops", "Workshops", "Hands-on courses and classes."),
    Classification("podcast", "Podcast", "Recordings with an audience."),
)


def classifications(which: Literal["first", "revised"]) -> tuple[str, tuple[Classification, ...]]:
    """The version of a list of classifications, and the list."""
    return (REVISED_VERSION, REVISED) if which == "revised" else (CLASSIFICATIONS_VERSION, CLASSIFICATIONS)


def seed_keys(default_secret: str) -> tuple[ApiKey, ...]:
    """The default key, and the keys for rehearsing each refusal; the secrets of the latter are public on purpose."""
    return (
        made_key(DEFAULT_KEY, OWNER, default_secret, ALL_SCOPES),
        made_key("starter", OWNER, "sandbox-key-starter", STARTING_SCOPES),
        made_key("reader", OWNER, "sandbox-key-reader", {"channels:read"}),
        made_key("revoked", OWNER, "sandbox-key-revoked", ALL_SCOPES, "revoked"),
        made_key("disabled", OWNER, "sandbox-key-disabled", ALL_SCOPES, "disabled"),
        made_key("expired", OWNER, "sandbox-key-expired", ALL_SCOPES, "expired"),
    )
