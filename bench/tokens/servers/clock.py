"""Times of day around the world."""

from __future__ import annotations

from datetime import datetime, timedelta

from bench.tokens.servers.records import Record, reads

from pinfold.tools import BadCall

_HOURS = {
    "UTC": 0.0,
    "Europe/Berlin": 1.0,
    "Europe/London": 0.0,
    "America/New_York": -5.0,
    "America/Los_Angeles": -8.0,
    "Asia/Tokyo": 9.0,
    "Asia/Kolkata": 5.5,
    "Australia/Sydney": 11.0,
}
_NOW = datetime(2026, 3, 2, 8, 0)  # noqa: DTZ001 - in UTC


class Clock:
    @reads
    def get_current_time(self, timezone: str) -> Record:
        """Get current time in a specific time zone.

        Args:
            timezone: IANA time zone name, such as America/New_York or Europe/London. Use UTC if the user says nothing.
        """
        return _describe(_NOW + timedelta(hours=_hours(timezone)), timezone)

    @reads
    def convert_time(self, source_timezone: str, time: str, target_timezone: str) -> Record:
        """Convert time between time zones.

        Args:
            source_timezone: Source IANA time zone name.
            time: Time to convert in 24-hour format (HH:MM).
            target_timezone: Target IANA time zone name.
        """
        hour, _, minute = time.partition(":")
        there = datetime(2026, 3, 2, int(hour), int(minute))  # noqa: DTZ001
        shift = _hours(target_timezone) - _hours(source_timezone)
        return {
            "source": _describe(there, source_timezone),
            "target": _describe(there + timedelta(hours=shift), target_timezone),
            "time_difference": f"{shift:+.1f}h",
        }


def _hours(zone: str) -> float:
    if zone not in _HOURS:
        raise BadCall(f"Invalid timezone: {zone}")
    return _HOURS[zone]


def _describe(at: datetime, zone: str) -> Record:
    return {"timezone": zone, "datetime": at.isoformat(), "day_of_week": f"{at:%A}", "is_dst": False}
