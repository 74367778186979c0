"""``python -m services.admission``."""

from libs.service import main
from services.admission.app import build
from services.admission.settings import Settings

if __name__ == "__main__":
    main(build, Settings)
