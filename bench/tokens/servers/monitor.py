"""Services that are watched: alerts, incidents, metrics and logs. Times are seconds since 1970."""

from __future__ import annotations

import math
from random import Random
from typing import Literal, TypeAlias

from bench.tokens.servers.records import Record, changes, find_one, reads, without

from pinfold.tools import BadCall

Severity: TypeAlias = Literal["info", "warning", "critical"]
_NOW = 1_772_438_400  # 2026-03-02T08:00:00Z
_SERVICES = ("checkout", "login", "search", "billing", "export", "upload", "webhook", "mailer", "catalog", "session")
_RULES = ("HighLatency", "ErrorRate", "DiskAlmostFull", "QueueGrows", "CertificateExpires")
_TEAMS = ("payments", "platform", "growth")


class Monitor:
    def __init__(self) -> None:
        made = Random(35)
        self._services: list[Record] = [
            {
                "name": name,
                "team": made.choice(_TEAMS),
                "tier": made.randint(1, 3),
                "status": made.choice(("ok", "ok", "ok", "degraded")),
                "slo": {"target": made.choice((99.5, 99.9)), "window_days": 30},
                "runbook": f"https://wiki.example/OPS/{name}",
            }
            for name in _SERVICES
        ]
        self._alerts: list[Record] = [
            {
                "uid": f"ALR-{number}",
                "rule": made.choice(_RULES),
                "labels": {
                    "service": made.choice(_SERVICES),
                    "severity": made.choice(("info", "warning", "warning", "critical")),
                    "region": made.choice(("eu-1", "eu-2", "us-1")),
                },
                "state": made.choice(("firing", "firing", "acknowledged", "resolved")),
                "startsAt": _NOW - made.randint(300, 400_000),
                "value": round(made.uniform(0.5, 99), 2),
                "acknowledgedBy": None,
                "annotations": {"summary": f"above {made.randint(2, 90)} for {made.choice((5, 10, 30))}m"},
            }
            for number in range(2101, 2149)
        ]
        for alert in self._alerts:
            if alert["state"] == "acknowledged":
                alert["acknowledgedBy"] = made.choice(("priya", "tomas", "yuki"))
        self._incidents: list[Record] = [
            {
                "incidentId": f"INC-{81 + place}",
                "title": f"{service} {trouble}",
                "service": service,
                "status": status,
                "severity": severity,
                "openedAt": _NOW - 7_200 * (place + 1),
                "commander": who,
                "timeline": [{"at": _NOW - 7_200 * (place + 1), "text": "opened by an alert"}],
            }
            for place, (service, trouble, status, severity, who) in enumerate(
                (
                    ("search", "is slow in eu-1", "investigating", "minor", "yuki"),
                    ("checkout", "rejects cards", "investigating", "major", "priya"),
                    ("billing", "sends invoices twice", "identified", "major", "tomas"),
                    ("mailer", "queue grows", "monitoring", "minor", "yuki"),
                    ("login", "fails for new users", "resolved", "critical", "priya"),
                    ("catalog", "shows old prices", "resolved", "minor", "lena"),
                )
            )
        ]

    @reads
    def list_services(self, team: Literal["payments", "platform", "growth"] | None = None) -> Record:
        """List the services that are watched, with the team that owns each, its tier and its service level objective.

        Args:
            team: Only services of this team.
        """
        return {"services": [one for one in self._services if team in (None, one["team"])]}

    @reads
    def get_service(self, name: str) -> Record:
        """Get one service with the alerts that are firing for it.

        Args:
            name: Name of the service.
        """
        firing = [one["uid"] for one in self._alerts if one["labels"]["service"] == name and one["state"] == "firing"]
        return {**find_one(self._services, "name", name, "service"), "firing": firing}

    @reads
    def list_alerts(
        self,
        state: Literal["firing", "acknowledged", "resolved"] | None = None,
        service: str | None = None,
        severity: Severity | None = None,
        limit: int = 30,
        offset: int = 0,
    ) -> Record:
        """List alerts, newest first. All filters that are given must match. Results are paginated by offset.

        Args:
            state: Only alerts in this state.
            service: Only alerts of this service.
            severity: Only alerts of this severity.
            limit: Alerts per result, at most 30.
            offset: How many to skip.
        """
        found = [
            one
            for one in sorted(self._alerts, key=lambda one: -one["startsAt"])
            if state in (None, one["state"])
            and service in (None, one["labels"]["service"])
            and severity in (None, one["labels"]["severity"])
        ]
        return {"alerts": found[offset : offset + min(limit, 30)], "total": len(found)}

    @reads
    def get_alert(self, uid: str) -> Record:
        """Get one alert with its labels, state and annotations.

        Args:
            uid: The uid of the alert, such as ALR-1234.
        """
        return find_one(self._alerts, "uid", uid, "alert")

    @changes
    def acknowledge_alert(self, uid: str, note: str = "") -> Record:
        """Acknowledge an alert that is firing: you take care of it, and nobody else is called.

        Args:
            uid: The uid of the alert.
            note: What you are going to do.
        """
        alert = self.get_alert(uid)
        if alert["state"] != "firing":
            raise BadCall(f"{uid} is {alert['state']} and cannot be acknowledged")
        alert.update({"state": "acknowledged", "acknowledgedBy": "you"})
        return {"alert": alert, "note": note}

    @changes
    def silence_rule(self, rule: str, minutes: int, comment: str, service: str | None = None) -> Record:
        """Silence a rule for some time, for one service or for all of them. Alerts are still recorded, but call nobody.

        Args:
            rule: Name of the rule.
            minutes: For how long, at most 1440.
            comment: Why.
            service: Only for this service.
        """
        if minutes > 1440:
            raise BadCall("a rule can be silenced for at most 1440 minutes")
        matchers = [
            {"name": key, "value": value} for key, value in (("rule", rule), ("service", service)) if value is not None
        ]
        return {
            "silenceID": f"sil-{rule.lower()}",
            "matchers": matchers,
            "endsAt": _NOW + 60 * minutes,
            "comment": comment,
        }

    @reads
    def list_incidents(
        self, status: Literal["open", "investigating", "identified", "monitoring", "resolved"] = "open"
    ) -> Record:
        """List incidents, newest first, without their timelines.

        Args:
            status: Only incidents in this state; open ones are all that are not resolved.
        """
        found = [
            without(one, "timeline")
            for one in self._incidents
            if one["status"] == status or (status == "open" and one["status"] != "resolved")
        ]
        return {"incidents": found}

    @reads
    def get_incident(self, incident_id: str) -> Record:
        """Get one incident with its timeline.

        Args:
            incident_id: The id of the incident, such as INC-12.
        """
        return find_one(self._incidents, "incidentId", incident_id, "incident")

    @changes
    def update_incident(
        self,
        incident_id: str,
        text: str,
        status: Literal["investigating", "identified", "monitoring", "resolved"] | None = None,
    ) -> Record:
        """Add an entry to the timeline of an incident, and move it to another state if one is given.

        Args:
            incident_id: The id of the incident.
            text: What has happened.
            status: The new state.
        """
        incident = self.get_incident(incident_id)
        incident["timeline"].append({"at": _NOW, "text": text})
        incident["status"] = status or incident["status"]
        return incident

    @reads
    def query_metric(
        self,
        service: str,
        metric: Literal["latency_ms", "requests_per_s", "error_percent"],
        hours: int = 24,
        step_minutes: int = 15,
    ) -> Record:
        """Query a metric of a service over the last hours. Each point is a pair of a time and a value.

        Args:
            service: Name of the service.
            metric: Which metric.
            hours: How far back, at most 72.
            step_minutes: Distance between points, at least 5.
        """
        find_one(self._services, "name", service, "service")
        made = Random(f"{service} {metric}")
        number = min(hours, 72) * 60 // max(step_minutes, 5)
        scale = {"latency_ms": 180.0, "requests_per_s": 60.0, "error_percent": 0.8}[metric]
        points = [
            [
                _NOW - 60 * step_minutes * (number - at),
                round(scale * (1 + 0.5 * math.sin(at / 9) + made.random() * (2.5 if at % 31 == 7 else 0.4)), 2),
            ]
            for at in range(number)
        ]
        return {"resultType": "matrix", "result": [{"metric": {"service": service, "name": metric}, "values": points}]}

    @reads
    def search_logs(self, service: str, query: str = "", limit: int = 40) -> Record:
        """Search the logs of a service of the last day for a text, newest first.

        Args:
            service: Name of the service.
            query: Text that the line must contain.
            limit: Maximum number of lines, at most 60.
        """
        find_one(self._services, "name", service, "service")
        made = Random(f"{service} logs")
        lines: list[Record] = [
            {
                "ts": _NOW - 97 * at,
                "level": made.choice(("INFO", "INFO", "WARN", "ERROR")),
                "line": f"request {made.randint(10_000, 99_999)} {made.choice(('took', 'failed after', 'retried after'))} {made.randint(5, 4000)} ms",
                "pod": f"{service}-{made.randint(1, 4)}",
            }
            for at in range(400)
        ]
        return {"lines": [one for one in lines if query in one["line"]][: min(limit, 60)]}

    @reads
    def get_uptime(self, service: str, days: int = 30) -> Record:
        """Get how much of the time a service was up, and how much of its error budget is left.

        Args:
            service: Name of the service.
            days: Over how many days, at most 90.
        """
        target = find_one(self._services, "name", service, "service")["slo"]["target"]
        made = Random(f"{service} up {days}")
        up = round(100 - made.uniform(0.01, 0.7), 3)
        left = round(max(0.0, 1 - (100 - up) / (100 - target)), 3)
        return {"service": service, "days": days, "uptimePercent": up, "budget": {"remaining": left}}
