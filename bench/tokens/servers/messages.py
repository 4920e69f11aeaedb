"""Messages between the people of a company."""

from __future__ import annotations

from random import Random

from bench.tokens.servers.records import Record, changes, find_one, page_of, reads

from pinfold.tools import BadCall

_USERS = {"U01": "Anna", "U02": "Ben", "U03": "Carla", "U04": "Dev", "U05": "Emil", "U06": "Fatima"}
_LINES = (
    "The build is green again",
    "Can you look at my draft?",
    "Lunch at noon?",
    "The client moved the deadline to Friday",
    "Numbers for February are in",
    "I am out tomorrow",
    "Who has the key for room 2?",
)


class Messages:
    def __init__(self) -> None:
        made = Random(17)
        self._me = "U01"
        self._users = dict(_USERS)
        self._groups: list[Record] = []
        self._messages: list[Record] = []
        for number in range(1, 61):
            sender = made.choice(tuple(_USERS))
            receiver = made.choice([user for user in _USERS if user != sender]) if sender == "U01" else "U01"
            self._messages.append(
                {
                    "message_id": number,
                    "sender_id": sender,
                    "receiver_id": receiver,
                    "text": made.choice(_LINES),
                    "sent_at": f"2026-02-{1 + number // 3:02d}T{8 + number % 9:02d}:20:00Z",
                    "read": made.random() < 0.8,
                }
            )

    @reads
    def list_users(self) -> list[Record]:
        """List all users of the workspace with their ids and names."""
        return [{"user_id": key, "name": name, "active": True} for key, name in self._users.items()]

    @reads
    def get_user_id(self, name: str) -> Record:
        """Get the id of a user from the name. The id is needed to send a message.

        Args:
            name: Name of the user, such as Anna.
        """
        for key, known in self._users.items():
            if known.lower() == name.lower():
                return {"user_id": key, "name": known}
        raise BadCall(f"there is no user called {name!r}")

    @changes
    def send_message(self, receiver_id: str, text: str, urgent: bool = False) -> Record:
        """Send a message to a user.

        Args:
            receiver_id: Id of the user the message is for, as get_user_id gives it.
            text: The text of the message.
            urgent: Whether the receiver is notified even when they do not want to be disturbed.
        """
        if receiver_id not in self._users:
            raise BadCall(f"there is no user {receiver_id!r}; get_user_id finds the id for a name")
        message: Record = {
            "message_id": len(self._messages) + 1,
            "sender_id": self._me,
            "receiver_id": receiver_id,
            "text": text,
            "sent_at": "2026-03-02T09:00:00Z",
            "read": False,
        }
        self._messages.append(message)
        return {"message_id": message["message_id"], "delivered": True, "urgent": urgent}

    @reads
    def list_inbox(self, unread_only: bool = False, sender_id: str | None = None, page: int = 1) -> Record:
        """List the messages you have received, newest first, 25 to a page.

        Args:
            unread_only: Only messages that have not been read.
            sender_id: Only messages from this user.
            page: Page number for pagination, starting at 1.
        """
        found = [
            one
            for one in reversed(self._messages)
            if one["receiver_id"] == self._me
            and not (unread_only and one["read"])
            and (sender_id is None or one["sender_id"] == sender_id)
        ]
        return page_of(found, page, 25, "messages")

    @reads
    def list_sent(self, receiver_id: str | None = None, page: int = 1) -> Record:
        """List the messages you have sent, newest first, 25 to a page.

        Args:
            receiver_id: Only messages to this user.
            page: Page number for pagination, starting at 1.
        """
        found = [
            one
            for one in reversed(self._messages)
            if one["sender_id"] == self._me and (receiver_id is None or one["receiver_id"] == receiver_id)
        ]
        return page_of(found, page, 25, "messages")

    @reads
    def get_message(self, message_id: int) -> Record:
        """Get one message with its sender, receiver and time.

        Args:
            message_id: The id of the message.
        """
        return find_one(self._messages, "message_id", message_id, "message")

    @reads
    def search_messages(self, keyword: str, page: int = 1) -> Record:
        """Search the text of all messages you have sent or received for a keyword, newest first, 25 to a page.

        Args:
            keyword: What to look for, whatever its case.
            page: Page number for pagination, starting at 1.
        """
        found = [one for one in reversed(self._messages) if keyword.lower() in one["text"].lower()]
        return page_of(found, page, 25, "messages")

    @changes
    def mark_as_read(self, message_id: int) -> Record:
        """Mark a message you have received as read.

        Args:
            message_id: The id of the message.
        """
        find_one(self._messages, "message_id", message_id, "message")["read"] = True
        return {"message_id": message_id, "read": True}

    @changes
    def delete_message(self, message_id: int) -> Record:
        """Delete a message you have sent, for you and for its receiver. This cannot be undone.

        Args:
            message_id: The id of the message.
        """
        message = find_one(self._messages, "message_id", message_id, "message")
        if message["sender_id"] != self._me:
            raise BadCall("only messages you have sent can be deleted")
        self._messages.remove(message)
        return {"message_id": message_id, "deleted": True}

    @changes
    def add_contact(self, name: str) -> Record:
        """Add a contact to the workspace, who gets an id of their own.

        Args:
            name: Name of the contact; it must not be taken.
        """
        if name in self._users.values():
            raise BadCall(f"{name} is a user already")
        key = f"U{len(self._users) + 1:02d}"
        self._users[key] = name
        return {"user_id": key, "name": name}

    @changes
    def create_group(self, name: str, member_ids: list[str]) -> Record:
        """Create a group conversation.

        Args:
            name: Name of the group.
            member_ids: Ids of its members; you are one in any case.
        """
        group: Record = {
            "group_id": f"G{len(self._groups) + 1}",
            "name": name,
            "members": sorted({self._me, *member_ids}),
        }
        self._groups.append(group)
        return group
