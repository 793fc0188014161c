"""The state DB as a whole: export and import, a copy for a rehearsal, pruning of history, and checks that it is sound."""
