"""What each service is told about the servers: its own user in each, and nobody else's."""

from deploy.embedded.foundation import Foundation
from deploy.embedded.servers.postgres import DATABASE
from deploy.embedded.servers.roles import role_of
from libs.config import Infrastructure


def infrastructure(foundation: Foundation, service: str, health_port: int = 0) -> Infrastructure:
    """Return the surroundings of one service."""
    return Infrastructure.model_validate(
        {
            "nats_url": f"nats://127.0.0.1:{foundation.nats.port}",
            "nats_user": service,
            "nats_password": foundation.credentials.nats[service],
            "postgres_dsn": postgres_dsn(foundation, service),
            "redis_url": redis_url(foundation, service),
            "health_port": health_port,
        }
    )


def postgres_dsn(foundation: Foundation, service: str, database: str = DATABASE) -> str:
    """Return where and as whom the service reaches Postgres. It holds a password."""
    password = foundation.credentials.postgres[service]
    return f"postgresql://{role_of(service)}:{password}@127.0.0.1:{foundation.postgres.port}/{database}"


def redis_url(foundation: Foundation, user: str) -> str:
    """Return where and as whom a user reaches Redis. It holds a password."""
    return f"redis://{user}:{foundation.credentials.redis[user]}@127.0.0.1:{foundation.redis.port}/0"
