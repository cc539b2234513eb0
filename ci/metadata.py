"""What the package index shows: the README with links that work there, and the project's addresses.

hatchling calls it. A fork's release names the fork, since the address comes from GitHub.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

# The target of a Markdown link or picture that is a path in the repository.
_OF_REPOSITORY = re.compile(r"(!?\[[^\]]*\])\((?!https?:|#)([^)]+)\)")


class Metadata(MetadataHookInterface):
    """Fills in the fields `readme` and `urls`."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Set both fields. Outside GitHub nobody knows the address, so links stay as they are."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["urls"] = {}
        if name := os.environ.get("GITHUB_REPOSITORY"):
            home = f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{name}"
            commit = os.environ.get("GITHUB_REF_NAME", "main")
            metadata["urls"] = {
                "Repository": home,
                "Changelog": f"{home}/blob/main/CHANGELOG.md",
                "Issues": f"{home}/issues",
            }
            text = _OF_REPOSITORY.sub(
                lambda link: (
                    f"{link[1]}({home}/{'raw' if link[1][0] == '!' else 'blob'}/{commit}/{link[2]})"
                ),
                text,
            )
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
