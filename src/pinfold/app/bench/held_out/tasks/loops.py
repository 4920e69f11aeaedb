"""The same change to many things."""

from __future__ import annotations

from pinfold.app.bench.task import Task, Turn

TASKS = (
    Task(
        name="take the alerts of billing",
        domain="update in a loop",
        servers=("monitor",),
        turns=(
            Turn(
                asks="Acknowledge all warnings that are firing for billing, with the note 'looking into it'.",
                looks=(
                    'found = list_alerts(state="firing", service="billing", severity="warning")\nprint(str(found)[:400])',
                ),
                does='for one in found["alerts"]:\n    acknowledge_alert(uid=one["uid"], note="looking into it")\nprint([one["uid"] for one in found["alerts"]])',
                says="Acknowledged: {0}.",
            ),
        ),
    ),
    Task(
        name="pages that have grown old",
        domain="update in a loop",
        servers=("wiki",),
        turns=(
            Turn(
                asks="Put the label outdated on all pages of the HR space that were last changed before June 2025.",
                looks=('pages = list_pages(space="HR")\nprint(str(pages)[:500])',),
                does='old = [one for one in pages["pages"] if one["version"]["at"] < "2025-06"]\nfor one in old:\n    add_label(page_id=one["id"], label="outdated")\nprint(len(old), len(pages["pages"]))',
                says="{0} of {1} pages have it now.",
            ),
            Turn(
                asks="Comment on each of them: 'Please check whether this still holds.'",
                does='for one in old:\n    add_comment(page_id=one["id"], text="Please check whether this still holds.")\nprint(len(old))',
                says="I commented on all {0}.",
            ),
        ),
    ),
    Task(
        name="no more docs issues",
        domain="update in a loop",
        servers=("issues",),
        turns=(
            Turn(
                asks="Close all open issues of acme/api labelled docs, each with the comment 'Moved to the handbook'.",
                looks=(
                    'found = list_issues(repository="acme/api", labels=["docs"])\nprint(str(found)[:400])',
                ),
                does='for one in found["issues"]:\n    add_issue_comment(repository="acme/api", issue_number=one["number"], body="Moved to the handbook")\n    update_issue(repository="acme/api", issue_number=one["number"], state="closed")\nprint(len(found["issues"]))',
                says="{0} issues are closed.",
            ),
        ),
    ),
    Task(
        name="deals that are overdue",
        domain="update in a loop",
        servers=("crm", "messages"),
        turns=(
            Turn(
                asks="Move all deals in the proposal stage whose closing date was before 1 March 2026 to lost, and tell Dev how many there were.",
                looks=(
                    'deals = list_deals(stage="proposal")\ndev = get_user_id(name="Dev")\nprint(str(deals)[:400], dev)',
                ),
                does='late = [one["id"] for one in deals["results"] if one["properties"]["closedate"] < "2026-03-01"]\nfor one in late:\n    update_deal(deal_id=one, stage="lost")\nsend_message(receiver_id=dev["user_id"], text=f"{len(late)} overdue deals are lost now.")\nprint(len(late))',
                says="{0} deals are lost now, and Dev knows.",
            ),
        ),
    ),
)
