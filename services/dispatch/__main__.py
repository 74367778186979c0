"""``python -m services.dispatch``."""

from libs.service import main
from services.dispatch.app import build
from services.dispatch.settings import Settings

if __name__ == "__main__":
    main(build, Settings)
