"""The door to Postgres: pools, migrations, inbox and outbox."""
