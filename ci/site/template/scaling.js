// The scaling graph of the first page. Selection in the address: #env=ENV&commit=2a7bfce8&y=linear&hide=LIBRARY
"use strict";
(() => {
  const figure = document.getElementById("scaling");
  const [envs, slugs] = [figure.dataset.envs.split("|"), figure.dataset.slugs.split("|")];
  const defaults = { env: envs[0], device: "", commit: "newest", x: "log", y: "log", hide: "" };
  let chosen = { ...defaults };

  const restore = () => {
    chosen = { ...defaults, ...Site.selection() };
    if (!envs.includes(chosen.env)) chosen.env = defaults.env;
    return Site.load(`scaling/${slugs[envs.indexOf(chosen.env)]}`).then(show);
  };
  const set = (change) => {
    Object.assign(chosen, change);
    if (change.env) Object.assign(chosen, { device: "", commit: "newest", hide: "" });
    Site.select(chosen, defaults);
    return Site.load(`scaling/${slugs[envs.indexOf(chosen.env)]}`).then(show);
  };
  const short = (commit) => (commit ? commit.slice(0, 8) + (commit.endsWith("-dirty") ? "+" : "") : "unknown");

  function show(content) {
    const devices = [...new Set(content.rows.map((row) => row[2]))].sort();
    const newest = content.rows.at(-1);
    // A device is named by its place in the list: 1, 2, ...; the newest row's is the default.
    const device = devices[Number(chosen.device) - 1] ?? newest[2];
    const onDevice = content.rows.filter((row) => row[2] === device);
    const commits = [...new Set(onDevice.map((row) => row[3]))].reverse();
    const commit = commits.find((each) => short(each) === chosen.commit);
    const rows = commit === undefined ? onDevice : onDevice.filter((row) => row[3] === commit);
    controls(devices, device, commits, commit);
    draw(content, rows, device);
  }

  function controls(devices, device, commits, commit) {
    const box = figure.querySelector(".controls");
    const focused = [...box.querySelectorAll("select")].indexOf(document.activeElement);
    const axis = [["log", "logarithmic"], ["linear", "linear"]];
    const dated = [["newest", "the newest of each size"], ...commits.map((each) => [short(each), short(each)])];
    box.replaceChildren(
      Site.choice("environment", envs.map((env) => [env, env]), chosen.env, (env) => set({ env })),
      Site.choice("device", devices.map((name, place) => [String(place + 1), name]), String(devices.indexOf(device) + 1), (value) => set({ device: value, commit: "newest" })),
      Site.choice("commit", dated, commit === undefined ? "newest" : short(commit), (value) => set({ commit: value })),
      Site.choice("x axis", axis, chosen.x, (x) => set({ x })),
      Site.choice("y axis", axis, chosen.y, (y) => set({ y })),
    );
    box.hidden = false;
    box.querySelectorAll("select")[focused]?.focus();
  }

  function draw(content, rows, device) {
    const sizes = [...new Set(rows.map((row) => row[1]))].sort((a, b) => a - b);
    const newest = new Map(rows.map((row) => [`${row[0]} ${row[1]}`, row])); // the rows come oldest first
    const series = content.libraries.filter(([name]) => rows.some((row) => row[0] === name)).map(([name, label, light, dark, dash]) => {
      const of = sizes.map((size) => newest.get(`${name} ${size}`));
      const column = (place) => of.map((row) => row?.[place] ?? null);
      return { name, label, colours: [light, dark], dash, rows: of, y: column(5), low: column(6), high: column(7) };
    });
    const hidden = new Set(chosen.hide.split(",").filter((name) => series.some((each) => each.name === name)));
    const rate = (value) => Site.quantity(value, "steps/s");
    figure.querySelector(".readout").textContent = `${chosen.env} on ${device}; medians and 95% intervals. Point at a size or use the arrow keys to read its numbers.`;
    Charts.draw({
      figure, series, hidden, x: sizes, lines: true, xLog: chosen.x !== "linear", yLog: chosen.y !== "linear", yZero: chosen.y === "linear",
      xText: (value) => (figure.clientWidth < 600 ? rate(value).replace(" ", "") : value.toLocaleString("en")), yText: rate, xSpace: 60,
      read: (index, visible) => [
        Charts.bold(`${sizes[index].toLocaleString("en")} environment${sizes[index] === 1 ? "" : "s"}`), ": ",
        visible.filter((each) => each.rows[index]).map((each) => `${each.label} ${rate(each.y[index])} (${rate(each.low[index])} to ${rate(each.high[index])}; ${short(each.rows[index][3])})`).join("; "),
      ],
    });
    Charts.legend(figure.querySelector(".legend"), series, hidden, () => {
      chosen.hide = [...hidden].sort().join(",");
      Site.select(chosen, defaults);
      draw(content, rows, device);
    });
  }

  addEventListener("hashchange", restore);
  restore().then(() => Charts.follow(figure, restore));
})();
