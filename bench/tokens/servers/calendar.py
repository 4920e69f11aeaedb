"""Calendars of a small team."""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random
from typing import Literal

from bench.tokens.servers.records import Record, changes, find_one, reads

from pinfold.tools import BadCall

_PEOPLE = ("anna@acme.example", "ben@acme.example", "carla@acme.example", "dev@acme.example")
_TITLES = ("Planning", "Design review", "1:1", "Customer call", "Interview", "Retro", "Focus time", "Budget")
_ZONES = {"UTC": 0, "Europe/Berlin": 60, "America/New_York": -300, "Asia/Tokyo": 540}


def _at(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise BadCall(f"{text!r} is no time; write it like 2026-03-02T09:30:00") from error


class Calendar:
    def __init__(self) -> None:
        made = Random(13)
        self._events: list[Record] = []
        for number in range(1, 41):
            start = datetime(2026, 3, 2 + number % 5, made.randint(8, 16), made.choice((0, 30)))  # noqa: DTZ001
            minutes = made.choice((30, 30, 60, 90))
            self._events.append(
                {
                    "id": f"evt_{number:03d}",
                    "calendar": made.choice(("work", "work", "private")),
                    "title": made.choice(_TITLES),
                    "start": start.isoformat(),
                    "end": (start + timedelta(minutes=minutes)).isoformat(),
                    "organizer": _PEOPLE[number % 4],
                    "attendees": sorted({_PEOPLE[number % 4], *made.sample(_PEOPLE, made.randint(0, 2))}),
                    "location": made.choice(("Room 1", "Room 2", "online")),
                    "response": made.choice(("accepted", "tentative", "needs_action")),
                }
            )
        self._events.sort(key=lambda one: (one["start"], one["id"]))

    @reads
    def list_calendars(self) -> list[Record]:
        """List the calendars you can see, with their names, time zones and your access role for each."""
        return [
            {"calendar": "work", "time_zone": "Europe/Berlin", "role": "owner"},
            {"calendar": "private", "time_zone": "Europe/Berlin", "role": "owner"},
        ]

    @reads
    def list_events(
        self,
        start: str,
        end: str,
        *,
        calendar: Literal["work", "private", "all"] = "all",
        attendee: str | None = None,
        query: str | None = None,
        max_results: int = 40,
    ) -> list[Record]:
        """List the events that begin within a span of time, in the order of their start times. Recurring events are
        expanded into single ones.

        Args:
            start: Beginning of the span (inclusive), ISO 8601 without zone, such as 2026-03-02T00:00:00.
            end: End of the span (exclusive), ISO 8601 without zone.
            calendar: Only events of this calendar.
            attendee: Only events this person attends, by mail address.
            query: Only events whose title contains this text.
            max_results: Maximum number of events returned.
        """
        first, last = _at(start), _at(end)
        found = [
            one
            for one in self._events
            if first <= _at(one["start"]) < last
            and calendar in ("all", one["calendar"])
            and (attendee is None or attendee in one["attendees"])
            and (query is None or query.lower() in one["title"].lower())
        ]
        return found[:max_results]

    @reads
    def get_event(self, event_id: str) -> Record:
        """Get the details of a single event, including its attendees and your response.

        Args:
            event_id: The id of the event, as list_events gives it.
        """
        return find_one(self._events, "id", event_id, "event")

    @changes
    def create_event(
        self,
        title: str,
        start: str,
        end: str,
        *,
        attendees: list[str] | None = None,
        location: str = "",
        calendar: Literal["work", "private"] = "work",
        send_invitations: bool = True,
    ) -> Record:
        """Create an event in a calendar and invite people to it. The attendees must be given by mail address.

        Args:
            title: Title of the event.
            start: When it begins, ISO 8601 without zone.
            end: When it ends, ISO 8601 without zone.
            attendees: Mail addresses of the people to invite.
            location: Room or address, or "online".
            calendar: The calendar to put it into.
            send_invitations: Whether the attendees get a mail.
        """
        if _at(end) <= _at(start):
            raise BadCall("the event ends before it begins")
        event: Record = {
            "id": f"evt_{len(self._events) + 1:03d}",
            "calendar": calendar,
            "title": title,
            "start": start,
            "end": end,
            "organizer": "anna@acme.example",
            "attendees": attendees or [],
            "location": location,
            "response": "accepted",
        }
        self._events.append(event)
        return {**event, "invitations_sent": len(attendees or ()) if send_invitations else 0}

    @changes
    def update_event(
        self,
        event_id: str,
        title: str | None = None,
        start: str | None = None,
        end: str | None = None,
        location: str | None = None,
    ) -> Record:
        """Change an event. Only the fields that are given are changed, and the attendees are told of it.

        Args:
            event_id: The id of the event.
            title: New title.
            start: New start time, ISO 8601 without zone.
            end: New end time, ISO 8601 without zone.
            location: New location.
        """
        event = find_one(self._events, "id", event_id, "event")
        given = {"title": title, "start": start, "end": end, "location": location}
        event.update({key: value for key, value in given.items() if value is not None})
        return event

    @changes
    def delete_event(self, event_id: str, notify_attendees: bool = True) -> Record:
        """Delete an event from its calendar. This cannot be undone.

        Args:
            event_id: The id of the event.
            notify_attendees: Whether the attendees are told that it is cancelled.
        """
        event = find_one(self._events, "id", event_id, "event")
        self._events.remove(event)
        return {"deleted": event_id, "notified": len(event["attendees"]) if notify_attendees else 0}

    @changes
    def respond_to_event(self, event_id: str, response: Literal["accepted", "declined", "tentative"]) -> Record:
        """Respond to an invitation.

        Args:
            event_id: The id of the event.
            response: Your answer to the organizer.
        """
        event = find_one(self._events, "id", event_id, "event")
        event["response"] = response
        return {"id": event_id, "response": response}

    @changes
    def add_attendee(self, event_id: str, email: str, optional: bool = False) -> Record:
        """Invite one more person to an existing event.

        Args:
            event_id: The id of the event.
            email: Mail address of the person.
            optional: Whether they may stay away.
        """
        event = find_one(self._events, "id", event_id, "event")
        event["attendees"] = sorted({*event["attendees"], email})
        return {"id": event_id, "attendees": event["attendees"], "optional": optional}

    @reads
    def find_free_time(
        self, attendees: list[str], date: str, duration_minutes: int = 30, day_start: int = 9, day_end: int = 17
    ) -> list[Record]:
        """Find spans of time on a day in which none of the given people has an event. Considers the events of all
        calendars you can see, between the given working hours.

        Args:
            attendees: Mail addresses of the people who should be free.
            date: The day, such as 2026-03-02.
            duration_minutes: How long the span must be at least.
            day_start: First working hour of the day, from 0 to 23.
            day_end: Hour at which the working day ends.
        """
        day = _at(date)
        busy = [
            (_at(one["start"]), _at(one["end"]))
            for one in self._events
            if set(attendees) & set(one["attendees"]) and one["start"][:10] == date[:10]
        ]
        found: list[Record] = []
        free = day + timedelta(hours=day_start)
        close = day + timedelta(hours=day_end)
        for start, end in sorted([*busy, (close, close)]):
            if start - free >= timedelta(minutes=duration_minutes):
                found.append({"start": free.isoformat(), "end": min(start, close).isoformat()})
            free = max(free, end)
        return found

    @changes
    def set_reminder(
        self, event_id: str, minutes_before: int = 10, method: Literal["popup", "email"] = "popup"
    ) -> Record:
        """Set a reminder for yourself for an event.

        Args:
            event_id: The id of the event.
            minutes_before: How long before its start.
            method: How to be reminded.
        """
        event = find_one(self._events, "id", event_id, "event")
        at = _at(event["start"]) - timedelta(minutes=minutes_before)
        return {"id": event_id, "reminder_at": at.isoformat(), "method": method}

    @reads
    def convert_time(self, time: str, from_zone: str, to_zone: str) -> Record:
        """Convert a time from one time zone to another.

        Args:
            time: The time in the first zone, ISO 8601 without zone.
            from_zone: IANA name of the time zone the time is in, such as Europe/Berlin.
            to_zone: IANA name of the time zone wanted.
        """
        for zone in (from_zone, to_zone):
            if zone not in _ZONES:
                raise BadCall(f"unknown time zone {zone!r}; known are {', '.join(_ZONES)}")
        moved = _at(time) + timedelta(minutes=_ZONES[to_zone] - _ZONES[from_zone])
        return {"time": moved.isoformat(), "zone": to_zone}
