"""A drive for documents: folders and text files, kept in memory."""

from __future__ import annotations

from fnmatch import fnmatch
from random import Random
from typing import Literal

from bench.tokens.servers.records import Record, changes, reads

from pinfold.tools import BadCall

_WORDS = (
    "budget",
    "review",
    "launch",
    "draft",
    "client",
    "quarter",
    "invoice",
    "summary",
    "travel",
    "policy",
    "plan",
    "risk",
)


class Drive:
    def __init__(self) -> None:
        made = Random(11)
        self._files: dict[str, str] = {
            "/reports/2025-q3.txt": "Revenue 412,000\nCosts 371,500\nHeadcount 38\nOpen risks 4\n",
            "/reports/2025-q4.txt": "Revenue 448,250\nCosts 389,900\nHeadcount 41\nOpen risks 2\n",
            "/reports/outline.md": "# Annual report\n\n- Results\n- Customers\n- Outlook\n",
            "/notes/standup.txt": "Mon: parser done\nTue: review of imports\nWed: TODO ask Priya about limits\n",
            "/notes/ideas.txt": "Offline mode\nTODO sketch the onboarding page\nShorter invoices\n",
            "/contracts/northwind.txt": "Contract 7781\nTerm 24 months\nFee 1,250 per month\nNotice 90 days\n",
            "/contracts/bluepeak.txt": "Contract 7793\nTerm 12 months\nFee 980 per month\nNotice 30 days\n",
            "/contracts/oakhurst.txt": "Contract 7802\nTerm 36 months\nFee 2,100 per month\nNotice 60 days\n",
        }
        for number in range(1, 25):
            lines = [" ".join(made.choice(_WORDS) for _ in range(8)) for _ in range(12)]
            if number % 5 == 0:
                lines[3] = f"ACTION item {number}: call the client"
            self._files[f"/minutes/2026-{number:02d}.txt"] = "\n".join(lines) + "\n"
        self._folders = {"/", "/archive"} | {path.rpartition("/")[0] for path in self._files}

    @reads
    def list_directory(self, path: str = "/", sort_by: Literal["name", "size"] = "name") -> list[Record]:
        """Get a listing of all files and folders in a folder of the drive. Folders are marked as such, files come with
        their size in bytes. The listing is not recursive; use directory_tree for that.

        Args:
            path: Absolute path of the folder to list, beginning with a slash.
            sort_by: Order of the entries: alphabetically by name, or largest first.
        """
        self._check_folder(path)
        base = path.rstrip("/") + "/"
        found: list[Record] = [
            {"name": one[len(base) :], "type": "directory"}
            for one in sorted(self._folders)
            if one.startswith(base) and one != "/" and "/" not in one[len(base) :]
        ]
        found += [
            {"name": one[len(base) :], "type": "file", "size": len(text)}
            for one, text in sorted(self._files.items())
            if one.startswith(base) and "/" not in one[len(base) :]
        ]
        return sorted(found, key=lambda one: -one.get("size", 0)) if sort_by == "size" else found

    @reads
    def directory_tree(self, path: str = "/", exclude: list[str] | None = None) -> list[str]:
        """Get all paths beneath a folder, at any depth, as a flat list. Useful to understand how a project is laid out
        before reading single files.

        Args:
            path: Absolute path of the folder to start from.
            exclude: Glob patterns; paths that match one of them are left out.
        """
        self._check_folder(path)
        found = sorted(one for one in {*self._folders, *self._files} if one.startswith(path) and one != "/")
        return [one for one in found if not any(fnmatch(one, pattern) for pattern in exclude or ())]

    @reads
    def read_text_file(self, path: str, head: int | None = None, tail: int | None = None) -> str:
        """Read the complete contents of a file as text. Handles UTF-8 and gives a clear error message if the file
        cannot be read. Use head or tail to read only the first or last lines of a long file; they cannot be combined.

        Args:
            path: Absolute path of the file to read.
            head: If given, only the first so many lines are returned.
            tail: If given, only the last so many lines are returned.
        """
        lines = self._text(path).splitlines(keepends=True)
        if head is not None and tail is not None:
            raise BadCall("give head or tail, not both")
        return "".join(lines[:head] if head is not None else lines[-tail:] if tail else lines)

    @changes
    def write_file(self, path: str, content: str) -> Record:
        """Create a new file or completely overwrite an existing file with new content. Use with caution, as it will
        overwrite existing files without warning. The folder must exist.

        Args:
            path: Absolute path of the file to write.
            content: The text the file shall hold.
        """
        self._check_folder(path.rpartition("/")[0] or "/")
        self._files[path] = content
        return {"path": path, "size": len(content)}

    @changes
    def append_to_file(self, path: str, text: str) -> Record:
        """Add text at the end of an existing file. A line break is put before it if the file does not end with one.

        Args:
            path: Absolute path of the file.
            text: What to add.
        """
        old = self._text(path)
        self._files[path] = f"{old}{'' if not old or old.endswith(chr(10)) else chr(10)}{text}\n"
        return {"path": path, "size": len(self._files[path])}

    @changes
    def create_directory(self, path: str) -> Record:
        """Create a new folder or ensure that a folder exists. Parents are created as needed; if the folder is already
        there, nothing happens.

        Args:
            path: Absolute path of the folder.
        """
        parts = path.strip("/").split("/")
        self._folders |= {"/" + "/".join(parts[: depth + 1]) for depth in range(len(parts))}
        return {"path": path, "created": True}

    @changes
    def move_file(self, source: str, destination: str) -> Record:
        """Move or rename a file. Moves it between folders and renames it in a single operation. If the destination
        exists the operation fails; a destination that is a folder means the same name within it.

        Args:
            source: Absolute path of the file as it is now.
            destination: Absolute path it shall have, or of the folder it shall be in.
        """
        target = self._target(source, destination)
        self._files[target] = self._files.pop(source)
        return {"source": source, "destination": target}

    @changes
    def copy_file(self, source: str, destination: str) -> Record:
        """Copy a file. If the destination exists the operation fails; a destination that is a folder means the same
        name within it.

        Args:
            source: Absolute path of the file to copy.
            destination: Absolute path of the copy, or of the folder it shall be in.
        """
        target = self._target(source, destination)
        self._files[target] = self._files[source]
        return {"source": source, "destination": target}

    @changes
    def delete_file(self, path: str, permanently: bool = False) -> Record:
        """Delete a file. It goes to the trash, from which it can be restored for 30 days, unless it is deleted
        permanently.

        Args:
            path: Absolute path of the file.
            permanently: Do not keep it in the trash.
        """
        self._text(path)
        del self._files[path]
        return {"path": path, "deleted": True, "in_trash": not permanently}

    @reads
    def search_files(self, pattern: str, path: str = "/") -> list[str]:
        """Search for files whose path matches a glob pattern, in a folder and all folders beneath it. Returns full
        paths to all matching items. The search is case-insensitive.

        Args:
            pattern: Glob pattern that the path must match, such as *.txt or */reports/*.
            path: Absolute path of the folder to search in.
        """
        return sorted(one for one in self._files if one.startswith(path) and fnmatch(one.lower(), pattern.lower()))

    @reads
    def find_in_files(self, text: str, path: str = "/", max_results: int = 50) -> list[Record]:
        """Search the contents of all files in a folder and beneath it for a piece of text, and get the lines that
        contain it with their file and line number.

        Args:
            text: What to look for; upper and lower case are distinguished.
            path: Absolute path of the folder to search in.
            max_results: Stop after so many lines.
        """
        found: list[Record] = [
            {"path": one, "line": number, "text": line}
            for one, content in sorted(self._files.items())
            if one.startswith(path)
            for number, line in enumerate(content.splitlines(), start=1)
            if text in line
        ]
        return found[:max_results]

    @reads
    def get_file_info(self, path: str) -> Record:
        """Retrieve detailed metadata about a file: its size, number of lines, type, and permissions, without reading
        the contents.

        Args:
            path: Absolute path of the file.
        """
        text = self._text(path)
        return {"path": path, "size": len(text), "lines": text.count("\n"), "type": "file", "permissions": "rw-r--r--"}

    def _text(self, path: str) -> str:
        if path not in self._files:
            raise BadCall(f"{path}: no such file")
        return self._files[path]

    def _check_folder(self, path: str) -> None:
        if (path.rstrip("/") or "/") not in self._folders:
            raise BadCall(f"{path}: no such folder")

    def _target(self, source: str, destination: str) -> str:
        self._text(source)
        folder = destination.rstrip("/")
        target = f"{folder}/{source.rpartition('/')[2]}" if folder in self._folders else destination
        if target in self._files:
            raise BadCall(f"{target} exists already")
        self._check_folder(target.rpartition("/")[0] or "/")
        return target
