"""What does not come right at once: the user meant something else, or a tool refuses."""

from __future__ import annotations

from pinfold.app.bench.task import Task, Turn

TASKS = (
    Task(
        name="lunch on another day",
        domain="correction",
        servers=("calendar",),
        turns=(
            Turn(
                asks="Put 'Lunch with Ben' into my work calendar on 5 March 2026, 12:00 to 13:00.",
                does='event = create_event(title="Lunch with Ben", start="2026-03-05T12:00:00", end="2026-03-05T13:00:00")\nprint(event)',
                says="It is in your calendar on 5 March at 12:00 (evt_041).",
                reads=True,
            ),
            Turn(
                asks="No, I meant the 6th.",
                does='update_event(event_id=event["id"], start="2026-03-06T12:00:00", end="2026-03-06T13:00:00")\nprint("done")',
                says="It is on 6 March at 12:00 now.",
            ),
            Turn(
                asks="And invite Ben, ben@acme.example.",
                does='add_attendee(event_id=event["id"], email="ben@acme.example")\nprint("done")',
                says="Ben is invited.",
            ),
        ),
    ),
    Task(
        name="the wrong month",
        domain="correction",
        servers=("bank",),
        turns=(
            Turn(
                asks="What did I spend on dining from CHK-1 in January 2026?",
                looks=(
                    'found = list_transactions(account_id="CHK-1", start_date="2026-01-01", end_date="2026-01-31", category="dining")\nprint(str(found)[:300])',
                ),
                does='print(round(-sum(one["amount"] for one in found["transactions"]), 2))',
                says="{0} euro.",
            ),
            Turn(
                asks="Sorry, I meant February.",
                does='found = list_transactions(account_id="CHK-1", start_date="2026-02-01", end_date="2026-02-28", category="dining")\nprint(round(-sum(one["amount"] for one in found["transactions"]), 2))',
                says="{0} euro in February.",
            ),
            Turn(
                asks="Leave out Casa Lupo, that was for work.",
                does='print(round(-sum(one["amount"] for one in found["transactions"] if one["merchant"] != "Casa Lupo"), 2))',
                says="{0} euro without Casa Lupo.",
            ),
        ),
    ),
    Task(
        name="only what is still open",
        domain="correction",
        servers=("crm", "messages"),
        turns=(
            Turn(
                asks="How many deals does Lena have, and what are they worth?",
                looks=('deals = list_deals(owner="Lena")\nprint(str(deals)[:400])',),
                does='print(deals["total"], sum(float(one["properties"]["amount"] or 0) for one in deals["results"]))',
                says="{0} deals, {1} euro.",
            ),
            Turn(
                asks="I meant only those that are neither won nor lost.",
                does='open_ = [one["properties"] for one in deals["results"] if one["properties"]["dealstage"] not in ("won", "lost")]\nworth = sum(float(one["amount"] or 0) for one in open_)\nprint(len(open_), worth)',
                says="{0} deals, {1} euro.",
            ),
            Turn(
                asks="Write that to Fatima.",
                looks=('fatima = get_user_id(name="Fatima")\nprint(fatima)',),
                does='send_message(receiver_id=fatima["user_id"], text=f"Lena has {len(open_)} open deals worth {worth} euro.")\nprint("done")',
                says="Fatima knows.",
            ),
        ),
    ),
)
