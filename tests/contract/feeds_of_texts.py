"""Mapping files of feeds whose rows are a ref and a text, as the stands of every kind hold them."""

EVENT = """\
  title: {from: text}
  startAt: "2031-05-03T20:00:00+01:00"
  timezone: Europe/Lisbon
  status: published
  classifications: [music]
  approxLocation: {city: {placeId: lisboa}}
"""
"""All of an event but for its channel."""
TOLD_BY_AN_ORG = f"""\
feed: town-hall
source:
  kind: salesforce
  object: Event__c
  columns: {{ref: [Key__c]}}
  incremental: {{overlap: 0s, full_every: 1d}}
key: [ref]
event:
  channelId: {{channel: city-agenda}}
{EVENT}"""
