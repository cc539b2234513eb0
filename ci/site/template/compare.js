// Any two commits, side by side. Selection in the address: #1a2b3c4d..5e6f7a8b
"use strict";
(() => {
  const commits = self.siteData.commits;
  const { benchmarks, setups } = self.siteData.benchmarks;
  const form = document.getElementById("compare");
  const table = document.getElementById("comparison");
  const summary = document.getElementById("compared");

  for (const name of ["from", "to"]) {
    for (const [hash, date, subject] of commits.toReversed()) {
      form.elements[name].add(new Option(`${date} ${hash.slice(0, 8)} ${subject.slice(0, 60)}`.trim(), hash.slice(0, 8)));
    }
  }

  function restore() {
    const [from, to] = location.hash.slice(1).split("..");
    const known = (hash) => commits.some((commit) => commit[0].slice(0, 8) === hash);
    form.elements.from.value = known(from) ? from : (commits.at(-2) ?? commits.at(-1))[0].slice(0, 8);
    form.elements.to.value = known(to) ? to : commits.at(-1)[0].slice(0, 8);
    return show();
  }

  const values = (short) => Site.load(`c/${commits.find((commit) => commit[0].startsWith(short))[0].slice(0, 12)}`);

  async function show() {
    const [from, to] = [form.elements.from.value, form.elements.to.value];
    const [before, after] = await Promise.all([values(from), values(to)]);
    const earlier = new Map(before.map(([benchmark, setup, ...values]) => [`${benchmark} ${setup}`, values]));
    const both = after.filter(([benchmark, setup, value]) => value > 0 && earlier.get(`${benchmark} ${setup}`)?.[0] > 0);
    const rows = both.map(([benchmark, setup, value, low, high]) => {
      const [old, oldLow, oldHigh] = earlier.get(`${benchmark} ${setup}`);
      const scatter = benchmarks[benchmark][3];
      // A tracked number, such as bytes, is exact and has no interval.
      const parts = (low ?? value) > (oldHigh ?? old) || (high ?? value) < (oldLow ?? old);
      const isExact = benchmarks[benchmark][2] !== "seconds" || (low !== null && oldLow !== null);
      const clear = parts && isExact && Math.abs(Math.log(value / old)) > Math.max(3 * Math.SQRT2 * scatter, 0.005);
      return { benchmark: benchmarks[benchmark], setup: setups[setup], old, value, ratio: value / old, clear };
    });
    rows.sort((a, b) => Math.abs(Math.log(b.ratio)) - Math.abs(Math.log(a.ratio)));
    const clear = rows.filter((row) => row.clear);
    const worse = clear.filter((row) => row.ratio > 1).length;
    const missing = new Set([...before, ...after].map(([benchmark]) => benchmark)).size - new Set(both.map(([benchmark]) => benchmark)).size;
    const apart = missing ? ` ${missing} were not measured on the same machine with the same versions at both.` : "";
    summary.textContent = `${rows.length} values compared: ${worse} worse, ${clear.length - worse} better. For ${rows.length - clear.length} nobody can tell.${apart}`;
    fill(form.elements.all.checked ? rows : clear);
  }

  function fill(rows) {
    table.tBodies[0].replaceChildren(...rows.map(line));
    table.hidden = rows.length === 0;
  }

  function line({ benchmark: [name, slug, unit], setup, old, value, ratio, clear }) {
    const row = document.createElement("tr");
    const head = document.createElement("th");
    const link = document.createElement("a");
    Object.assign(link, { href: `b/${slug}.html`, textContent: name });
    head.append(link);
    head.scope = "row";
    row.append(head);
    const cell = (text, kind, sort) => {
      const made = row.insertCell();
      made.textContent = text;
      made.className = kind;
      if (sort !== undefined) made.dataset.sort = sort;
    };
    cell(clear ? (ratio > 1 ? "worse" : "better") : "can't tell", clear ? "" : "quiet");
    cell(Site.percent(ratio), `num ${clear ? (ratio > 1 ? "worse" : "better") : "quiet"}`, ratio);
    cell(Site.quantity(old, unit), "num", old);
    cell(Site.quantity(value, unit), "num", value);
    cell(setup.join("; "), "quiet wrap");
    return row;
  }

  form.addEventListener("change", (event) => {
    if (event.target.name !== "all") history.replaceState(null, "", `#${form.elements.from.value}..${form.elements.to.value}`);
    show();
  });
  addEventListener("hashchange", restore);
  form.hidden = false;
  restore();
})();
