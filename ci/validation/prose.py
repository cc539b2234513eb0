"""Count the marks and words that show how plainly a page is written. shape.py prints them."""

import re


def prose(page: str) -> str:
    """Return a page's sentences without code, tables and comments. Links become their texts."""
    text = re.sub(r"^(`{3,}).*?^\1$", "", page, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"^\s*\|.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]*`", "code", text)
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)


def prose_figures(page: str) -> tuple[int, float, float, float, float]:
    """Return a page's words, and its `;`, `,`, you, and what/which/where per 1,000 words."""
    text = prose(page)
    words = [word.lower() for word in re.findall(r"[A-Za-z][A-Za-z'-]*", text)]
    scale = 1000 / max(1, len(words))
    you = sum(word in {"you", "your", "yours", "you're"} for word in words)
    asking = sum(word in {"what", "which", "where"} for word in words)
    return (
        len(words),
        text.count(";") * scale,
        text.count(",") * scale,
        you * scale,
        asking * scale,
    )
