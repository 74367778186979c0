"""Credentials and configuration for `docker-compose.yml`, written by ``python -m deploy.compose``."""
