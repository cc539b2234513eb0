// The scaling graph of the first page. Selection in the address: #rate=AGENT&env=ENV&commit=2a7bfce8&y=linear&hide=LIBRARY
"use strict";
(() => {
  const figure = document.getElementById("scaling");
  const [envs, slugs] = [figure.dataset.envs.split("|"), figure.dataset.slugs.split("|")];
  // The kinds of rate that every project should measure. A chart never mixes two.
  const expected = [["random", "random actions"], ["mlp-64-64", "policy network 64 × 64"], ["mlp-1024-1024", "policy network 1,024 × 1,024"]];
  const defaults = { env: envs[0], rate: "random", device: "", commit: "newest", x: "log", y: "log", hide: "" };
  let chosen = { ...defaults };

  const restore = () => {
    chosen = { ...defaults, ...Site.selection() };
    if (!envs.includes(chosen.env)) chosen.env = defaults.env;
    return Site.load(`scaling/${slugs[envs.indexOf(chosen.env)]}`).then(show);
  };
  const set = (change) => {
    Object.assign(chosen, change);
    if (change.env) chosen.rate = defaults.rate;
    if (change.env || change.rate) Object.assign(chosen, { device: "", commit: "newest", hide: "" });
    Site.select(chosen, defaults);
    return Site.load(`scaling/${slugs[envs.indexOf(chosen.env)]}`).then(show);
  };
  const short = (commit) => (commit ? commit.slice(0, 8) + (commit.endsWith("-dirty") ? "+" : "") : "unknown");

  function show(content) {
    const measured = new Map(content.kinds);
    if (!measured.has(chosen.rate)) [chosen.rate] = measured.keys();
    const all = content.rows.map(([library, agent, device, commit, run, size, ...rates]) => ({ library, agent, device, commit, run, size, rates }));
    const rows = all.filter((row) => row.agent === chosen.rate);
    const devices = [...new Set(rows.map((row) => row.device))].sort();
    // A device is named by its place in the list: 1, 2, ...; the newest row's is the default.
    const device = devices[Number(chosen.device) - 1] ?? rows.at(-1).device;
    const onDevice = rows.filter((row) => row.device === device);
    const commits = [...new Set(onDevice.map((row) => row.commit))].reverse();
    const commit = commits.find((each) => short(each) === chosen.commit);
    controls(kinds(measured), devices, device, commits, commit);
    draw(content, commit === undefined ? onDevice : onDevice.filter((row) => row.commit === commit), device);
  }

  // What was measured, and what is missing, which nobody can choose.
  function kinds(measured) {
    const others = [...measured].filter(([agent]) => !expected.some(([each]) => each === agent));
    const trainings = others.length ? others : [["", "whole training"]];
    return [...expected, ...trainings].map(([agent, text]) => [agent, measured.has(agent) ? text : `${text}: not measured yet`, !measured.has(agent)]);
  }

  // All points of a size are of one run, so that they can be compared: the newest with the most libraries.
  function widest(rows) {
    const runs = Map.groupBy(rows, (row) => row.run);
    const count = (run) => new Set(runs.get(run).map((row) => row.library)).size;
    return runs.get([...runs.keys()].sort((a, b) => count(b) - count(a) || b.localeCompare(a))[0]);
  }

  function controls(kinds, devices, device, commits, commit) {
    const box = figure.querySelector(".controls");
    const focused = [...box.querySelectorAll("select")].indexOf(document.activeElement);
    const axis = [["log", "logarithmic"], ["linear", "linear"]];
    const dated = [["newest", "the widest run of each size"], ...commits.map((each) => [short(each), short(each)])];
    const more = box.querySelector("details") ?? document.createElement("details");
    const summary = document.createElement("summary");
    summary.textContent = "More choices";
    const named = devices.map((name, place) => [String(place + 1), name]);
    if (devices.every((name) => name.startsWith("cpu:"))) named.push(["", "GPU: not measured yet", true]);
    more.replaceChildren(
      summary,
      Site.choice("commit", dated, commit === undefined ? "newest" : short(commit), (value) => set({ commit: value })),
      Site.choice("x axis", axis, chosen.x, (x) => set({ x })),
      Site.choice("y axis", axis, chosen.y, (y) => set({ y })),
    );
    box.replaceChildren(
      Site.choice("rate", kinds, chosen.rate, (rate) => set({ rate })),
      Site.choice("environment", envs.map((env) => [env, env]), chosen.env, (env) => set({ env })),
      Site.choice("device", named, String(devices.indexOf(device) + 1), (value) => set({ device: value, commit: "newest" })),
      more,
    );
    box.hidden = false;
    box.querySelectorAll("select")[focused]?.focus();
  }

  function draw(content, rows, device) {
    const bySize = new Map([...Map.groupBy(rows, (row) => row.size)].map(([size, those]) => [size, widest(those)]));
    const sizes = [...bySize.keys()].sort((a, b) => a - b);
    const shown = [...bySize.values()].flat();
    const libraries = content.libraries.filter(([name]) => shown.some((row) => row.library === name));
    const series = libraries.map(([name, label, light, dark, dash, path]) => {
      const of = sizes.map((size) => bySize.get(size).find((row) => row.library === name));
      const column = (place) => of.map((row) => row?.rates[place] ?? null);
      return { name, label, colours: [light, dark], dash, path, rows: of, y: column(0), low: column(1), high: column(2) };
    });
    // A library under other options is hidden until you ask for it.
    const variants = libraries.filter((library) => library[6]).map(([name]) => name).sort().join(",");
    const wanted = chosen.hide === "" ? variants : chosen.hide;
    const hidden = new Set(wanted.split(",").filter((name) => series.some((each) => each.name === name)));
    const rate = (value) => Site.quantity(value, "steps/s");
    const said = content.said[`${chosen.rate} ${device}`] ?? "";
    const idle = `${said} Medians and 95% intervals on ${device}. Point at a size, tap it or use the arrow keys.`;
    figure.querySelector(".readout").textContent = idle;
    Charts.draw({
      figure, series, hidden, x: sizes, lines: true, xLog: chosen.x !== "linear", yLog: chosen.y !== "linear", yZero: chosen.y === "linear",
      xText: (value) => (figure.clientWidth < 600 ? rate(value).replace(" ", "") : value.toLocaleString("en")), yText: rate, xSpace: 60,
      read: (index, visible) => [
        Charts.bold(`${sizes[index].toLocaleString("en")} environment${sizes[index] === 1 ? "" : "s"}`), ": ",
        visible.filter((each) => each.rows[index]).map((each) => `${each.label} ${rate(each.y[index])} (${rate(each.low[index])} to ${rate(each.high[index])})`).join("; "),
        `. Commit ${short(bySize.get(sizes[index])[0].commit)}.`,
      ],
    });
    Charts.legend(figure.querySelector(".legend"), series, hidden, () => {
      const now = [...hidden].sort().join(",");
      chosen.hide = now === variants ? "" : now || "none";
      Site.select(chosen, defaults);
      draw(content, rows, device);
    });
  }

  addEventListener("hashchange", restore);
  restore().then(() => Charts.follow(figure, restore));
})();
