"""One call, one answer."""

from __future__ import annotations

from pinfold.app.bench.task import Task, Turn

TASKS = (
    Task(
        name="state of an order",
        domain="one call",
        servers=("shop",),
        turns=(
            Turn(
                asks="What is the state of order O-5031, and what did it come to?",
                does='print(get_order(order_id="O-5031"))',
                says="O-5031 is paid, but not shipped yet; it came to 598.29 euro.",
                reads=True,
            ),
        ),
    ),
    Task(
        name="half past three in Tokyo",
        domain="one call",
        servers=("clock",),
        turns=(
            Turn(
                asks="It is 15:30 in Berlin. What time is that in Tokyo?",
                does='print(convert_time(source_timezone="Europe/Berlin", time="15:30", target_timezone="Asia/Tokyo"))',
                says="It is 23:30 in Tokyo.",
                reads=True,
            ),
        ),
    ),
    Task(
        name="what is saved",
        domain="one call",
        servers=("bank",),
        turns=(
            Turn(
                asks="How much is on my savings account SAV-1?",
                does='print(get_balance(account_id="SAV-1"))',
                says="There are 18,900.00 euro on it.",
                reads=True,
            ),
        ),
    ),
    Task(
        name="tomorrow in Paris",
        domain="one call",
        servers=("travel",),
        turns=(
            Turn(
                asks="How warm will it be in Paris tomorrow, and how likely is rain?",
                does='day = get_forecast(city="Paris", days=1)[0]\nprint(day["high_c"], day["rain_probability"])',
                says="Up to {0} degrees; rain has a probability of {1} percent.",
            ),
        ),
    ),
    Task(
        name="one alert",
        domain="one call",
        servers=("monitor",),
        turns=(
            Turn(
                asks="What is alert ALR-2107 about, and is somebody on it?",
                does='print(get_alert(uid="ALR-2107"))',
                says="The disk of catalog in us-1 was almost full, critical. It is resolved; nobody had acknowledged it.",
                reads=True,
            ),
        ),
    ),
    Task(
        name="a ticket for Olga",
        domain="one call",
        servers=("support",),
        turns=(
            Turn(
                asks="Assign ticket 318 to Olga.",
                does='assign_ticket(ticket_id=318, agent="olga")\nprint("done")',
                says="Ticket 318 is with Olga now.",
            ),
        ),
    ),
    Task(
        name="a lost card",
        domain="one call",
        servers=("bank",),
        turns=(
            Turn(
                asks="I have lost my credit card 9902. Freeze it, please.",
                does='freeze_card(card_id="9902")\nprint("done")',
                says="Your card 9902 is frozen.",
            ),
        ),
    ),
    Task(
        name="a hotel in London",
        domain="one call",
        servers=("wiki",),
        turns=(
            Turn(
                asks="What does page pg_1004 of the wiki allow for a hotel in London?",
                does='print(get_page(page_id="pg_1004"))',
                says="Up to 190 euro a night.",
                reads=True,
            ),
        ),
    ),
    Task(
        name="a call to remember",
        domain="one call",
        servers=("crm",),
        turns=(
            Turn(
                asks="Log a call on deal 3107: they want the contract by Friday.",
                does='log_activity(deal_id="3107", kind="call", text="They want the contract by Friday.")\nprint("done")',
                says="The call is logged on deal 3107.",
            ),
        ),
    ),
    Task(
        name="the last five commits",
        domain="one call",
        servers=("git",),
        turns=(
            Turn(
                asks="What were the last five commits?",
                does="print(git_log(max_count=5))",
                says="Exports are streamed (e5f0a13), Search keeps the filter when a page is turned (7d2b9c6), Retry webhooks three times (b19e4f8), Sessions end after a day (a81d9f0), Invoices show the tax number (0c77e54).",
                reads=True,
            ),
        ),
    ),
    Task(
        name="what is in the database",
        domain="one call",
        servers=("warehouse",),
        turns=(
            Turn(
                asks="Which tables does the warehouse have, and how large are they?",
                does="print(list_tables())",
                says="customers with 120 rows, sales with 1,800 and returns with 90.",
                reads=True,
            ),
        ),
    ),
)
