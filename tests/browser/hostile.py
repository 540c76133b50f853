"""Texts that would do harm if a page took them for anything but text."""

from __future__ import annotations

SCRIPT = "<script>window.hacked=1</script>"
IMAGE = '"><img src=x onerror=window.hacked=1>'
TEMPLATE = "</textarea></title></style>'\"><svg onload=window.hacked=1>"
RIGHT_TO_LEFT = "abc\u202egpj.exe"
CONTROL = "a\0b\x01c\x1b[31md\u200be\ufeff"

# Of each id: what it is.
IDS = {
    "script": SCRIPT,
    "image": IMAGE,
    "template": TEMPLATE,
    "right-to-left": RIGHT_TO_LEFT,
    "script-url": "javascript:window.hacked=1",
    "long": "x" * 512,
    "long-wide": "ü" * 256,
    "dot": ".",
    "dots": "..",
    "slash": "a/b",
    "encoded-slash": "%2F",
    "query": "?x=1&y=2",
    "fragment": "#main",
    "plus": "+",
    "spaces": " a  b ",
    "emoji": "👩‍🚀🇩🇪",
    "quote": 'it\'s "quoted" & `ticked`',
    "backslash": "a\\b",
    "tab": "a\tb",
    "escape": "a\x1b[31m\x01",
    "newline": "a\nb",
    "carriage-return": "a\rb",
    "nul": "a\0b",
}


def shown(text: str) -> str:
    """Returns how a page shows a text: what is invisible, as an escape."""
    hidden = "\0\x01\x1b\r\u202e\u200b\ufeff\u200d"
    return "".join(f"\\u{{{ord(c):x}}}" if c in hidden else c for c in text)
