"""``python -m services.audit``."""

from libs.service import main
from services.audit.app import build
from services.audit.settings import Settings

if __name__ == "__main__":
    main(build, Settings)
