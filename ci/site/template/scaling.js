// The graph of the first page, and what it is about. Selection in the address: #rate=AGENT&env=ENV&device=2&y=linear&hide=LIBRARY
"use strict";
(() => {
  const figure = document.getElementById("scaling");
  const charts = JSON.parse(figure.dataset.charts);
  const unique = (key, from = charts) => [...new Set(from.map((chart) => chart[key]))];
  // The kinds of rate that every project should measure. A chart never mixes two.
  const expected = [["random", "random actions"], ["mlp-64-64", "policy network 64 × 64"], ["mlp-1024-1024", "policy network 1,024 × 1,024"]];
  const defaults = { env: charts[0].env, rate: charts[0].agent, device: "1", x: "log", y: "log", hide: "" };
  let chosen = { ...defaults };

  const restore = () => {
    chosen = { ...defaults, ...Site.selection() };
    show();
  };
  const set = (change) => {
    Object.assign(chosen, change, change.x || change.y || change.hide !== undefined ? {} : { hide: "" });
    show();
    Site.select(chosen, defaults);
  };

  // Everything on the page that is about one choice follows it: the headline, the graph and both tables.
  function show() {
    const ofEnv = charts.filter((chart) => chart.env === chosen.env);
    if (!ofEnv.length) return set(defaults);
    if (!ofEnv.some((chart) => chart.agent === chosen.rate)) chosen.rate = ofEnv[0].agent;
    const devices = ofEnv.filter((chart) => chart.agent === chosen.rate);
    const chart = devices[Number(chosen.device) - 1] ?? devices[0];
    const place = String(charts.indexOf(chart));
    for (const each of document.querySelectorAll("[data-choice]")) each.hidden = each.dataset.choice !== place;
    controls(ofEnv, devices, chart);
    draw(chart);
  }

  // What was measured, and what is missing, which nobody can choose.
  function kinds(ofEnv) {
    const measured = new Map(ofEnv.map((chart) => [chart.agent, chart.kind]));
    const others = [...measured].filter(([agent]) => !expected.some(([each]) => each === agent));
    const trainings = others.length ? others : [["", "whole training"]];
    return [...expected, ...trainings].map(([agent, text]) => [agent, measured.has(agent) ? text : `${text}: not measured yet`, !measured.has(agent)]);
  }

  function controls(ofEnv, devices, chart) {
    const box = figure.querySelector(".controls");
    const focused = [...box.querySelectorAll("select")].indexOf(document.activeElement);
    const axis = [["log", "logarithmic"], ["linear", "linear"]];
    const more = box.querySelector("details") ?? document.createElement("details");
    const summary = document.createElement("summary");
    summary.textContent = "More choices";
    const named = devices.map((each, place) => [String(place + 1), each.device]);
    if (devices.every((each) => each.device.startsWith("cpu:"))) named.push(["", "GPU: not measured yet", true]);
    more.replaceChildren(summary, Site.choice("x axis", axis, chosen.x, (x) => set({ x })), Site.choice("y axis", axis, chosen.y, (y) => set({ y })));
    box.replaceChildren(
      Site.choice("rate", kinds(ofEnv), chosen.rate, (rate) => set({ rate, device: "1" })),
      Site.choice("environment", unique("env").map((env) => [env, env]), chosen.env, (env) => set({ env, rate: defaults.rate, device: "1" })),
      Site.choice("device", named, String(devices.indexOf(chart) + 1), (device) => set({ device })),
      more,
    );
    box.hidden = false;
    box.querySelectorAll("select")[focused]?.focus();
  }

  function draw(chart) {
    const { sizes } = chart;
    const series = chart.lines.map(([name, label, variant, light, dark, dash, path, points]) => {
      const of = sizes.map((size) => points.find((point) => point[0] === size));
      const column = (place) => of.map((point) => point?.[place] ?? null);
      return { name, label, variant, colours: [light, dark], dash, path, points: of, y: column(1), low: column(2), high: column(3) };
    });
    // Ours under other options is hidden until you ask for it.
    const variants = series.filter((each) => each.variant).map((each) => each.name).sort().join(",");
    const wanted = chosen.hide === "" ? variants : chosen.hide;
    const hidden = new Set(wanted.split(",").filter((name) => series.some((each) => each.name === name)));
    const rate = (value) => Site.quantity(value, "steps/s");
    const chunk = (point) => (point[4] ? `, chunk ${Number(point[4]).toLocaleString("en")}` : "");
    figure.querySelector(".readout").textContent = `Steps per second by environments, each library at its best chunk, ${chart.kind}. Medians and 95% intervals on ${chart.device}. Point at a size, tap it or use the arrow keys.`;
    Charts.draw({
      figure, series, hidden, x: sizes, lines: true, xLog: chosen.x !== "linear", yLog: chosen.y !== "linear", yZero: chosen.y === "linear",
      xText: (value) => (figure.clientWidth < 600 ? rate(value).replace(" ", "") : value.toLocaleString("en")), yText: rate, xSpace: 60,
      read: (index, visible) => [
        Charts.bold(`${sizes[index].toLocaleString("en")} environment${sizes[index] === 1 ? "" : "s"}`), ": ",
        visible.filter((each) => each.points[index]).map((each) => `${each.label} ${rate(each.y[index])} (${rate(each.low[index])} to ${rate(each.high[index])}${chunk(each.points[index])})`).join("; "), ".",
      ],
    });
    Charts.legend(figure.querySelector(".legend"), series, hidden, () => {
      const now = [...hidden].sort().join(",");
      set({ hide: now === variants ? "" : now || "none" });
    });
  }

  addEventListener("hashchange", restore);
  restore();
  Charts.follow(figure, show);
})();
