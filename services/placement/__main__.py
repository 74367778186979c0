"""``python -m services.placement``."""

from libs.service import main
from services.placement.app import build
from services.placement.settings import Settings

if __name__ == "__main__":
    main(build, Settings)
