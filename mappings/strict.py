"""The base of every model that is parsed at a border: unknown keys are errors, values never change type by guess."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """Frozen, and closed: a key that the model does not name is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
