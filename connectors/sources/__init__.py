"""Where rows come from: one contract for all kinds of source, a catalogue of the kinds, and what they share.

Files are found and fetched in `files` and cut into rows in `formats`; Google Sheets and Salesforce have folders of their own.
"""
