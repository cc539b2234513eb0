"""Badges as SVG files: the state of main, the date of the last measurement, a ratio per peer."""

from markupsafe import escape

from ci.site.formatting import NOT_MEASURED, day, slug, times
from ci.site.model import Site
from ci.site.palette import BADGE_COLOURS
from ci.site.status import last_measurement

# pixels, of 11-pixel Verdana on average; textLength makes the rest fit in any font
_CHARACTER = 6.6


def badge(label: str, value: str, kind: str) -> str:
    """Return a badge; `kind` is good, bad, quiet or plain."""
    left = round(len(label) * _CHARACTER) + 14
    right = round(len(value) * _CHARACTER) + 14
    width = left + right
    font = 'font-family="Verdana,DejaVu Sans,sans-serif" font-size="11"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img">'
        f"<title>{escape(label)}: {escape(value)}</title>"
        f'<clipPath id="r"><rect width="{width}" height="20" rx="3"/></clipPath>'
        f'<g clip-path="url(#r)"><rect width="{left}" height="20" fill="#33373d"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{BADGE_COLOURS[kind]}"/></g>'
        f'<g fill="#fff" {font}>{_text(7, left, label)}{_text(left + 7, right, value)}</g></svg>\n'
    )


def _text(x: int, width: int, text: str) -> str:
    fit = f'textLength="{width - 14}" lengthAdjust="spacingAndGlyphs"'
    return f'<text x="{x}" y="14" {fit}>{escape(text)}</text>'


def badges(site: Site) -> dict[str, str]:
    """Return the badges by file name."""
    measured, _ = last_measurement(site)
    date = badge("measured", day(measured), "plain") if measured else ""
    found = {
        "state.svg": _state(site),
        "measured.svg": date or badge("measured", NOT_MEASURED, "quiet"),
    }
    of_random: dict[tuple[str, str], list[float]] = {}
    for line in site.speedups:
        if line.ours.agent == "random" and not line.ours.recorded:
            of_random.setdefault((line.ours.env, line.peer.library), []).append(line.middle)
    for (env, peer), ratios in of_random.items():
        least = times(min(ratios))
        most = times(max(ratios))
        many = least if least == most else f"{least} to {most}"
        kind = "plain" if min(ratios) >= 1 else "bad"
        label = f"{env} beside {site.project.libraries[peer].label}"
        text = badge(label, f"{many}\N{MULTIPLICATION SIGN}", kind)
        found[f"ratio-{slug(env)}-{slug(peer)}.svg"] = text
    return found


def _state(site: Site) -> str:
    if not site.archive.commits:
        return badge("performance", NOT_MEASURED, "quiet")
    slower = {change.benchmark.name for change in site.open}
    if slower:
        return badge("performance", f"{len(slower)} slower", "bad")
    return badge("performance", "no slowdown", "good")
