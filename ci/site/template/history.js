// A benchmark's history. Selection in the address: #y=zero&machine=2
"use strict";
(() => {
  const figure = document.getElementById("history");
  const content = self.siteData[`b/${figure.dataset.benchmark}`];
  const commits = self.siteData.commits;
  const machines = [...new Set(content.setups.map((setup) => setup[0]))];
  const defaults = { y: "fit", machine: "all" };
  let chosen = { ...defaults, ...Site.selection() };

  function show() {
    const box = figure.querySelector(".controls");
    const focused = [...box.querySelectorAll("select")].indexOf(document.activeElement);
    const scales = [["fit", "linear, fitted"], ["zero", "linear, from zero"], ["log", "logarithmic"]];
    const named = machines.map((name, place) => [String(place + 1), name]);
    const set = (change) => {
      Object.assign(chosen, change);
      Site.select(chosen, defaults);
      show();
    };
    box.replaceChildren(Site.choice("y axis", scales, chosen.y, (y) => set({ y })));
    if (machines.length > 1) box.append(Site.choice("machine", [["all", "all of them"], ...named], chosen.machine, (machine) => set({ machine })));
    box.hidden = false;
    box.querySelectorAll("select")[focused]?.focus();
    draw();
  }

  function draw() {
    const wanted = machines[Number(chosen.machine) - 1];
    const shown = machines.filter((name) => !wanted || name === wanted);
    const of = (setup) => content.setups[setup][0];
    const points = content.points.filter((point) => shown.includes(of(point[4])));
    const x = [...new Set(points.map((point) => point[0]))].sort((a, b) => a - b);
    const places = new Map(x.map((commit, place) => [commit, place]));
    const series = shown.map((name) => {
      const columns = [1, 2, 3].map(() => x.map(() => null));
      const setups = x.map(() => null);
      for (const point of points.filter((point) => of(point[4]) === name)) {
        [1, 2, 3].forEach((column) => (columns[column - 1][places.get(point[0])] = point[column]));
        setups[places.get(point[0])] = point[4];
      }
      const colours = content.colours[machines.indexOf(name)];
      return { name, colours, y: columns[0], low: columns[1], high: columns[2], setups };
    });
    const scaled = { yLog: chosen.y === "log", yLogFit: chosen.y === "log", yZero: chosen.y === "zero" };
    Charts.draw({
      figure, series, x, hidden: new Set(), lines: false, zoom: true, ...scaled,
      xText: (value) => commits[value]?.[1] ?? "", yText: (value) => Site.quantity(value, content.unit, 4), xSpace: 90,
      underlay: (u) => underlay(u, shown),
      read: (index) => readout(x[index], series.filter((each) => each.y[index] !== null), index),
    });
  }

  // Bands where machine or versions changed, levels, and rules where a level changed.
  function underlay(u, shown) {
    const { ctx } = u;
    const { left, top, width, height } = u.bbox;
    const at = (commit) => u.valToPos(commit - 0.5, "x", true);
    const first = new Map();
    for (const [setup, from] of content.levels) {
      if (shown.includes(content.setups[setup][0])) first.set(setup, Math.min(from, first.get(setup) ?? Infinity));
    }
    const starts = [...first.values()].sort((a, b) => a - b);
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, width, height);
    ctx.clip();
    ctx.fillStyle = Site.colour("raised");
    starts.forEach((start, place) => {
      const end = starts[place + 1] === undefined ? left + width : at(starts[place + 1]);
      if (place % 2) ctx.fillRect(at(start), top, end - at(start), height);
    });
    const rule = (x, colour, dash) => {
      ctx.strokeStyle = colour;
      ctx.lineWidth = 1.5 * devicePixelRatio;
      ctx.setLineDash(dash.map((length) => length * devicePixelRatio));
      ctx.beginPath();
      const middle = Math.floor(x) + 0.5; // of a pixel, so that the rule is sharp
      ctx.moveTo(middle, top);
      ctx.lineTo(middle, top + height);
      ctx.stroke();
    };
    starts.slice(1).forEach((start) => rule(at(start), Site.colour("quiet"), [4, 4]));
    for (const [commit, ratio, , , , setup] of content.changes) {
      if (shown.includes(content.setups[setup][0])) rule(at(commit), Site.colour(ratio > 1 ? "bad" : "good"), []);
    }
    ctx.setLineDash([]);
    ctx.strokeStyle = Site.colour("ink");
    ctx.lineWidth = 2 * devicePixelRatio;
    for (const [setup, from, to, middle] of content.levels.filter(([setup]) => shown.includes(content.setups[setup][0]))) {
      const y = u.valToPos(middle, "y", true);
      ctx.beginPath();
      ctx.moveTo(at(from), y);
      ctx.lineTo(at(to + 1), y);
      ctx.stroke();
    }
    ctx.restore();
  }

  function readout(commit, series, index) {
    const [hash, date, subject] = commits[commit];
    const nodes = [Charts.bold(`${date} ${hash.slice(0, 8)}`), subject ? ` ${subject}. ` : ": "];
    const value = (number) => Site.quantity(number, content.unit);
    nodes.push(series.map((each) => {
      const interval = each.low[index] === null || each.high[index] === null ? "" : ` (${value(each.low[index])} to ${value(each.high[index])})`;
      const [machine, versions] = content.setups[each.setups[index]];
      return `${value(each.y[index])}${interval} on ${machine}; ${versions}`;
    }).join("; "));
    const changed = content.changes.filter((change) => change[0] === commit);
    changed.forEach(([, ratio, low, high, word]) => nodes.push(". ", Charts.bold(`From here on ${Site.percent(ratio)} ${word}`), ` (${Site.percent(low)} to ${Site.percent(high)})`));
    return nodes;
  }

  addEventListener("hashchange", () => {
    chosen = { ...defaults, ...Site.selection() };
    show();
  });
  show();
  Charts.follow(figure, draw);
})();
