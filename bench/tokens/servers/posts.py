"""A public feed of short posts."""

from __future__ import annotations

from random import Random
from typing import Literal

from bench.tokens.servers.records import Record, changes, find_one, page_of, reads

from pinfold.tools import BadCall

_USERS = ("riverlab", "northwind", "ada", "kofi", "sunny")
_TEXTS = ("New release is out", "We are hiring", "Thanks for the feedback", "Behind the scenes", "Maintenance tonight")
_TAGS = ("#release", "#jobs", "#ops", "#design", "#data")


class Posts:
    def __init__(self) -> None:
        made = Random(20)
        self._me = "riverlab"
        self._following = {"ada", "kofi"}
        self._followers = {"ada", "sunny", "northwind"}
        self._posts: list[Record] = [
            {
                "post_id": number,
                "username": made.choice(_USERS),
                "text": made.choice(_TEXTS),
                "tags": made.sample(_TAGS, made.randint(0, 2)),
                "likes": made.randint(0, 400),
                "reposts": made.randint(0, 60),
                "replies": made.randint(0, 30),
                "posted_at": f"2026-02-{1 + number * 28 // 71:02d}T12:{number % 60:02d}:00Z",
            }
            for number in range(1, 71)
        ]

    @reads
    def get_profile(self, username: str) -> Record:
        """Get the profile of a user: number of posts and followers, and whether you follow them.

        Args:
            username: The name of the user, without @.
        """
        self._check_user(username)
        return {
            "username": username,
            "posts": sum(one["username"] == username for one in self._posts),
            "followers": len(self._followers) if username == self._me else 120,
            "followed_by_you": username in self._following,
        }

    @changes
    def create_post(self, text: str, tags: list[str] | None = None, mentions: list[str] | None = None) -> Record:
        """Publish a post on your own feed. Tags begin with a hash, mentions with an at sign; both are shown after the
        text.

        Args:
            text: What the post says, at most 280 characters.
            tags: Tags of the post.
            mentions: Users to mention.
        """
        if len(text) > 280:
            raise BadCall("a post has at most 280 characters")
        post: Record = {
            "post_id": self._posts[-1]["post_id"] + 1,
            "username": self._me,
            "text": text,
            "tags": tags or [],
            "likes": 0,
            "reposts": 0,
            "replies": 0,
            "posted_at": "2026-03-02T09:00:00Z",
        }
        self._posts.append(post)
        return {**post, "mentions": mentions or []}

    @reads
    def get_post(self, post_id: int) -> Record:
        """Get one post with its numbers of likes, reposts and replies.

        Args:
            post_id: The id of the post.
        """
        return find_one(self._posts, "post_id", post_id, "post")

    @reads
    def list_posts(
        self, username: str | None = None, sort: Literal["newest", "likes"] = "newest", page: int = 1
    ) -> Record:
        """List posts, 25 to a page.

        Args:
            username: Only posts of this user.
            sort: Newest first, or most liked first.
            page: Page number for pagination, starting at 1.
        """
        key = "posted_at" if sort == "newest" else "likes"
        found = [one for one in self._posts if username is None or one["username"] == username]
        return page_of(sorted(found, key=lambda one: one[key], reverse=True), page, 25, "posts")

    @reads
    def search_posts(self, keyword: str, page: int = 1) -> Record:
        """Search posts for a keyword in their text or a tag, newest first, 25 to a page.

        Args:
            keyword: What to look for, whatever its case; a tag begins with a hash.
            page: Page number for pagination, starting at 1.
        """
        word = keyword.lower()
        found = [one for one in reversed(self._posts) if word in one["text"].lower() or word in one["tags"]]
        return page_of(found, page, 25, "posts")

    @changes
    def delete_post(self, post_id: int) -> Record:
        """Delete one of your own posts. This cannot be undone.

        Args:
            post_id: The id of the post.
        """
        post = self.get_post(post_id)
        if post["username"] != self._me:
            raise BadCall("only your own posts can be deleted")
        self._posts.remove(post)
        return {"post_id": post_id, "deleted": True}

    @changes
    def like_post(self, post_id: int) -> Record:
        """Like a post.

        Args:
            post_id: The id of the post.
        """
        post = self.get_post(post_id)
        post["likes"] += 1
        return {"post_id": post_id, "likes": post["likes"]}

    @changes
    def repost(self, post_id: int, comment: str = "") -> Record:
        """Share a post with your followers.

        Args:
            post_id: The id of the post.
            comment: What to say of it.
        """
        post = self.get_post(post_id)
        post["reposts"] += 1
        return {"post_id": post_id, "reposts": post["reposts"], "comment": comment}

    @changes
    def reply_to_post(self, post_id: int, text: str) -> Record:
        """Reply to a post in public.

        Args:
            post_id: The id of the post.
            text: What to say.
        """
        post = self.get_post(post_id)
        post["replies"] += 1
        return {"post_id": post_id, "replies": post["replies"], "text": text}

    @changes
    def follow_user(self, username: str) -> Record:
        """Follow a user, so that their posts appear on your page.

        Args:
            username: The name of the user, without @.
        """
        self._check_user(username)
        self._following.add(username)
        return {"username": username, "following": True, "you_follow": len(self._following)}

    @changes
    def unfollow_user(self, username: str) -> Record:
        """Stop following a user.

        Args:
            username: The name of the user, without @.
        """
        if username not in self._following:
            raise BadCall(f"you do not follow {username}")
        self._following.remove(username)
        return {"username": username, "following": False, "you_follow": len(self._following)}

    @reads
    def list_followers(self) -> list[str]:
        """List the users who follow you."""
        return sorted(self._followers)

    def _check_user(self, username: str) -> None:
        if username not in _USERS:
            raise BadCall(f"there is no user {username!r}")
