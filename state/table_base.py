"""The catalogue that all tables of the state DB are in, and what each of them is made from. The tables are `tables`'."""

from __future__ import annotations

from typing import ClassVar

from sqlalchemy import MetaData
from sqlmodel import SQLModel

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class Row(SQLModel):
    """The base of all tables: a catalogue of names of our own, apart from any other SQLModel in the process."""

    metadata: ClassVar[MetaData] = METADATA
