// What Sphinx and the theme leave out: a level for each caption, a name for each sidebar, a heading for
// the search, lines of a signature that are no list, places to break names in tables, and a way to
// scroll what is wide by keyboard.
"use strict";
for (const caption of document.querySelectorAll('[role="heading"]:not([aria-level])')) caption.ariaLevel = "2";
for (const [kind, name] of [["sidebar-drawer", "Pages"], ["toc-drawer", "On this page"]]) {
  document.querySelector(`aside.${kind}`)?.setAttribute("aria-label", name);
}
document.getElementById("search-results")?.insertAdjacentHTML("beforebegin", "<h1>Search</h1>");
for (const lines of document.querySelectorAll(".sig > dl")) {
  lines.outerHTML = lines.outerHTML.replaceAll("<dd>", '<div style="margin-left: 2rem">').replace(/<(\/?)d[dl]>/g, "<$1div>");
}
for (const name of document.querySelectorAll("td code .pre")) name.innerHTML = name.innerHTML.replace(/[/_.,:]/g, "$&<wbr>");
for (const wide of document.querySelectorAll("pre, .table-wrapper")) wide.tabIndex = 0;
