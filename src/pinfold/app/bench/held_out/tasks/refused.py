"""A tool refuses, and says why."""

from __future__ import annotations

from pinfold.app.bench.task import Task, Turn

TASKS = (
    Task(
        name="the wrong booking",
        domain="failure and retry",
        servers=("travel",),
        turns=(
            Turn(
                asks="Cancel my hotel, booking BK-310.",
                looks=('print(cancel_booking(booking_id="BK-310"))',),
                does='print(list_bookings(kind="hotel"))',
                says="There is no BK-310. Your only hotel is BK-302, on 20 March 2026 for 388 euro. Shall I cancel that?",
                reads=True,
            ),
            Turn(
                asks="Yes, that one.",
                does='print(cancel_booking(booking_id="BK-302")["refund"])',
                says="It is cancelled; {0} euro come back.",
            ),
        ),
    ),
    Task(
        name="a folder that is not there",
        domain="failure and retry",
        servers=("drive", "wiki"),
        turns=(
            Turn(
                asks="Move /reports/outline.md to /archive/2026/outline.md, and put its text on a new wiki page 'Annual report outline' in the ENG space.",
                looks=(
                    'text = read_text_file(path="/reports/outline.md")\nmove_file(source="/reports/outline.md", destination="/archive/2026/outline.md")\nprint(create_page(space="ENG", title="Annual report outline", body=text))',
                ),
                does='create_directory(path="/archive/2026")\nmove_file(source="/reports/outline.md", destination="/archive/2026/outline.md")\nprint(create_page(space="ENG", title="Annual report outline", body=text))',
                says="The file is in /archive/2026, which I had to make first; the page is https://wiki.example/ENG/pg_1047",
                reads=True,
            ),
        ),
    ),
)
