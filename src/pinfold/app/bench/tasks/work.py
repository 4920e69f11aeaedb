"""Conversations about issues, pull requests and support tickets."""

from __future__ import annotations

from pinfold.app.bench.task import Task, Turn

TASKS = (
    Task(
        name="triage the bugs",
        domain="issue trackers",
        servers=("issues",),
        turns=(
            Turn(
                asks="Which open bugs of acme/api have nobody assigned?",
                does='found = list_issues(repository="acme/api", labels=["bug"])["issues"]\nfree = [one for one in found if one["assignee"] is None]\nprint(len(found), [(one["number"], one["title"]) for one in free])',
                says="Of {0} open bugs these have nobody: {1}.",
            ),
            Turn(
                asks="Assign Lena to those, and to 102 too.",
                does='numbers = [one["number"] for one in free] + [102]\nfor number in numbers:\n    update_issue(repository="acme/api", issue_number=number, assignee="lena")\nprint(len(numbers))',
                says="Lena has {0} more issues now.",
            ),
            Turn(
                asks="Comment on 102 that it will be looked at this week.",
                does='print(add_issue_comment(repository="acme/api", issue_number=102, body="We will look at this during the week.")["id"])',
                says="Commented (id {0}).",
            ),
        ),
    ),
    Task(
        name="report a crash",
        domain="issue trackers",
        servers=("issues", "support"),
        turns=(
            Turn(
                asks="Is there already an issue about uploads that fail?",
                does='print([(one["number"], one["title"], one["state"]) for one in search_issues(query="upload fails")["issues"]])',
                says="These are about failing uploads, as listed.",
                reads=True,
            ),
            Turn(
                asks="Open one in acme/web: 'Upload crashes on files over 2 GB', label bug.",
                does='made = create_issue(repository="acme/web", title="Upload crashes on files over 2 GB", labels=["bug"])\nprint(made["number"], made["html_url"])',
                says="It is number {0}: {1}",
            ),
            Turn(
                asks="Give it to Marco.",
                does='print(update_issue(repository="acme/web", issue_number=made["number"], assignee="marco")["assignee"])',
                says="{0} has it now.",
            ),
            Turn(
                asks="Also label it performance.",
                does='print(update_issue(repository="acme/web", issue_number=made["number"], labels=["bug", "performance"])["labels"])',
                says="Its labels are {0}.",
            ),
            Turn(
                asks="And leave a comment: 'Seen on Linux and macOS'.",
                does='add_issue_comment(repository="acme/web", issue_number=made["number"], body="Seen on Linux and macOS")\nprint(made["number"])',
                says="The comment is on {0}.",
            ),
            Turn(
                asks="Is there a support ticket about a crash as well?",
                does='print([(one["ticket_id"], one["status"]) for one in search_tickets(query="crash")["tickets"]])',
                says="There are several, as listed.",
                reads=True,
            ),
        ),
    ),
    Task(
        name="merge what is ready",
        domain="issue trackers",
        servers=("issues", "messages"),
        turns=(
            Turn(
                asks="Which open pull requests of acme/web could be merged right now?",
                does='ready = [one for one in list_pull_requests(repository="acme/web")["pull_requests"] if one["checks"] == "success" and one["reviews"] == "approved"]\nprint([(one["number"], one["title"]) for one in ready])',
                says="These are approved and green: {0}.",
            ),
            Turn(
                asks="Merge the smallest of them, squashed.",
                does='sizes = {one["number"]: get_pull_request(repository="acme/web", pull_number=one["number"]) for one in ready}\nsmallest = min(sizes, key=lambda one: sizes[one]["additions"] + sizes[one]["deletions"])\nprint(smallest, merge_pull_request(repository="acme/web", pull_number=smallest, method="squash")["sha"])',
                says="Merged {0} as {1}.",
            ),
            Turn(
                asks="Try 209 as well.",
                looks=('merge_pull_request(repository="acme/web", pull_number=209)',),
                does='print(get_pull_request(repository="acme/web", pull_number=209)["reviews"])',
                says="209 cannot be merged: its review is {0}.",
            ),
            Turn(
                asks="Tell Emil what was merged.",
                does='emil = get_user_id(name="Emil")["user_id"]\nprint(send_message(receiver_id=emil, text=f"Merged: {smallest}")["delivered"])',
                says="Emil knows ({0}).",
            ),
        ),
    ),
    Task(
        name="who carries the most",
        domain="issue trackers",
        servers=("issues", "messages"),
        turns=(
            Turn(
                asks="How are the open issues of both repositories, acme/api and acme/web, spread over people?",
                does='from collections import Counter\nopen_ = []\nfor repository in ("acme/api", "acme/web"):\n    page = 1\n    while True:\n        got = list_issues(repository=repository, page=page)\n        open_ += got["issues"]\n        page += 1\n        if not got["has_more"]:\n            break\ncount = Counter(one["assignee"] or "nobody" for one in open_)\nprint(len(open_), dict(count.most_common()))',
                says="{0} issues are open: {1}.",
            ),
            Turn(
                asks="Which of them is the oldest, and whose is it?",
                does='oldest = min(open_, key=lambda one: one["created_at"])\nprint(oldest["number"], oldest["title"], oldest["assignee"] or "nobody")',
                says="The oldest is {0}, {1!s}; it belongs to {2}.",
            ),
            Turn(
                asks="How many of them are bugs?",
                does='print(sum("bug" in one["labels"] for one in open_))',
                says="{0} are bugs.",
            ),
            Turn(
                asks="And which had the most comments?",
                does='most = max(open_, key=lambda one: one["comments"])\nprint(most["number"], most["comments"])',
                says="Number {0}, with {1} comments.",
            ),
            Turn(
                asks="Write to Ben how many are open.",
                does='ben = get_user_id(name="Ben")["user_id"]\nprint(send_message(receiver_id=ben, text=f"{len(open_)} issues are open.")["delivered"])',
                says="Ben knows ({0}).",
            ),
        ),
    ),
    Task(
        name="close an issue",
        domain="issue trackers",
        servers=("issues",),
        turns=(
            Turn(
                asks="What is issue 115 of acme/web about?",
                does='print(get_issue(repository="acme/web", issue_number=115))',
                says="It says what goes wrong in its title; the steps to reproduce are in its description.",
                reads=True,
            ),
            Turn(
                asks="That was fixed last week. Say so in a comment and close it.",
                does='add_issue_comment(repository="acme/web", issue_number=115, body="Fixed last week.")\nprint(update_issue(repository="acme/web", issue_number=115, state="closed")["state"])',
                says="I commented on it; it is {0}.",
            ),
        ),
    ),
    Task(
        name="urgent tickets first",
        domain="tickets",
        servers=("support", "messages"),
        turns=(
            Turn(
                asks="Which urgent tickets are open and nobody's?",
                does='urgent = list_tickets(priority="urgent", unassigned=True)["tickets"]\nprint([(one["ticket_id"], one["title"]) for one in urgent])',
                says="These: {0}.",
            ),
            Turn(
                asks="Who of the agents has the least to do?",
                does='agents = list_agents()\nfree = min((one for one in agents if one["online"]), key=lambda one: one["open_tickets"])\nprint(free["agent"], free["open_tickets"])',
                says="{0}, with {1} open tickets.",
            ),
            Turn(
                asks="Give the urgent ones to that agent.",
                does='for one in urgent:\n    assign_ticket(ticket_id=one["ticket_id"], agent=free["agent"])\nprint(len(urgent), free["agent"])',
                says="{0} tickets went to {1}.",
            ),
            Turn(
                asks="Tell Carla who took them over.",
                does='carla = get_user_id(name="Carla")["user_id"]\nprint(send_message(receiver_id=carla, text=f"The urgent tickets are with {free[\'agent\']}.")["delivered"])',
                says="Carla knows ({0}).",
            ),
        ),
    ),
    Task(
        name="one ticket from start to end",
        domain="tickets",
        servers=("support",),
        turns=(
            Turn(
                asks="Create a ticket 'Printer on floor 2 is offline' with high priority.",
                does='ticket = create_ticket(title="Printer on floor 2 is offline", priority="high")["ticket_id"]\nprint(ticket)',
                says="It is ticket {0}.",
            ),
            Turn(
                asks="Assign it to Noah.",
                does='print(assign_ticket(ticket_id=ticket, agent="noah")["assignee"])',
                says="{0} has it.",
            ),
            Turn(
                asks="Add a note that the cable was replaced.",
                does='print(add_note(ticket_id=ticket, text="The cable was replaced.")["notes"])',
                says="Noted; it has {0} note.",
            ),
            Turn(
                asks="It works again: resolve it with 'New cable'.",
                does='print(resolve_ticket(ticket_id=ticket, resolution="New cable")["status"])',
                says="It is {0} until the requester agrees.",
            ),
            Turn(
                asks="They agreed. Close it.",
                does='print(close_ticket(ticket_id=ticket)["status"])',
                says="Ticket is {0}.",
            ),
        ),
    ),
    Task(
        name="how fast do we answer",
        domain="tickets",
        servers=("support", "drive"),
        turns=(
            Turn(
                asks="What is the mean time to the first reply, by channel, over all tickets?",
                does='from statistics import mean\ntickets, page = [], 1\nwhile True:\n    got = list_tickets(status="all", page=page)\n    tickets += got["tickets"]\n    page += 1\n    if not got["has_more"]:\n        break\nby = {}\nfor one in tickets:\n    by.setdefault(one["channel"], []).append(one["first_reply_hours"])\nmeans = {channel: round(mean(hours), 1) for channel, hours in by.items()}\nprint(means)',
                says="In hours: {0}.",
            ),
            Turn(
                asks="And how many tickets took longer than a day?",
                does='slow = [one for one in tickets if one["first_reply_hours"] > 24]\nprint(len(slow), len(tickets))',
                says="{0} of {1}.",
            ),
            Turn(
                asks="Which title is most frequent among the slow ones?",
                does='from collections import Counter\nprint(Counter(one["title"] for one in slow).most_common(1)[0])',
                says="{0}.",
            ),
            Turn(
                asks="Raise the priority of the slow ones that are still open to high.",
                does='open_ = [one for one in slow if one["status"] == "open"]\nfor one in open_:\n    edit_ticket(ticket_id=one["ticket_id"], priority="high")\nprint(len(open_))',
                says="I raised {0}.",
            ),
            Turn(
                asks="Save the means by channel as /reports/replies.txt.",
                does='print(write_file(path="/reports/replies.txt", content=str(means))["path"])',
                says="They are in {0}.",
            ),
        ),
    ),
    Task(
        name="the same complaint",
        domain="tickets",
        servers=("support", "messages"),
        turns=(
            Turn(
                asks="How many tickets complain about a missing refund, and how many of them are open?",
                does='found = search_tickets(query="refund missing")["tickets"]\nprint(len(found), sum(one["status"] == "open" for one in found))',
                says="{0}, of which {1} are open.",
            ),
            Turn(
                asks="Tell Fatima how many are open, in a message.",
                does='fatima = get_user_id(name="Fatima")["user_id"]\nopen_ = sum(one["status"] == "open" for one in found)\nsend_message(receiver_id=fatima, text=f"{open_} tickets about missing refunds are open.")\nprint(open_)',
                says="I told Fatima that {0} are open.",
            ),
            Turn(
                asks="Close the oldest open one.",
                does='oldest = min((one for one in found if one["status"] == "open"), key=lambda one: one["opened_on"])\nprint(close_ticket(ticket_id=oldest["ticket_id"])["ticket_id"])',
                says="Ticket {0} is closed.",
            ),
        ),
    ),
    Task(
        name="ticket and issue belong together",
        domain="tickets",
        servers=("support", "issues"),
        turns=(
            Turn(
                asks="Look at ticket 310.",
                does="print(get_ticket(ticket_id=310))",
                says="It is as shown: title, state, priority and who asked.",
                reads=True,
            ),
            Turn(
                asks="Make an issue of it in acme/api with the same title, label bug.",
                does='title = get_ticket(ticket_id=310)["title"]\nissue = create_issue(repository="acme/api", title=title, labels=["bug"])\nprint(issue["number"])',
                says="It is issue {0}.",
            ),
            Turn(
                asks="Note the number of the issue on the ticket.",
                does='add_note(ticket_id=310, text=f"Tracked as issue {issue[\'number\']} of acme/api")\nprint(issue["number"])',
                says="The ticket names issue {0} now.",
            ),
            Turn(
                asks="And set the ticket to pending.",
                does='print(edit_ticket(ticket_id=310, status="pending")["status"])',
                says="It is {0}.",
            ),
        ),
    ),
)
