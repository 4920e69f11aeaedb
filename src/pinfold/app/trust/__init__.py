"""Which files of a workspace may steer the agent and what may be sent: trust, secrets, grants, untrusted files."""
# ruff: noqa: F401
# pyright: reportUnusedImport=false

from pinfold.app.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pinfold.app.trust.mcp_reach import describe_server, grant_reach
    from pinfold.app.trust.project_files import SERVERS, ProjectFiles, read_project_files
    from pinfold.app.trust.secrets import SecretListing, Secrets, host_pattern
    from pinfold.app.trust.skills import (
        Skill,
        find_skill,
        find_skills,
        install_skill,
        read_skill_folder,
        remove_skill,
        trust_skill,
    )
    from pinfold.app.trust.untrusted_files import clean, find_untrusted
    from pinfold.app.trust.workspace_trust import (
        Grants,
        TrustStatus,
        explain_command,
        forget,
        question,
        trust,
        trust_status,
    )

__getattr__ = lazy_names(__name__)
