"""Sessions: what is fetched and fed, runs and what they report."""
