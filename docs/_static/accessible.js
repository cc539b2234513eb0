// What Sphinx and the theme leave out: a level for each caption, a name for each sidebar, and a way to
// scroll wide code by keyboard.
"use strict";
for (const caption of document.querySelectorAll('[role="heading"]:not([aria-level])')) caption.ariaLevel = "2";
for (const [kind, name] of [["sidebar-drawer", "Pages"], ["toc-drawer", "On this page"]]) {
  document.querySelector(`aside.${kind}`)?.setAttribute("aria-label", name);
}
for (const code of document.querySelectorAll("pre")) code.tabIndex = 0;
