"""Sources of rows: one contract for all kinds, a catalogue of the kinds, and shared parts.

`files` finds and fetches files, `formats` splits them into rows; Google Sheets, Salesforce and databases have their own folders.
"""
