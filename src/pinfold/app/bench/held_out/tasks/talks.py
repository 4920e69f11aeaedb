"""Conversations of three to six turns."""

from __future__ import annotations

from pinfold.app.bench.task import Task, Turn

TASKS = (
    Task(
        name="news of a customer",
        domain="conversation",
        servers=("crm",),
        turns=(
            Turn(
                asks="What do we know about Rosa Adler in the CRM?",
                does='print(search_contacts(query="Rosa Adler"))',
                says="She is a lead at company 706; user7@mail.example, +49 30 450811.",
                reads=True,
            ),
            Turn(
                asks="Which deals do we have with her?",
                does='print(list_deals(contact_id="513"))',
                says="Three: Renewal 18 (lost), Renewal 24 (demo, 16,625 euro) and Training 29 (proposal, 50,125 euro), all Marco's.",
                reads=True,
            ),
            Turn(
                asks="She has a new phone number, +49 30 111222. Save it.",
                does='update_contact(contact_id="513", phone="+49 30 111222")\nprint("done")',
                says="Her number is +49 30 111222 now.",
            ),
            Turn(
                asks="Make a new deal with her: 'Support 2026', 12000 euro, owned by Lena, closing on 30 April 2026.",
                does='print(create_deal(dealname="Support 2026", contact_id="513", amount=12000, owner="Lena", closedate="2026-04-30"))',
                says="It is deal 3145, in the demo stage.",
                reads=True,
            ),
        ),
    ),
    Task(
        name="cards are rejected",
        domain="conversation",
        servers=("monitor", "issues"),
        turns=(
            Turn(
                asks="Which incidents are open right now?",
                does="print(list_incidents())",
                says="INC-81 (search is slow in eu-1), INC-82 (checkout rejects cards), INC-83 (billing sends invoices twice) and INC-84 (mailer queue grows).",
                reads=True,
            ),
            Turn(
                asks="How many requests failed lately in the logs of checkout, and on which pods? Look at 60 lines.",
                looks=(
                    'logs = search_logs(service="checkout", query="failed", limit=60)\nprint(str(logs)[:300])',
                ),
                does='from collections import Counter\nprint(dict(Counter(one["pod"] for one in logs["lines"])))',
                says="By pod: {0}.",
            ),
            Turn(
                asks="Open an issue in acme/api: 'Checkout rejects cards', label bug, for Priya.",
                does='issue = create_issue(repository="acme/api", title="Checkout rejects cards", labels=["bug"], assignee="priya")\nprint(issue)',
                says="It is issue 161: https://code.example/acme/api/issues/161",
                reads=True,
            ),
            Turn(
                asks="Note its number on INC-82 and set that to identified.",
                does='update_incident(incident_id="INC-82", text=f"Tracked as issue {issue[\'number\']} of acme/api", status="identified")\nprint("done")',
                says="INC-82 is identified and names the issue.",
            ),
            Turn(
                asks="Which alerts of checkout are firing?",
                does='print(list_alerts(state="firing", service="checkout"))',
                says="Only ALR-2119: the queue grows in eu-2, a warning.",
                reads=True,
            ),
        ),
    ),
    Task(
        name="two nights in London",
        domain="conversation",
        servers=("travel", "calendar"),
        turns=(
            Turn(
                asks="Find direct flights from BER to LHR on 14 April 2026, cheapest first.",
                does='flights = sorted(search_flights(origin="BER", destination="LHR", date="2026-04-14", max_stops=0), key=lambda one: one["price"])\nprint([(one["flight_id"], one["departs"], one["price"]) for one in flights])',
                says="{0}.",
            ),
            Turn(
                asks="Book the cheapest for Anna Berg.",
                does='flight = book_flight(flight_id=flights[0]["flight_id"], date="2026-04-14", price=flights[0]["price"], traveller="Anna Berg")\nprint(flight["booking_id"], flight["price"])',
                says="Booked as {0} for {1} euro.",
            ),
            Turn(
                asks="And a hotel in London for two nights with at least four stars, as cheap as possible.",
                does='hotel = min(search_hotels(city="London", min_stars=4), key=lambda one: one["price_per_night"])\nroom = book_hotel(hotel_id=hotel["hotel_id"], check_in="2026-04-14", nights=2)\nprint(hotel["name"], room["booking_id"], room["price"])',
                says="{0}, booked as {1} for {2} euro.",
            ),
            Turn(
                asks="Insure the flight, basic cover.",
                does='print(purchase_insurance(booking_id=flight["booking_id"])["price"])',
                says="It is insured, for {0} euro.",
            ),
            Turn(
                asks="Put the trip into my private calendar, from 8:00 on 14 April to 20:00 on 16 April.",
                does='create_event(title="Trip to London", start="2026-04-14T08:00:00", end="2026-04-16T20:00:00", calendar="private")\nprint("done")',
                says="The trip is in your private calendar.",
            ),
        ),
    ),
    Task(
        name="a laptop for a new colleague",
        domain="conversation",
        servers=("wiki",),
        turns=(
            Turn(
                asks="What does the wiki say about laptops for new colleagues?",
                looks=('pages = search_pages(query="laptops")\nprint(str(pages)[:500])',),
                does='print(get_page(page_id="pg_1011"))',
                says="Order it ten working days ahead through Emil: 32 GB of memory for developers, the light model for everybody else. Disks are encrypted; old ones go to room 4.",
                reads=True,
            ),
            Turn(
                asks="Add a line there: 'Keyboards are ordered with the laptop.'",
                does='append_to_page(page_id="pg_1011", text="Keyboards are ordered with the laptop.")\nprint("done")',
                says="The line is on the page.",
            ),
            Turn(
                asks="Who changed the page last before me?",
                does='print(get_page_history(page_id="pg_1011", limit=2))',
                says="Lena, with version 7.",
                reads=True,
            ),
        ),
    ),
    Task(
        name="uploads of four gigabytes",
        domain="conversation",
        servers=("git", "issues"),
        turns=(
            Turn(
                asks="What have I changed in the repository?",
                does="print(git_diff_unstaged())",
                says="The limit for uploads is 4 GB instead of 2 GB (src/limits.py), and the error says how large the upload was (src/upload.py).",
                reads=True,
            ),
            Turn(
                asks="Commit both files with the message 'Allow uploads of 4 GB'.",
                does='git_add(files=["src/upload.py", "src/limits.py"])\nprint(git_commit(message="Allow uploads of 4 GB"))',
                says="{0}.",
            ),
            Turn(
                asks="Which open issues are about uploads?",
                looks=('found = search_issues(query="upload", state="open")\nprint(str(found)[:400])',),
                does='print([(one["number"], one["repository"], one["title"]) for one in found["issues"]])',
                says="{0}.",
            ),
            Turn(
                asks="Comment on the first of them that the limit is 4 GB on the branch upload-limits.",
                does='one = found["issues"][0]\nadd_issue_comment(repository=one["repository"], issue_number=one["number"], body="The limit is 4 GB on the branch upload-limits.")\nprint(one["number"])',
                says="The comment is on {0}.",
            ),
        ),
    ),
    Task(
        name="a refund that never came",
        domain="conversation",
        servers=("support", "shop"),
        turns=(
            Turn(
                asks="What does ticket 333 say?",
                does="print(get_ticket(ticket_id=333))",
                says="It is an urgent ticket by phone of 7 February, 'Refund missing', with Noah and open.",
                reads=True,
            ),
            Turn(
                asks="It is about order O-5033. What happened to that?",
                does='print(get_order(order_id="O-5033"))',
                says="It was delivered: one SKU-017 for 210.95 euro.",
                reads=True,
            ),
            Turn(
                asks="Refund it.",
                does='refund_order(order_id="O-5033")\nprint("done")',
                says="O-5033 is refunded.",
            ),
            Turn(
                asks="Leave a public note on the ticket that the money is on its way.",
                does='add_note(ticket_id=333, text="The money is on its way.", public=True)\nprint("done")',
                says="The note is on the ticket.",
            ),
            Turn(
                asks="Resolve it with 'Refunded'.",
                does='resolve_ticket(ticket_id=333, resolution="Refunded")\nprint("done")',
                says="It is resolved, and pending until the requester agrees.",
            ),
            Turn(
                asks="How many other tickets about refunds are still open?",
                looks=('found = search_tickets(query="refund")\nprint(str(found)[:400])',),
                does='print(sum(one["status"] == "open" for one in found["tickets"]))',
                says="{0} are open.",
            ),
        ),
    ),
)
