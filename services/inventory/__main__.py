"""``python -m services.inventory``."""

from libs.service import main
from services.inventory.app import build
from services.inventory.settings import Settings

if __name__ == "__main__":
    main(build, Settings)
