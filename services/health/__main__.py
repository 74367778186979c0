"""``python -m services.health``."""

from libs.service import main
from services.health.app import build
from services.health.settings import Settings

if __name__ == "__main__":
    main(build, Settings)
