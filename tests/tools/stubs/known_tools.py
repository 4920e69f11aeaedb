"""Tools as servers that many people use declare them, for tests that need real ones. Written by hand."""

from __future__ import annotations

import re
from typing import Any

from pinfold.tools import Tool

_PARAMETER = re.compile(r"(?P<name>\w+)(?P<required>\*?)(?::(?P<type>\S+))?(?: (?P<text>.*))?")


def made(name: str, description: str, parameters: Any, *, server: str = "tools", returns: Any = None) -> Tool[..., Any]:
    return Tool(
        function=_never,
        name=name,
        description=description,
        effect="once",
        server=server,
        parameters=parameters,
        returns=returns,
        takes=(),
    )


def known_tools() -> list[Tool[..., Any]]:
    return [
        made(f"{server}.{name}", description, _schema(parameters), server=server)
        for server, tools in _SERVERS.items()
        for name, description, *parameters in tools
    ]


def _never() -> None:
    raise AssertionError("only declared")


def _schema(parameters: list[str]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for one in parameters:
        found = _PARAMETER.fullmatch(one)
        assert found, one
        properties[found["name"]] = _type(found["type"] or "string")
        if found["text"]:
            properties[found["name"]]["description"] = found["text"]
        if found["required"]:
            required.append(found["name"])
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _type(text: str) -> dict[str, Any]:
    if text.endswith("[]"):
        return {"type": "array", "items": _type(text[:-2])}
    if text.startswith("{"):
        fields = text[1:-1].split(",")
        return {"type": "object", "properties": {name: {"type": "string"} for name in fields}, "required": fields}
    if "|" in text:
        return {"type": "string", "enum": text.split("|")}
    return {"type": text}


_REPO = ("owner* Repository owner", "repo* Repository name")
_PAGE = ("page:integer Page number for pagination (min 1)", "perPage:integer Results per page (min 1, max 100)")

_SERVERS: dict[str, list[tuple[str, ...]]] = {
    "filesystem": [
        ("read_text_file", "Read the complete contents of a file as text. Handles several encodings and gives a detailed error if the file cannot be read. Use head or tail to read only the first or last lines.", "path*", "head:number If given, only the first N lines", "tail:number If given, only the last N lines"),
        ("read_media_file", "Read an image or audio file. Returns base64 data and the MIME type.", "path*"),
        ("read_multiple_files", "Read several files at once. More efficient than reading them one by one when comparing or analysing.", "paths*:string[]"),
        ("write_file", "Create a new file or completely overwrite an existing one with new content. Use with caution.", "path*", "content*"),
        ("edit_file", "Make line-based edits to a text file. Each edit replaces exact line sequences with new content. Returns a git-style diff.", "path*", "edits*:{oldText,newText}[]", "dryRun:boolean Preview changes using git-style diff format"),
        ("create_directory", "Create a new directory or make sure that it exists. Can create nested directories in one go.", "path*"),
        ("list_directory", "Get a listing of all files and directories in a path, marked with [FILE] and [DIR].", "path*"),
        ("list_directory_with_sizes", "Get a listing of all files and directories in a path, with their sizes.", "path*", "sortBy:name|size Sort entries by name or size"),
        ("directory_tree", "Get a recursive tree of files and directories as a JSON structure.", "path*", "excludePatterns:string[]"),
        ("move_file", "Move or rename files and directories. Fails if the destination exists.", "source*", "destination*"),
        ("search_files", "Recursively search for files and directories whose names match a pattern.", "path*", "pattern*", "excludePatterns:string[]"),
        ("get_file_info", "Retrieve metadata about a file or directory: size, creation time, last modified time, permissions, type.", "path*"),
        ("list_allowed_directories", "Return the directories this server may access."),
    ],
    "github": [
        ("list_issues", "List issues in a GitHub repository with filtering options.", *_REPO, "state:open|closed|all Filter by state", "labels:string[] Filter by labels", "sort:created|updated|comments Sort by", "direction:asc|desc Sort direction", "since Filter by date (ISO 8601 timestamp)", *_PAGE),
        ("get_issue", "Get details of a specific issue in a GitHub repository.", *_REPO, "issue_number*:integer The number of the issue"),
        ("create_issue", "Create a new issue in a GitHub repository.", *_REPO, "title* Issue title", "body Issue body content", "assignees:string[] Usernames to assign to this issue", "labels:string[] Labels to apply to this issue", "milestone:integer Milestone number"),
        ("update_issue", "Update an existing issue in a GitHub repository.", *_REPO, "issue_number*:integer Issue number to update", "title New title", "body New description", "state:open|closed New state", "labels:string[] New labels", "assignees:string[] New assignees"),
        ("add_issue_comment", "Add a comment to an existing issue.", *_REPO, "issue_number*:integer Issue number to comment on", "body* Comment text"),
        ("get_issue_comments", "Get comments for a GitHub issue.", *_REPO, "issue_number*:integer Issue number", *_PAGE),
        ("search_issues", "Search for issues and pull requests across GitHub repositories.", "q* Search query using GitHub issues search syntax", "sort:comments|reactions|created|updated Sort field", "order:asc|desc Sort order", *_PAGE),
        ("list_pull_requests", "List pull requests in a GitHub repository.", *_REPO, "state:open|closed|all Filter by state", "head Filter by head user/org and branch", "base Filter by base branch", *_PAGE),
        ("get_pull_request", "Get details of a specific pull request.", *_REPO, "pullNumber*:integer Pull request number"),
        ("create_pull_request", "Create a new pull request in a GitHub repository.", *_REPO, "title* PR title", "body PR description", "head* Branch containing changes", "base* Branch to merge into", "draft:boolean Create as draft PR", "maintainer_can_modify:boolean Allow maintainer edits"),
        ("merge_pull_request", "Merge a pull request.", *_REPO, "pullNumber*:integer Pull request number", "commit_title Title for merge commit", "commit_message Extra detail for merge commit", "merge_method:merge|squash|rebase Merge method"),
        ("get_pull_request_files", "Get the list of files changed in a pull request.", *_REPO, "pullNumber*:integer Pull request number"),
        ("get_pull_request_status", "Get the combined status of all status checks of a pull request.", *_REPO, "pullNumber*:integer Pull request number"),
        ("get_pull_request_diff", "Get the diff of a pull request.", *_REPO, "pullNumber*:integer Pull request number"),
        ("create_pull_request_review", "Create a review on a pull request.", *_REPO, "pullNumber*:integer Pull request number", "body Review comment text", "event*:APPROVE|REQUEST_CHANGES|COMMENT Review action"),
        ("update_pull_request_branch", "Update a pull request branch with the latest changes from the base branch.", *_REPO, "pullNumber*:integer Pull request number"),
        ("get_file_contents", "Get the contents of a file or directory from a GitHub repository.", *_REPO, "path Path to file or directory", "ref Git ref such as a branch, tag or SHA"),
        ("create_or_update_file", "Create or update a single file in a GitHub repository.", *_REPO, "path* Path where to create or update the file", "content* Content of the file", "message* Commit message", "branch* Branch to create or update the file in", "sha SHA of the file being replaced"),
        ("delete_file", "Delete a file from a GitHub repository.", *_REPO, "path* Path to the file", "message* Commit message", "branch* Branch to delete the file from"),
        ("push_files", "Push multiple files to a GitHub repository in a single commit.", *_REPO, "branch* Branch to push to", "files*:{path,content}[] Files to push", "message* Commit message"),
        ("search_repositories", "Search for GitHub repositories.", "query* Search query", *_PAGE),
        ("create_repository", "Create a new GitHub repository in your account.", "name* Repository name", "description Repository description", "private:boolean Whether the repository is private", "autoInit:boolean Initialise with README"),
        ("fork_repository", "Fork a GitHub repository to your account or an organization.", *_REPO, "organization Organization to fork to"),
        ("create_branch", "Create a new branch in a GitHub repository.", *_REPO, "branch* Name for new branch", "from_branch Source branch, defaults to the default branch"),
        ("list_branches", "List branches in a GitHub repository.", *_REPO, *_PAGE),
        ("list_commits", "Get a list of commits of a branch in a GitHub repository.", *_REPO, "sha Branch name or SHA", "author Author username or email", *_PAGE),
        ("get_commit", "Get details for a commit from a GitHub repository.", *_REPO, "sha* Commit SHA, branch name or tag name"),
        ("search_code", "Search for code across GitHub repositories.", "q* Search query using GitHub code search syntax", "order:asc|desc Sort order", *_PAGE),
        ("search_users", "Search for GitHub users.", "q* Search query using GitHub users search syntax", *_PAGE),
        ("get_me", "Get details of the authenticated GitHub user."),
        ("list_tags", "List git tags in a GitHub repository.", *_REPO, *_PAGE),
        ("list_releases", "List releases in a GitHub repository.", *_REPO, *_PAGE),
        ("list_workflow_runs", "List runs of a GitHub Actions workflow.", *_REPO, "workflow_id* The workflow ID or file name", "status:queued|in_progress|completed Filter by status", *_PAGE),
        ("rerun_failed_jobs", "Re-run only the failed jobs in a workflow run.", *_REPO, "run_id*:integer The unique identifier of the workflow run"),
        ("get_job_logs", "Download the logs of a workflow job.", *_REPO, "job_id*:integer The unique identifier of the workflow job"),
        ("list_notifications", "List GitHub notifications of the authenticated user, such as unread ones.", "filter:default|include_read_notifications|only_participating Filter", *_PAGE),
        ("list_code_scanning_alerts", "List code scanning alerts in a GitHub repository.", *_REPO, "severity:critical|high|medium|low Filter by severity"),
        ("star_repository", "Star a GitHub repository.", *_REPO),
    ],
    "slack": [
        ("slack_list_channels", "List public channels in the workspace with pagination.", "limit:number Maximum number of channels to return", "cursor Pagination cursor"),
        ("slack_post_message", "Post a new message to a Slack channel.", "channel_id* The ID of the channel to post to", "text* The message text to post"),
        ("slack_reply_to_thread", "Reply to a specific message thread in Slack.", "channel_id* The ID of the channel", "thread_ts* The timestamp of the parent message", "text* The reply text"),
        ("slack_add_reaction", "Add a reaction emoji to a message.", "channel_id* The ID of the channel", "timestamp* The timestamp of the message", "reaction* The name of the emoji reaction"),
        ("slack_get_channel_history", "Get recent messages from a channel.", "channel_id* The ID of the channel", "limit:number Number of messages"),
        ("slack_get_thread_replies", "Get all replies in a message thread.", "channel_id* The ID of the channel", "thread_ts* The timestamp of the parent message"),
        ("slack_get_users", "Get a list of all users in the workspace with their basic profile information.", "cursor Pagination cursor", "limit:number"),
        ("slack_get_user_profile", "Get detailed profile information for a specific user.", "user_id* The ID of the user"),
    ],
    "postgres": [
        ("query", "Run a read-only SQL query against the database.", "sql* The statement"),
        ("list_schemas", "List all schemas in the database."),
        ("list_objects", "List objects in a schema: tables, views, sequences or extensions.", "schema_name* Schema name", "object_type:table|view|sequence|extension Object type"),
        ("get_object_details", "Show detailed information about a database object such as the columns, constraints and indexes of a table.", "schema_name* Schema name", "object_name* Object name"),
        ("explain_query", "Explains the execution plan for a SQL query with estimated or real costs.", "sql* SQL query to explain", "analyze:boolean Actually run the query"),
        ("analyze_db_health", "Analyzes database health: index health, connections, vacuum, sequences, replication, buffer cache, constraints.", "health_type Which checks to run"),
        ("get_top_queries", "Reports the slowest or most resource-intensive queries.", "sort_by:total_time|mean_time|resources Ranking criteria", "limit:integer"),
        ("analyze_workload_indexes", "Analyze frequently executed queries in the database and recommend optimal indexes.", "max_index_size_mb:integer"),
    ],
    "fetch": [
        ("fetch", "Fetches a URL from the internet and optionally extracts its contents as markdown.", "url* URL to fetch", "max_length:integer Maximum number of characters to return", "start_index:integer Start from this character index, useful if a previous fetch was truncated", "raw:boolean Get the actual HTML content without simplification"),
    ],
    "brave": [
        ("brave_web_search", "Performs a web search using the Brave Search API, for general queries, news, articles and online content.", "query* Search query", "count:number Number of results", "offset:number Pagination offset"),
        ("brave_local_search", "Searches for local businesses and places using Brave's local search: names, addresses, ratings, opening hours.", "query* Local search query, for example 'pizza near Central Park'", "count:number"),
    ],
    "memory": [
        ("create_entities", "Create multiple new entities in the knowledge graph.", "entities*:{name,entityType}[]"),
        ("create_relations", "Create multiple new relations between entities in the knowledge graph. Relations should be in active voice.", "relations*:{from,to,relationType}[]"),
        ("add_observations", "Add new observations to existing entities in the knowledge graph.", "observations*:{entityName,contents}[]"),
        ("delete_entities", "Delete multiple entities and their associated relations from the knowledge graph.", "entityNames*:string[] Names of entities to delete"),
        ("delete_observations", "Delete specific observations from entities in the knowledge graph.", "deletions*:{entityName,observations}[]"),
        ("delete_relations", "Delete multiple relations from the knowledge graph.", "relations*:{from,to,relationType}[]"),
        ("read_graph", "Read the entire knowledge graph."),
        ("search_nodes", "Search for nodes in the knowledge graph based on a query.", "query* Matched against entity names, types and observation content"),
        ("open_nodes", "Open specific nodes in the knowledge graph by their names.", "names*:string[] Entity names to retrieve"),
    ],
    "time": [
        ("get_current_time", "Get current time in a specific timezone.", "timezone* IANA timezone name, for example America/New_York"),
        ("convert_time", "Convert time between timezones.", "source_timezone* Source IANA timezone name", "time* Time to convert in 24-hour format (HH:MM)", "target_timezone* Target IANA timezone name"),
    ],
    "git": [
        ("git_status", "Shows the working tree status.", "repo_path*"),
        ("git_diff_unstaged", "Shows changes in the working directory that are not yet staged.", "repo_path*", "context_lines:integer"),
        ("git_diff_staged", "Shows changes that are staged for commit.", "repo_path*", "context_lines:integer"),
        ("git_diff", "Shows differences between branches or commits.", "repo_path*", "target* Target branch or commit to compare with"),
        ("git_commit", "Records changes to the repository.", "repo_path*", "message* Commit message"),
        ("git_add", "Adds file contents to the staging area.", "repo_path*", "files*:string[]"),
        ("git_reset", "Unstages all staged changes.", "repo_path*"),
        ("git_log", "Shows the commit logs.", "repo_path*", "max_count:integer", "start_timestamp", "end_timestamp"),
        ("git_create_branch", "Creates a new branch from an optional base branch.", "repo_path*", "branch_name*", "base_branch"),
        ("git_checkout", "Switches branches.", "repo_path*", "branch_name*"),
        ("git_show", "Shows the contents of a commit.", "repo_path*", "revision*"),
        ("git_branch", "List Git branches.", "repo_path*", "branch_type*:local|remote|all"),
    ],
    "browser": [
        ("browser_navigate", "Navigate to a URL.", "url* The URL to navigate to"),
        ("browser_navigate_back", "Go back to the previous page."),
        ("browser_snapshot", "Capture accessibility snapshot of the current page; better than a screenshot.", "filename Save snapshot to markdown file"),
        ("browser_click", "Perform click on a web page.", "element* Human-readable element description", "ref* Exact target element reference from the page snapshot", "doubleClick:boolean Whether to perform a double click", "button:left|right|middle Button to click"),
        ("browser_hover", "Hover over element on page.", "element* Human-readable element description", "ref* Exact target element reference"),
        ("browser_drag", "Perform drag and drop between two elements.", "startElement*", "startRef*", "endElement*", "endRef*"),
        ("browser_type", "Type text into editable element.", "element* Human-readable element description", "ref* Exact target element reference", "text* Text to type", "submit:boolean Press Enter after", "slowly:boolean One character at a time"),
        ("browser_press_key", "Press a key on the keyboard.", "key* Name of the key, such as ArrowLeft or a"),
        ("browser_select_option", "Select an option in a dropdown.", "element*", "ref*", "values*:string[] Values to select"),
        ("browser_fill_form", "Fill multiple form fields.", "fields*:{name,type,ref,value}[] Fields to fill in"),
        ("browser_file_upload", "Upload one or multiple files.", "paths:string[] The absolute paths of the files"),
        ("browser_take_screenshot", "Take a screenshot of the current page.", "type:png|jpeg Image format", "filename File name to save the screenshot to", "fullPage:boolean Take the full scrollable page"),
        ("browser_evaluate", "Evaluate JavaScript expression on page or element.", "function* () => { code }", "element", "ref"),
        ("browser_console_messages", "Returns all console messages.", "level:error|warning|info|debug"),
        ("browser_network_requests", "Returns all network requests since loading the page.", "includeStatic:boolean"),
        ("browser_handle_dialog", "Handle a dialog.", "accept*:boolean Whether to accept the dialog", "promptText The text of the prompt"),
        ("browser_tabs", "List, create, close, or select a browser tab.", "action*:list|new|close|select Operation to perform", "index:number Tab index"),
        ("browser_wait_for", "Wait for text to appear or disappear or a specified time to pass.", "time:number The time to wait in seconds", "text The text to wait for", "textGone The text to wait for to disappear"),
        ("browser_resize", "Resize the browser window.", "width*:number", "height*:number"),
        ("browser_close", "Close the page."),
    ],
    "calendar": [
        ("list-calendars", "List all available calendars."),
        ("list-events", "List events from one or more calendars.", "calendarId* ID of the calendar, 'primary' for the main one", "timeMin Start time boundary", "timeMax End time boundary", "timeZone"),
        ("search-events", "Search for events in a calendar by text query.", "calendarId*", "query* Free text search", "timeMin*", "timeMax*"),
        ("create-event", "Create a new calendar event.", "calendarId*", "summary* Title of the event", "start* Event start time", "end* Event end time", "attendees:{email}[] People to invite", "location", "recurrence:string[] Recurrence rules"),
        ("update-event", "Update an existing calendar event: time, title, attendees, location.", "calendarId*", "eventId*", "summary", "start", "end"),
        ("delete-event", "Delete a calendar event.", "calendarId*", "eventId*", "sendUpdates:all|externalOnly|none Whether to send cancellation notices"),
        ("get-freebusy", "Query free/busy information for calendars, to find when people are available.", "calendars*:{id}[]", "timeMin*", "timeMax*"),
        ("respond-to-event", "Respond to a calendar invitation: accept, decline or tentative.", "calendarId*", "eventId*", "response*:accepted|declined|tentative"),
    ],
    "gmail": [
        ("send_email", "Sends a new email.", "to*:string[] Recipients", "subject* Subject line", "body* Body content", "cc:string[]", "bcc:string[]", "attachments:string[] File paths to attach"),
        ("draft_email", "Draft a new email without sending it.", "to*:string[]", "subject*", "body*"),
        ("read_email", "Retrieves the content of a specific email.", "messageId* ID of the message"),
        ("search_emails", "Searches for emails using Gmail search syntax.", "query* For example 'from:anna@example.com'", "maxResults:number"),
        ("modify_email", "Modifies email labels (moves it to different folders).", "messageId*", "addLabelIds:string[]", "removeLabelIds:string[]"),
        ("delete_email", "Permanently deletes an email.", "messageId*"),
        ("list_email_labels", "Retrieves all available Gmail labels."),
        ("download_attachment", "Downloads an email attachment to a location.", "messageId*", "attachmentId*", "savePath"),
    ],
    "jira": [
        ("jira_search", "Search Jira issues using JQL.", "jql* JQL query string", "limit:integer"),
        ("jira_get_issue", "Get details of a specific Jira issue including its fields, comments and links.", "issue_key* For example PROJ-123"),
        ("jira_create_issue", "Create a new Jira issue such as a task, bug, story or epic.", "project_key*", "summary*", "issue_type*", "description", "assignee"),
        ("jira_transition_issue", "Transition a Jira issue to a new status.", "issue_key*", "transition_id*"),
        ("jira_add_worklog", "Add a worklog entry to a Jira issue.", "issue_key*", "time_spent* In Jira format, such as 1h 30m"),
        ("jira_get_sprints_from_board", "Get sprints of a Jira board by state.", "board_id*", "state:active|future|closed"),
    ],
    "sqlite": [
        ("read_query", "Execute a SELECT query on the SQLite database.", "query*"),
        ("write_query", "Execute an INSERT, UPDATE or DELETE query on the SQLite database.", "query*"),
        ("create_table", "Create a new table in the SQLite database.", "query* CREATE TABLE statement"),
        ("list_tables", "List all tables in the SQLite database."),
        ("describe_table", "Get the schema information for a specific table.", "table_name*"),
        ("append_insight", "Add a business insight to the memo.", "insight*"),
    ],
}  # fmt: skip
