"""The whole stack on one machine, with no container and as an ordinary user: `python -m deploy.embedded up`."""
