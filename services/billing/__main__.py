"""``python -m services.billing``."""

from libs.service import main
from services.billing.app import build
from services.billing.settings import Settings

if __name__ == "__main__":
    main(build, Settings)
