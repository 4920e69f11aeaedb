"""Conversations about files, appointments and messages."""

from __future__ import annotations

from pinfold.app.bench.task import Task, Turn

TASKS = (
    Task(
        name="file the old contract",
        domain="files",
        servers=("drive", "messages"),
        turns=(
            Turn(
                asks="Move the contract with Bluepeak, /contracts/bluepeak.txt, into /archive/2025. Make the folder first.",
                does='create_directory(path="/archive/2025")\nmoved = move_file(source="/contracts/bluepeak.txt", destination="/archive/2025")\nprint(moved["destination"])',
                says="The contract is now at {0}.",
            ),
            Turn(
                asks="What notice period does it have?",
                does='print(read_text_file(path="/archive/2025/bluepeak.txt"))',
                says="The notice period is 30 days.",
                reads=True,
            ),
            Turn(
                asks="Put a line 'Archived on 2 March 2026' at its end.",
                does='print(append_to_file(path="/archive/2025/bluepeak.txt", text="Archived on 2 March 2026")["size"])',
                says="I added the line; the file has {0} bytes now.",
            ),
            Turn(
                asks="Tell Dev that the Bluepeak contract is archived.",
                does='dev = get_user_id(name="Dev")["user_id"]\nprint(send_message(receiver_id=dev, text="The Bluepeak contract is archived.")["delivered"])',
                says="Dev has been told ({0}).",
            ),
        ),
    ),
    Task(
        name="quarter against quarter",
        domain="files",
        servers=("drive", "messages"),
        turns=(
            Turn(
                asks="Which reports are there in /reports?",
                does='print([one["name"] for one in list_directory(path="/reports")])',
                says="There are three: {0}.",
            ),
            Turn(
                asks="Compare the two quarters: how did revenue and costs change?",
                does='print(read_text_file(path="/reports/2025-q3.txt"), read_text_file(path="/reports/2025-q4.txt"))',
                says="Revenue rose by 36,250 to 448,250 and costs by 18,400 to 389,900.",
                reads=True,
            ),
            Turn(
                asks="Save that sentence as /reports/change.txt.",
                does='text = "Revenue rose by 36,250 to 448,250 and costs by 18,400 to 389,900."\nprint(write_file(path="/reports/change.txt", content=text)["path"])',
                says="Saved as {0}.",
            ),
            Turn(
                asks="And copy the outline to /archive.",
                does='print(copy_file(source="/reports/outline.md", destination="/archive")["destination"])',
                says="The copy is at {0}.",
            ),
            Turn(
                asks="Send the sentence to Fatima too.",
                does='fatima = get_user_id(name="Fatima")["user_id"]\nprint(send_message(receiver_id=fatima, text=text)["message_id"])',
                says="Sent as message {0}.",
            ),
        ),
    ),
    Task(
        name="open ends in notes",
        domain="files",
        servers=("drive",),
        turns=(
            Turn(
                asks="Find all lines with TODO in my notes.",
                does='found = find_in_files(text="TODO", path="/notes")\nprint([(one["path"], one["text"]) for one in found])',
                says="There are two: ask Priya about limits, and sketch the onboarding page.",
                reads=True,
            ),
            Turn(
                asks="Collect them in /notes/todo.txt, one a line.",
                does='print(write_file(path="/notes/todo.txt", content="".join(f"{one[\'text\']}\\n" for one in found))["size"])',
                says="Done, {0} bytes.",
            ),
        ),
    ),
    Task(
        name="action items of all minutes",
        domain="files",
        servers=("drive", "calendar"),
        turns=(
            Turn(
                asks="Go through all minutes in /minutes and tell me how many lines mention the client, and in which file most do.",
                does='counts = {}\nfor path in search_files(pattern="*.txt", path="/minutes"):\n    counts[path] = sum("client" in line for line in read_text_file(path=path).splitlines())\nprint(sum(counts.values()), max(counts, key=counts.get))',
                says="{0} lines mention the client; most of them are in {1}.",
            ),
            Turn(
                asks="List the action items in them.",
                does='items = [one["text"] for one in find_in_files(text="ACTION", path="/minutes")]\nprint(len(items), items)',
                says="There are {0}: {1}.",
            ),
            Turn(
                asks="Write them to /archive/actions.txt.",
                does='print(write_file(path="/archive/actions.txt", content="\\n".join(items))["path"])',
                says="They are in {0}.",
            ),
            Turn(
                asks="Block 9 March 2026 from 10 to 11 in my calendar for going through them.",
                does='event = create_event(title="Go through action items", start="2026-03-09T10:00:00", end="2026-03-09T11:00:00")\nprint(event["id"])',
                says="It is in your calendar as {0}.",
            ),
        ),
    ),
    Task(
        name="a meeting everybody can come to",
        domain="calendar",
        servers=("calendar", "messages"),
        turns=(
            Turn(
                asks="When are ben@acme.example and carla@acme.example both free for an hour on 3 March 2026?",
                does='free = find_free_time(attendees=["ben@acme.example", "carla@acme.example"], date="2026-03-03", duration_minutes=60)\nprint(free)',
                says="The first slot that suits both begins at the time shown first.",
                reads=True,
            ),
            Turn(
                asks="Take the first of these and invite both to 'Roadmap' in Room 1, for one hour.",
                does='from datetime import datetime, timedelta\nstart = datetime.fromisoformat(free[0]["start"])\nevent = create_event(title="Roadmap", start=start.isoformat(), end=(start + timedelta(hours=1)).isoformat(), attendees=["ben@acme.example", "carla@acme.example"], location="Room 1")\nprint(event["start"], event["invitations_sent"])',
                says="Roadmap is set for {0}; {1} invitations went out.",
            ),
            Turn(
                asks="Add dev@acme.example as well, but it's optional for them.",
                does='print(len(add_attendee(event_id=event["id"], email="dev@acme.example", optional=True)["attendees"]))',
                says="Added; {0} people are invited now.",
            ),
            Turn(
                asks="Remind me half an hour before.",
                does='print(set_reminder(event_id=event["id"], minutes_before=30)["reminder_at"])',
                says="You will be reminded at {0}.",
            ),
            Turn(
                asks="Write to Ben that it is in Room 1.",
                does='ben = get_user_id(name="Ben")["user_id"]\nprint(send_message(receiver_id=ben, text="Roadmap is in Room 1.")["delivered"])',
                says="Ben knows ({0}).",
            ),
        ),
    ),
    Task(
        name="clear the afternoon",
        domain="calendar",
        servers=("calendar",),
        turns=(
            Turn(
                asks="What is in my calendars on the afternoon of 4 March 2026, from 12:00?",
                does='events = list_events(start="2026-03-04T12:00:00", end="2026-03-05T00:00:00")\nprint([(one["id"], one["title"], one["start"][11:16], one["calendar"]) for one in events])',
                says="Here is your afternoon, in order of time, as listed.",
                reads=True,
            ),
            Turn(
                asks="Decline everything of that in the work calendar that I have not accepted.",
                does='open_ = [one for one in events if one["calendar"] == "work" and one["response"] != "accepted"]\nfor one in open_:\n    respond_to_event(event_id=one["id"], response="declined")\nprint(len(open_))',
                says="I declined {0} of them.",
            ),
        ),
    ),
    Task(
        name="how long are we in meetings",
        domain="calendar",
        servers=("calendar", "drive"),
        turns=(
            Turn(
                asks="How many hours of events does each of us have in the week from 2 to 6 March 2026?",
                does='from collections import Counter\nfrom datetime import datetime\nhours = Counter()\nfor one in list_events(start="2026-03-02T00:00:00", end="2026-03-07T00:00:00"):\n    length = datetime.fromisoformat(one["end"]) - datetime.fromisoformat(one["start"])\n    for who in one["attendees"]:\n        hours[who] += length.total_seconds() / 3600\nprint(dict(hours.most_common()))',
                says="Hours by person: {0}.",
            ),
            Turn(
                asks="Who has the most?",
                does="print(hours.most_common(1)[0][0])",
                says="{0} has the most.",
            ),
            Turn(
                asks="Which of the customer calls begins first, and what time is that in Tokyo?",
                does='calls = list_events(start="2026-03-02T00:00:00", end="2026-03-07T00:00:00", query="Customer call")\nthere = convert_time(time=calls[0]["start"], from_zone="Europe/Berlin", to_zone="Asia/Tokyo")\nprint(calls[0]["start"], there["time"])',
                says="The first is at {0}, which is {1} in Tokyo.",
            ),
            Turn(
                asks="Save the hours as /reports/hours.txt, a line for each of us.",
                does='lines = "".join(f"{who} {count}\\n" for who, count in hours.most_common())\nprint(write_file(path="/reports/hours.txt", content=lines)["size"])',
                says="Saved, {0} bytes.",
            ),
        ),
    ),
    Task(
        name="write to Carla",
        domain="messages",
        servers=("messages",),
        turns=(
            Turn(
                asks="Write to Carla that the numbers for February are final.",
                does='carla = get_user_id(name="Carla")["user_id"]\nprint(send_message(receiver_id=carla, text="The numbers for February are final.")["message_id"])',
                says="Sent as message {0}.",
            ),
            Turn(
                asks="What did she write to me last?",
                does='print(list_inbox(sender_id=carla)["messages"][0]["text"])',
                says="Her last message says: {0}",
            ),
            Turn(
                asks="Oh, delete the message I just sent.",
                does='print(delete_message(message_id=61)["deleted"])',
                says="It is deleted ({0}).",
            ),
            Turn(
                asks="Send her 'February will follow on Friday' instead.",
                does='print(send_message(receiver_id=carla, text="February will follow on Friday")["message_id"])',
                says="Sent as message {0}.",
            ),
        ),
    ),
    Task(
        name="unread mail",
        domain="messages",
        servers=("messages", "calendar"),
        turns=(
            Turn(
                asks="How many unread messages do I have, and from whom?",
                does='from collections import Counter\nunread = list_inbox(unread_only=True)["messages"]\nnames = {one["user_id"]: one["name"] for one in list_users()}\nprint(len(unread), dict(Counter(names[one["sender_id"]] for one in unread)))',
                says="You have {0} unread messages: {1}.",
            ),
            Turn(
                asks="Is any of them about a deadline?",
                does='late = [one for one in unread if "deadline" in one["text"]]\nprint([(names[one["sender_id"]], one["text"]) for one in late])',
                says="The ones about a deadline are those listed.",
                reads=True,
            ),
            Turn(
                asks="Mark all of them as read.",
                does='for one in unread:\n    mark_as_read(message_id=one["message_id"])\nprint(list_inbox(unread_only=True)["total_count"])',
                says="Done; {0} are left unread.",
            ),
            Turn(
                asks="Put 'Deadline of the client' into my calendar on 6 March 2026, 9:00 to 9:30.",
                does='event = create_event(title="Deadline of the client", start="2026-03-06T09:00:00", end="2026-03-06T09:30:00")\nprint(event["id"])',
                says="Done: {0}.",
            ),
        ),
    ),
    Task(
        name="start a group",
        domain="messages",
        servers=("messages",),
        turns=(
            Turn(
                asks="Add a contact called Zoe and make a group 'Launch' with Ben, Dev and her.",
                does='ids = [get_user_id(name=name)["user_id"] for name in ("Ben", "Dev")] + [add_contact(name="Zoe")["user_id"]]\nprint(create_group(name="Launch", member_ids=ids)["group_id"])',
                says="The group is {0}.",
            ),
            Turn(
                asks="Tell all three of them that the launch is on 17 March.",
                does='for one in ids:\n    send_message(receiver_id=one, text="The launch is on 17 March.")\nprint(len(ids))',
                says="I told all {0}.",
            ),
        ),
    ),
)
