"""Badges as SVG files that need no server: the state of main, the date of the last measurement, a ratio per peer."""

from collections.abc import Sequence

from markupsafe import escape

from ci.site.measurements import Headline
from ci.site.formatting import NOT_MEASURED, slug, times

_COLOURS = {"good": "#1a7f4b", "bad": "#b3261e", "quiet": "#5f6670", "plain": "#0b63a5"}
# pixels, of 11-pixel Verdana on average; textLength makes the rest fit in any font
_CHARACTER = 6.6


def badge(label: str, value: str, kind: str) -> str:
    """Return a badge; `kind` is good, bad, quiet or plain."""
    left, right = (round(len(text) * _CHARACTER) + 14 for text in (label, value))
    words = "".join(
        f'<text x="{at}" y="14" textLength="{width - 14}" lengthAdjust="spacingAndGlyphs">{escape(text)}</text>'
        for at, width, text in ((7, left, label), (left + 7, right, value))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img">'
        f"<title>{escape(label)}: {escape(value)}</title>"
        f'<clipPath id="r"><rect width="{left + right}" height="20" rx="3"/></clipPath><g clip-path="url(#r)">'
        f'<rect width="{left}" height="20" fill="#33373d"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{_COLOURS[kind]}"/></g>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">{words}</g></svg>\n'
    )


def badges(num_open: int | None, last_measured: str, headlines: Sequence[Headline]) -> dict[str, str]:
    """Return the badges by file name. `num_open` is how many slowdowns stand open; None where there is no history."""
    if num_open is None:
        state = (NOT_MEASURED, "quiet")
    elif num_open:
        state = (f"{num_open} slower", "bad")
    else:
        state = ("no slowdown", "good")
    found = {
        "state.svg": badge("performance", *state),
        "measured.svg": badge("measured", last_measured or NOT_MEASURED, "plain" if last_measured else "quiet"),
    }
    of_random = [line for line in headlines if line.ours.agent == "random" and not line.ours.recorded]
    pairs = dict.fromkeys((line.ours.env, line.peer.library) for line in of_random)
    for env, peer in pairs:
        ratios = [line.middle for line in of_random if (line.ours.env, line.peer.library) == (env, peer)]
        least, most = times(min(ratios)), times(max(ratios))
        many = least if least == most else f"{least} to {most}"
        kind = "plain" if min(ratios) >= 1 else "bad"
        text = badge(f"{env} beside {peer}", f"{many}\N{MULTIPLICATION SIGN}", kind)
        found[f"ratio-{slug(env)}-{slug(peer)}.svg"] = text
    return found
