"""Variables: their kinds, scopes, initializers and parts."""
