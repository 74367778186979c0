"""``python -m services.agent``."""

from libs.service import main
from services.agent.app import build
from services.agent.settings import Settings

if __name__ == "__main__":
    main(build, Settings)
