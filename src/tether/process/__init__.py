"""One child, its bytes and its end."""
