"""The services. Each owns its nouns and its Postgres schema, and none imports another."""
