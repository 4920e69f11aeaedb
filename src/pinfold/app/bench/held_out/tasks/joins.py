"""Questions that two servers answer only together."""

from __future__ import annotations

from pinfold.app.bench.task import Task, Turn

TASKS = (
    Task(
        name="gold customers and their deals",
        domain="join two servers",
        servers=("shop", "crm"),
        turns=(
            Turn(
                asks="Which of our gold customers in the shop have a deal in the CRM that is neither won nor lost?",
                looks=(
                    'gold = list_customers(tier="gold")\nprint(str(gold)[:400])',
                    'contacts = {one["name"]: search_contacts(query=one["email"]) for one in gold}\nprint(str(contacts)[:500])',
                    'deals = {name: list_deals(contact_id=found["results"][0]["id"]) for name, found in contacts.items() if found["results"]}\nprint(str(deals)[:500])',
                ),
                does='open_ = {}\nfor name, found in deals.items():\n    for one in found["results"]:\n        if one["properties"]["dealstage"] not in ("won", "lost"):\n            open_.setdefault(name, []).append(one["properties"]["dealname"])\nprint(open_)',
                says="These: {0}.",
            ),
        ),
    ),
    Task(
        name="the budget moves",
        domain="join two servers",
        servers=("calendar", "messages"),
        turns=(
            Turn(
                asks="Tell everybody who is in the Budget meeting at 12:30 on 4 March 2026 that it will be in Room 2.",
                looks=(
                    'events = list_events(start="2026-03-04T12:30:00", end="2026-03-04T13:00:00", query="Budget")\nusers = list_users()\nprint(events, users)',
                ),
                does='ids = {one["name"].lower(): one["user_id"] for one in users}\nguests = [email.partition("@")[0] for email in events[0]["attendees"]]\nfor guest in guests:\n    send_message(receiver_id=ids[guest], text="The Budget meeting at 12:30 on 4 March will be in Room 2.")\nprint(guests)',
                says="I told {0}.",
            ),
        ),
    ),
    Task(
        name="incidents without an issue",
        domain="join two servers",
        servers=("monitor", "issues"),
        turns=(
            Turn(
                asks="For which open incidents is there no open issue about the service?",
                looks=(
                    "incidents = list_incidents()\nprint(str(incidents)[:500])",
                    'services = [one["service"] for one in incidents["incidents"]]\nissues = {one: search_issues(query=one, state="open") for one in services}\nprint(str(issues)[:500])',
                ),
                does='print([one for one in services if not issues[one]["issues"]])',
                says="There is none for {0}.",
            ),
        ),
    ),
    Task(
        name="what the release notes miss",
        domain="join two servers",
        servers=("git", "wiki"),
        turns=(
            Turn(
                asks="Which commits since 'Release 1.4' are missing on the wiki page 'Release notes 1.5'?",
                looks=(
                    'log = git_log(max_count=30)\npages = search_pages(query="Release notes 1.5")\nprint(log[:300])\nprint(str(pages)[:400])',
                    'page = get_page(page_id=pages["results"][0]["id"])\nprint(page)',
                ),
                does='import re\nsince = log[: log.index("Release 1.4")]\ncommits = re.findall(r"commit (\\w+)\\n.*\\n.*\\n\\n    (.+)", since)\nprint([one for one in commits if one[0] not in page["body"]])',
                says="Missing are {0}.",
            ),
        ),
    ),
    Task(
        name="urgent for large customers",
        domain="join two servers",
        servers=("support", "crm"),
        turns=(
            Turn(
                asks="Which urgent open tickets come from contacts of enterprise companies in the CRM?",
                looks=(
                    'urgent = list_tickets(priority="urgent")\nlarge = list_companies(tier="enterprise")\nprint(str(urgent)[:400])\nprint(str(large)[:400])',
                    'contacts = {one["ticket_id"]: search_contacts(query=one["requester"]) for one in urgent["tickets"]}\nprint(str(contacts)[:400])',
                ),
                does='names = {one["id"]: one["properties"]["name"] for one in large["results"]}\nfound = {}\nfor ticket, contact in contacts.items():\n    for one in contact["results"]:\n        company = one["properties"]["company_id"]\n        if company in names:\n            found[ticket] = names[company]\nprint(found)',
                says="Ticket and company: {0}.",
            ),
        ),
    ),
    Task(
        name="enough of the best sellers",
        domain="join two servers",
        servers=("warehouse", "shop"),
        turns=(
            Turn(
                asks="Which five SKUs sold the most units in 2025 according to the warehouse, and how many of each has the shop in stock?",
                looks=(
                    "print(list_tables())",
                    'print(describe_table(table_name="sales"))',
                    "top = read_query(query=\"SELECT sku, SUM(units) AS units FROM sales WHERE sold_on LIKE '2025%' GROUP BY sku ORDER BY 2 DESC LIMIT 5\")\nprint(top)",
                ),
                does='stock = [get_product(sku=one["sku"]) for one in top]\nprint(stock)',
                says="Units sold and pieces in stock: SKU-024 367 and 19, SKU-014 365 and 41, SKU-005 353 and 49, SKU-001 336 and 44, SKU-017 332 and 32.",
                reads=True,
            ),
        ),
    ),
)
