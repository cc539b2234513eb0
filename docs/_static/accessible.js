// What Sphinx and the theme leave out: a level for each caption, a name for each sidebar, no heads of
// tables without words, a heading for the search, lines of a signature that are no list, places to
// break names in tables, tables that fit a phone, and a way to scroll what is wide by keyboard.
"use strict";
for (const caption of document.querySelectorAll('[role="heading"]:not([aria-level])')) caption.ariaLevel = "2";
for (const [kind, name] of [["sidebar-drawer", "Pages"], ["toc-drawer", "On this page"]]) {
  document.querySelector(`aside.${kind}`)?.setAttribute("aria-label", name);
}
for (const head of document.querySelectorAll("table.docutils thead")) {
  if (!head.textContent.trim()) head.remove();
}
document.getElementById("search-results")?.insertAdjacentHTML("beforebegin", "<h1>Search</h1>");
for (const lines of document.querySelectorAll(".sig > dl")) {
  lines.outerHTML = lines.outerHTML.replaceAll("<dd>", '<div style="margin-left: 2rem">').replace(/<(\/?)d[dl]>/g, "<$1div>");
}
for (const name of document.querySelectorAll("td code .pre")) name.innerHTML = name.innerHTML.replace(/[/_.,:]/g, "$&<wbr>");
for (const wide of document.querySelectorAll("pre, .table-wrapper")) wide.tabIndex = 0;
// phone.css stacks the cells of these tables, which keep their roles and get their headings.
for (const table of document.querySelectorAll(".table-wrapper table:has(td code)")) {
  const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent);
  if (heads.length < 3) continue;
  table.classList.add("stacked");
  for (const [part, role] of [["thead, tbody", "rowgroup"], ["tr", "row"], ["th", "columnheader"], ["td", "cell"]]) {
    for (const each of table.querySelectorAll(part)) each.role = role;
  }
  table.role = "table";
  for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, column) => (cell.dataset.label = cell.textContent.trim() && heads[column]));
}
