"""Salesforce as a source: records of an object or a query, by REST pages or Bulk API 2.0."""
