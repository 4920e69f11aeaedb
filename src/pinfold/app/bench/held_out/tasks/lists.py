"""Lists that are filtered, each of one server."""

from __future__ import annotations

from pinfold.app.bench.task import Task, Turn

TASKS = (
    Task(
        name="issues nobody speaks of",
        domain="list and filter",
        servers=("issues",),
        turns=(
            Turn(
                asks="Which open issues of acme/web labelled security has nobody commented on?",
                looks=(
                    'found = list_issues(repository="acme/web", labels=["security"])\nprint(str(found)[:500])',
                ),
                does='print([(one["number"], one["title"]) for one in found["issues"] if not one["comments"]])',
                says="Nobody has commented on these: {0}.",
            ),
            Turn(
                asks="And which of all of them is the oldest?",
                does='oldest = min(found["issues"], key=lambda one: one["created_at"])\nprint(oldest["number"], oldest["title"])',
                says="{0}, {1}.",
            ),
        ),
    ),
    Task(
        name="deals of April",
        domain="list and filter",
        servers=("crm",),
        turns=(
            Turn(
                asks="Which deals in the proposal stage should close in April 2026, and what are they worth together?",
                looks=('deals = list_deals(stage="proposal")\nprint(str(deals)[:500])',),
                does='april = [one["properties"] for one in deals["results"] if one["properties"]["closedate"].startswith("2026-04")]\nprint([one["dealname"] for one in april], sum(float(one["amount"] or 0) for one in april))',
                says="{0}, together {1} euro.",
            ),
        ),
    ),
    Task(
        name="critical alerts",
        domain="list and filter",
        servers=("monitor",),
        turns=(
            Turn(
                asks="Which critical alerts are firing right now?",
                looks=('found = list_alerts(state="firing", severity="critical")\nprint(str(found)[:500])',),
                does='print([(one["uid"], one["labels"]["service"], one["rule"]) for one in found["alerts"]])',
                says="These: {0}.",
            ),
            Turn(
                asks="Is any of them in us-1?",
                does='print([one["uid"] for one in found["alerts"] if one["labels"]["region"] == "us-1"])',
                says="In us-1: {0}.",
            ),
        ),
    ),
    Task(
        name="breakfast in London",
        domain="list and filter",
        servers=("travel",),
        turns=(
            Turn(
                asks="Find hotels in London with breakfast for at most 150 euro a night, nearest to the centre first.",
                does='found = search_hotels(city="London", max_price_per_night=150, breakfast=True)\nfound.sort(key=lambda one: one["distance_to_centre_km"])\nprint([(one["name"], one["price_per_night"], one["distance_to_centre_km"]) for one in found])',
                says="With price and kilometres to the centre: {0}.",
            ),
        ),
    ),
    Task(
        name="where Carla need not go",
        domain="list and filter",
        servers=("calendar",),
        turns=(
            Turn(
                asks="Which events of carla@acme.example on 3 and 4 March 2026 are online?",
                looks=(
                    'events = list_events(start="2026-03-03T00:00:00", end="2026-03-05T00:00:00", attendee="carla@acme.example")\nprint(str(events)[:500])',
                ),
                does='print([(one["title"], one["start"]) for one in events if one["location"] == "online"])',
                says="Online are {0}.",
            ),
        ),
    ),
)
