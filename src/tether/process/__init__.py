"""One child, its bytes and its end."""

import logging

# Whoever uses the library decides what becomes of its log; without a decision it stays silent.
logging.getLogger("tether").addHandler(logging.NullHandler())
