"""Users of sessions: `Agent`, turns followed to their end, the sessions of server clients, notebooks."""
# ruff: noqa: F401
# pyright: reportUnusedImport=false

from pinfold.app.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pinfold.app.clients.attachments import (
        collect_attachments,
        loose_picture,
        refuse_reserved_name,
        save_stdin,
        store_picture,
        store_pictures,
    )
    from pinfold.app.clients.batch import LocalTasks, ResultFile, has_views, read_tasks, run_batch, shared_workspaces
    from pinfold.app.clients.best_of_n import BestOfN, describe_conflicts
    from pinfold.app.clients.caller_turns import CallerTurns, Prompt, TurnPlace, TurnRun
    from pinfold.app.clients.client_session import CellResult, ClientSession
    from pinfold.app.clients.client_sessions import ANYONE, ClientSessions, OpenTerms, read_or_make_token, server_token
    from pinfold.app.clients.mcp_passthrough import Upstream
    from pinfold.app.clients.notebooks import (
        AttachedNotebook,
        Notebook,
        NotebookResult,
        failure_in_words,
        read_notebook,
        run_notebook,
        with_outputs,
    )
    from pinfold.app.clients.plain_turns import PlainModels, default_embeddings, describe_form, embed_texts
    from pinfold.app.clients.served_sessions import ServedSessions, status_now
    from pinfold.app.clients.session_history import (
        ModelBill,
        SessionHistory,
        TurnRecord,
        build_history,
        entries_of,
        entries_on_disk,
    )
    from pinfold.app.clients.skill_commands import check_skill, create_skill, promote_file
    from pinfold.app.clients.task_queue import QueuedTask, TaskQueue, interrupt_task, run_queue
    from pinfold.app.clients.task_runner import Task, TaskResult
    from pinfold.app.clients.turn_reader import Called, Ended, Piece, Said, Thinking
    from pinfold.app.clients.user_commands import UserCommands, fill_command, load_user_commands
    from pinfold.app.clients.wire_records import open_records
    from pinfold.app.clients.workspace_files import (
        FileEntry,
        FileRefused,
        NoSuchFile,
        list_files,
        open_file,
        write_file,
    )
    from pinfold.tools.mcp.passthrough import LATEST, ClientHello, Line

__getattr__ = lazy_names(__name__)
