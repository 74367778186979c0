"""``python -m services.agent``; with ``cancel RUN``: what a person on the node does without the agent."""

import sys

from libs.service import main
from services.agent.app import build
from services.agent.handlers.by_hand import by_hand
from services.agent.settings import Settings

if __name__ == "__main__":
    if sys.argv[1:]:
        outcome = by_hand(sys.argv[1:], Settings())
        print(outcome.text, file=sys.stderr if outcome.code else sys.stdout)
        sys.exit(outcome.code)
    main(build, Settings)
