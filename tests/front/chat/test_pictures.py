"""Pictures: every encoding decoded again and compared, and hostile files that end in words."""

from __future__ import annotations

import io
import re
import struct
import time
import zlib
from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import TypeAlias

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from pinfold.front.chat.pictures import (
    CHUNK,
    BadPicture,
    Frame,
    choose_protocol,
    draw_picture,
    encode_sixel,
    place_on_rows,
    quantise,
    render_half_blocks,
    sharpen_lines,
)
from pinfold.front.chat.pictures.png import SIGNATURE, Raster, decode_png

pytestmark = pytest.mark.unit
Pixel: TypeAlias = tuple[int, int, int]


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(
    rows: Sequence[bytes],
    width: int,
    *,
    colours: int = 2,
    depth: int = 8,
    filters: Callable[[int], int] = lambda row: row % 5,
    extra: bytes = b"",
    interlaced: int = 0,
) -> bytes:
    """An encoder for tests: rows of samples, filtered as asked."""
    bpp = max(1, depth * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colours] // 8)
    before = bytes(len(rows[0]))
    raw = bytearray()
    for number, row in enumerate(rows):
        how = filters(number)
        raw += bytes([how]) + filtered(how, row, before, bpp)
        before = row
    header = struct.pack(">IIBBBBB", width, len(rows), depth, colours, 0, 0, interlaced)
    return SIGNATURE + chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(bytes(raw))) + chunk(b"IEND", b"")


def filtered(how: int, row: bytes, before: bytes, bpp: int) -> bytes:
    done = bytearray()
    for at, value in enumerate(row):
        left = row[at - bpp] if at >= bpp else 0
        corner = before[at - bpp] if at >= bpp else 0
        up = before[at]
        guess = left + up - corner
        nearest = min((left, up, corner), key=lambda one: abs(guess - one))
        done.append((value - (0, left, up, (left + up) // 2, nearest)[how]) & 255)
    return bytes(done)


WHOLE = (30_000, 30_000)
"""Room for a picture as it is."""


def pixels(picture: Raster) -> list[list[Pixel]]:
    return [[(row[at], row[at + 1], row[at + 2]) for at in range(0, len(row), 3)] for row in picture.rows]


def drawing(width: int, height: int) -> Raster:
    """Bands of colours and a gradient."""
    return Raster(
        width,
        height,
        tuple(
            bytes(
                value
                for x in range(width)
                for value in (x * 255 // width, y * 255 // height, 255 if (x // 5 + y // 5) % 2 else 0)
            )
            for y in range(height)
        ),
    )


@given(st.data())
@settings(max_examples=60)
def test_a_png_of_any_filter_and_colour_type_is_read_as_it_was_written(data: st.DataObject) -> None:
    colours = data.draw(st.sampled_from([0, 2, 4, 6]))
    channels = {0: 1, 2: 3, 4: 2, 6: 4}[colours]
    width, height = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 7))
    rows = [data.draw(st.binary(min_size=width * channels, max_size=width * channels)) for _ in range(height)]
    how = data.draw(st.lists(st.integers(0, 4), min_size=height, max_size=height))
    found = pixels(decode_png(png(rows, width, colours=colours, filters=how.__getitem__), *WHOLE))
    for row, line in zip(rows, found, strict=True):
        for x, pixel in enumerate(line):
            *colour, alpha = row[x * channels : (x + 1) * channels] + b"\xff" * (channels in (1, 3))
            spread = colour * 3 if len(colour) == 1 else colour
            assert pixel == tuple(255 - (255 - value) * alpha // 255 for value in spread)


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_a_palette_of_any_depth_is_looked_up(depth: int) -> None:
    palette = bytes(range(3 << depth)) if depth < 8 else bytes(n % 256 for n in range(768))
    per = 8 // depth
    numbers = [n % (1 << depth) for n in range(2 * per)]
    packed = bytes(
        sum(value << (8 - depth * (place + 1)) for place, value in enumerate(numbers[at : at + per]))
        for at in range(0, len(numbers), per)
    )
    found = decode_png(png([packed], len(numbers), colours=3, depth=depth, extra=chunk(b"PLTE", palette)), *WHOLE)
    assert pixels(found)[0] == [tuple(palette[3 * n : 3 * n + 3]) for n in numbers]


def test_sixteen_bits_are_read_by_their_upper_half() -> None:
    row = bytes([10, 99, 20, 98, 30, 97])
    assert pixels(decode_png(png([row], 1, depth=16), *WHOLE)) == [[(10, 20, 30)]]


def test_a_picture_is_scaled_to_the_mean_of_what_a_pixel_stands_for() -> None:
    rows = [bytes([0, 0, 0, 100, 100, 100]), bytes([200, 200, 200, 100, 100, 100])]
    assert pixels(decode_png(png(rows, 2), 1, 1)) == [[(100, 100, 100)]]


def test_sixels_decode_to_the_same_picture() -> None:
    picture = drawing(37, 23)
    found = unsixeled(encode_sixel(picture))
    assert len(found) == 23
    assert all(len(row) == 37 for row in found)
    palette, rows = quantise(picture)
    assert len(palette) <= 255
    for row, numbers in zip(found, rows, strict=True):
        for pixel, number in zip(row, numbers, strict=True):
            assert pixel is not None
            assert max(abs(a - b) for a, b in zip(pixel, palette[number], strict=True)) <= 2
    worst = [max(abs(a - b) for a, b in zip(p, q, strict=True)) for p, q in matched(picture, found)]
    assert sum(worst) / len(worst) < 12


def test_few_colours_are_kept_exactly() -> None:
    picture = Raster(3, 1, (bytes([1, 2, 3, 250, 128, 7, 1, 2, 3]),))
    assert quantise(picture) == ([(1, 2, 3), (250, 128, 7)], [bytes([0, 1, 0])])


def matched(picture: Raster, found: list[list[Pixel | None]]) -> list[tuple[Pixel, Pixel]]:
    return [
        (one, other)
        for line, others in zip(pixels(picture), found, strict=True)
        for one, other in zip(line, others, strict=True)
        if other is not None
    ]


def unsixeled(sequence: str) -> list[list[Pixel | None]]:
    """A decoder for tests, strict about what it reads."""
    match = re.fullmatch(r'\x1bP0;1;0q"1;1;(\d+);(\d+)([#;!$\-0-9?-~]*)\x1b\\', sequence)
    assert match
    width, height = int(match[1]), int(match[2])
    canvas: list[list[Pixel | None]] = [[None] * width for _ in range(height)]
    palette: dict[int, Pixel] = {}
    x = y = colour = 0
    for token in re.finditer(r"#(\d+);2;(\d+);(\d+);(\d+)|#(\d+)|!(\d+)([?-~])|([?-~])|([$-])", match[3]):
        if token[1]:
            red, green, blue = (round(int(token[n]) * 2.55) for n in (2, 3, 4))
            palette[int(token[1])] = (red, green, blue)
        elif token[5]:
            colour = int(token[5])
        elif token[9]:
            x, y = 0, y + 6 * (token[9] == "-")
        else:
            bits, count = ord(token[7] or token[8]) - 63, int(token[6] or 1)
            for bit in range(6):
                if bits >> bit & 1:
                    canvas[y + bit][x : x + count] = [palette[colour]] * count
            x += count
    return canvas


@pytest.mark.parametrize(("system", "far"), [("truecolor", 0), ("256", 60)])
def test_half_blocks_decode_to_the_same_picture(system: str, far: int) -> None:
    picture = drawing(24, 11)
    file = io.StringIO()
    console = Console(file=file, width=80, force_terminal=True, color_system=system)  # pyright: ignore[reportArgumentType]
    for line in render_half_blocks(picture):
        console.print(line)
    found = unblocked(file.getvalue())
    assert len(found) == 12  # the half row below the last is not drawn
    assert found.pop() == [None] * 24
    for line, others in zip(pixels(picture), found, strict=True):
        for one, other in zip(line, others, strict=True):
            assert other is not None
            assert max(abs(a - b) for a, b in zip(one, other, strict=True)) <= far


def unblocked(sent: str) -> list[list[Pixel | None]]:
    rows: list[list[Pixel | None]] = []
    for line in sent.rstrip("\n").split("\n"):
        upper: list[Pixel | None] = []
        lower: list[Pixel | None] = []
        colour: Pixel | None = None
        ground: Pixel | None = None
        for token in re.finditer(r"\x1b\[([0-9;]*)m|▀", line):
            if token.group() == "▀":
                upper.append(colour)
                lower.append(ground)
                continue
            ground = None
            for part in re.finditer(r"([34]8);(?:2;(\d+);(\d+);(\d+)|5;(\d+))", token[1]):
                found = (int(part[2]), int(part[3]), int(part[4])) if part[2] else of_256(int(part[5]))
                colour, ground = (found, ground) if part[1] == "38" else (colour, found)
        rows += [upper, lower]
    return rows


def of_256(number: int) -> Pixel:
    if number >= 232:
        grey = 8 + 10 * (number - 232)
        return grey, grey, grey
    steps = (0, 95, 135, 175, 215, 255)
    number -= 16
    return steps[number // 36], steps[number // 6 % 6], steps[number % 6]


def test_a_thin_line_on_paper_is_stressed_and_a_full_colour_is_not() -> None:
    transcript, pale, full = b"\xff\xff\xff", bytes([200, 225, 240]), bytes([31, 119, 180])
    found = sharpen_lines(Raster(10, 1, (transcript * 8 + pale + full,))).rows[0]
    assert found[:24] == transcript * 8
    assert found[24:27] == bytes([150, 198, 226])
    assert found[27:] == full


def test_kitty_gets_the_file_in_chunks_and_is_told_to_keep_quiet() -> None:
    noise = drawing(60, 50)
    data = png(noise.rows, 60, extra=chunk(b"teXt", bytes(range(256)) * 40))
    found = draw_picture(data, "image/png", "kitty", Frame(columns=48, cell=(10, 20)))
    parts = re.findall(r"\x1b_G([^;\x1b]*);([A-Za-z0-9+/=]*)\x1b\\", found.data)
    keys = [dict(key.split("=") for key in one.split(",")) for one, _ in parts]
    assert len(parts) > 1
    assert keys[0] == {"a": "T", "f": "100", "q": "2", "C": "1", "c": "6", "r": "2", "m": "1"}
    assert keys[1:] == [{"m": "1"}] * (len(parts) - 2) + [{"m": "0"}]
    assert all(len(body) == CHUNK for _, body in parts[:-1])
    assert b64decode("".join(body for _, body in parts)) == data
    left = re.sub(r"\x1b_G[^\x1b]*\x1b\\", "", found.data)
    assert left == "\n\n\x1b[2A\r\x1b[4C\x1b7\x1b8\x1b[2B\r"


@pytest.mark.parametrize("mime", ["image/png", "image/jpeg"])
def test_iterm_gets_the_file_as_it_is(mime: str) -> None:
    jpeg = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08\x00\x32\x00\x3c" + bytes(14) + b"\xff\xd9"
    data = jpeg if mime == "image/jpeg" else png(drawing(60, 50).rows, 60)
    found = draw_picture(data, mime, "iterm", Frame(columns=48, cell=(10, 20)))
    match = re.search(r"\x1b\]1337;File=([^:]*):([A-Za-z0-9+/=]*)\x07", found.data)
    assert match
    assert dict(key.split("=") for key in match[1].split(";")) == {
        "size": str(len(data)),
        "width": "6",
        "height": "2",
        "preserveAspectRatio": "1",
        "inline": "1",
    }
    assert b64decode(match[2]) == data


def test_a_drawing_has_rows_of_its_own_also_at_the_bottom_of_the_screen() -> None:
    for lines in (1, 9):
        screen = pyte.Screen(20, 10)
        stream = pyte.Stream(screen)
        stream.feed("".join(f"line {n}\r\n" for n in range(lines)))
        stream.feed(place_on_rows("P\nPP\nmoved away", 3).replace("\n", "\r\n") + "after")
        text = [line.rstrip() for line in screen.display]
        below = text.index("after")
        assert text[below - 4 : below - 2] == [f"line {lines - 1}", "    P"]
        assert below == min(9, lines + 3)


def test_a_picture_is_never_larger_than_its_room() -> None:
    data = png([bytes(3 * 200)] * 200, 200, filters=lambda _: 1)
    frame = Frame(columns=30, rows=10, cell=(8, 16))
    assert draw_picture(data, "image/png", "kitty", frame).rows == 10
    sixels = draw_picture(data, "image/png", "sixel", frame)
    assert sixels.rows <= 10
    assert '"1;1;156;156' in sixels.data
    lines = draw_picture(data, "image/png", "blocks", frame).lines
    assert (len(lines), lines[0].cell_len) == (10, 20)


SOUND = png(drawing(20, 20).rows, 20)
BOMB = SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", 4000, 4000, 8, 6, 0, 0, 0))
HOSTILE = {
    "nothing": b"",
    "no picture": b"\x1b]0;owned\x07" * 10,
    "cut off": SOUND[:-20],
    "cut in the data": SIGNATURE
    + chunk(b"IHDR", struct.pack(">IIBBBBB", 20, 20, 8, 2, 0, 0, 0))
    + chunk(b"IDAT", zlib.compress(bytes(61)))
    + chunk(b"IEND", b""),
    "damaged": SOUND[:60] + bytes([SOUND[60] ^ 1]) + SOUND[61:],
    "no data": SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", 9, 9, 8, 2, 0, 0, 0)) + chunk(b"IEND", b""),
    "no pixels": SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", 0, 9, 8, 2, 0, 0, 0)) + chunk(b"IEND", b""),
    "huge": SIGNATURE + chunk(b"IHDR", struct.pack(">IIBBBBB", 2**31, 2**31, 8, 2, 0, 0, 0)) + chunk(b"IEND", b""),
    "bomb": BOMB + chunk(b"IDAT", zlib.compress(bytes(4000 * 4000 * 4))) + chunk(b"IEND", b""),
    "more rows than said": BOMB + chunk(b"IDAT", b"\x00" * 99) + chunk(b"IEND", b""),
    "unknown filter": png([bytes(6)], 2, filters=lambda _: 0).replace(
        zlib.compress(b"\0" * 7), zlib.compress(b"\7" + b"\0" * 6)
    ),
    "interlaced": png([bytes(6)], 2, interlaced=1),
    "no palette": png([bytes(2)], 2, colours=3),
    "many parts": SOUND[:33] + chunk(b"aaAa", b"") * 150_000 + SOUND[33:],
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("way", ["sixel", "blocks"])
def test_a_hostile_picture_is_refused_in_words_and_in_time(name: str, way: str) -> None:
    begun = time.process_time()
    with pytest.raises(BadPicture) as refused:
        draw_picture(HOSTILE[name], "image/png", way, Frame(columns=40))  # pyright: ignore[reportArgumentType]
    assert re.fullmatch(r"it [ -~]{5,60}", str(refused.value))
    assert time.process_time() - begun < 20


@given(data=st.binary(max_size=300), at=st.integers(0, 400), way=st.sampled_from(["sixel", "blocks", "kitty", "iterm"]))
@settings(max_examples=150)
def test_no_picture_raises_anything_else(data: bytes, at: int, way: str) -> None:
    for file in (data, SIGNATURE + data, SOUND[:at] + data + SOUND[at:], SOUND[: at % len(SOUND)] + data):
        for mime in ("image/png", "image/jpeg", "image/svg+xml"):
            try:
                drawing = draw_picture(file, mime, way, Frame(columns=20))  # pyright: ignore[reportArgumentType]
            except BadPicture:
                continue
            assert re.fullmatch(r"[\n\r -~]*", re.sub(r"\x1b[_P\]\[78\\]|\x07", "", drawing.data))


def test_unpacking_stops_when_it_takes_too_long() -> None:
    with pytest.raises(BadPicture, match="takes too long"):
        decode_png(SOUND, *WHOLE, seconds=-1.0)


@pytest.mark.parametrize(
    ("environ", "way"),
    [
        ({"TERM": "xterm-256color"}, "blocks"),
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, "kitty"),
        ({"TERM": "xterm-ghostty", "TERM_PROGRAM": "ghostty"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm"),
        ({"TERM": "xterm-256color", "ITERM_SESSION_ID": "w0"}, "iterm"),
        ({"TERM": "xterm-256color", "WEZTERM_PANE": "0"}, "iterm"),
        ({"TERM": "foot"}, "sixel"),
        ({"TERM": "screen-256color", "KITTY_WINDOW_ID": "1"}, "blocks"),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/x"}, "blocks"),
        ({"TERM": "dumb", "KITTY_WINDOW_ID": "1"}, "path"),
        ({"TERM": "xterm-kitty", "NO_COLOR": "1"}, "path"),
        ({}, "path"),
    ],
)
def test_the_way_goes_by_what_the_terminal_says_of_itself(environ: dict[str, str], way: str) -> None:
    assert choose_protocol("auto", environ, colour=True) == way


def test_what_is_asked_for_is_done_but_never_without_colours() -> None:
    assert choose_protocol("sixel", {"TERM": "tmux", "TMUX": "x"}, colour=True) == "sixel"
    assert choose_protocol("kitty", {"TERM": "xterm-kitty"}, colour=False) == "path"
