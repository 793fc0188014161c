"""The base of every model that is parsed at a border: unknown keys are errors, values never change type by guess."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, model_validator

from mappings.marks import Block


class Strict(BaseModel):
    """Frozen, and closed: a key that the model does not name is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _tell_block(cls, value: object) -> object:
        """Leave the names this model knows on a block of a file, for "did you mean"."""
        if isinstance(value, Block):
            value.allowed = tuple(known.alias or name for name, known in cls.model_fields.items())
        return value
