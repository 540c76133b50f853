"""Runs a program in a pseudo-terminal, and shows its screen as HTML."""

from __future__ import annotations

import fcntl
import html
import os
import pty
import select
import struct
import subprocess
import termios
import time

import pyte

COLUMNS, LINES = 120, 34

# The colours of terminals by their names in pyte, on a dark ground.
COLOURS = {
    "black": "#3b4252",
    "red": "#f26d72",
    "green": "#34c388",
    "brown": "#f2b95d",
    "blue": "#8db4ff",
    "magenta": "#c4a7f5",
    "cyan": "#67d4e0",
    "white": "#e6eaf0",
    "brightblack": "#8592a3",
}
TEXT, GROUND = "#e6eaf0", "#12161c"


def screen_of(command: list[str], seconds: float) -> pyte.Screen:
    """The screen of a program after this time. The program is then ended."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    program = subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=follower, env=environment, start_new_session=True
    )
    os.close(follower)
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if select.select([leader], [], [], left)[0]:
            stream.feed(os.read(leader, 65536))
    program.terminate()
    program.wait(timeout=20)
    os.close(leader)
    return screen


def as_html(screen: pyte.Screen) -> str:
    """The characters of a screen with their colours."""
    lines = []
    for line in range(screen.lines):
        cells = (screen.buffer[line][column] for column in range(screen.columns))
        lines.append("".join(_cell(cell) for cell in cells))
    return (
        f"<body style='margin:0;background:{GROUND}'><pre style='margin:0;padding:18px;display:inline-block;"
        f"color:{TEXT};font:14px/1.164 \"DejaVu Sans Mono\",monospace'>" + "\n".join(lines) + "</pre></body>"
    )


def _cell(cell: pyte.screens.Char) -> str:
    front, back = _colour(cell.fg, TEXT), _colour(cell.bg, GROUND)
    if cell.reverse:
        front, back = back, front
    weight = "bold" if cell.bold else "normal"
    style = f"color:{front};background:{back};font-weight:{weight}"
    return f'<span style="{style}">{html.escape(cell.data)}</span>'


def _colour(name: str, default: str) -> str:
    if name == "default":
        return default
    return COLOURS.get(name, f"#{name}")
