// Draws every chart with script: uPlot with our axes, intervals, a legend of buttons and a cursor for keys.
"use strict";

const Charts = {
  // Options: figure, series [{name, label, colours: [light, dark], dash, path, y, low, high}], x, xLog, yLog, yZero, xValues, yText,
  // hidden (names), underlay(u), read(index, visible) -> nodes of the readout, onToggle(hiddenNames), lines (bool).
  draw(options) {
    const plot = options.figure.querySelector(".plot");
    const visible = options.series.filter((series) => !options.hidden.has(series.name));
    const width = Math.max(plot.clientWidth, 240);
    const chart = new uPlot(
      {
        width,
        height: Math.round(Math.min(Math.max(width * 0.42, 236), 400)),
        legend: { show: false },
        // half of the last label, which is as wide as the space of a label allows
        padding: [12, options.figure.clientWidth < 600 ? options.xSpace * 0.4 : 36, 0, 0],
        cursor: { points: { size: 9 }, drag: { x: options.zoom ?? false, y: false }, y: false },
        scales: { x: Charts.xScale(options), y: Charts.yScale(options, visible) },
        axes: Charts.axes(options),
        series: [{}, ...options.series.map((series) => Charts.seriesOf(series, options))],
        hooks: {
          drawClear: [(u) => options.underlay?.(u)],
          draw: [(u) => Charts.intervals(u, options), (u) => Charts.markers(u, options), () => performance.mark("chart-drawn")],
          setCursor: [(u) => Charts.read(u, options)],
        },
      },
      [options.x, ...options.series.map((series) => series.y)],
      (u, init) => {
        plot.replaceChildren(u.root);
        init();
      },
    );
    Charts.keys(plot, chart, options);
    return chart;
  },

  seriesOf(series, options) {
    const colour = series.colours[Site.dark.matches ? 1 : 0];
    return {
      show: !options.hidden.has(series.name),
      stroke: options.lines ? colour : "transparent",
      fill: "transparent",
      width: 2,
      dash: series.dash ? series.dash.split(" ").map(Number) : undefined,
      spanGaps: true,
      points: { show: !series.path, size: options.lines ? 7 : 5, stroke: colour, fill: colour, width: 0 },
    };
  },

  xScale(options) {
    const { x } = options;
    const pad = options.xLog ? 1.35 : (x.at(-1) - x[0] || 2) * 0.02;
    const whole = options.xLog ? [x[0] / pad, x.at(-1) * pad] : [x[0] - pad, x.at(-1) + pad];
    // Whole at first; a drag zooms in, a double click back out.
    return { time: false, distr: options.xLog ? 3 : 1, range: (u, low, high) => (options.zoom && (low > x[0] || high < x.at(-1)) ? [low, high] : whole) };
  },

  yScale(options, visible) {
    // Intervals of dots reach far where a run was short: they are drawn, but don't decide the scale.
    const ends = (series) => (options.lines ? [...series.low, ...series.high] : []);
    const values = visible.flatMap((series) => [...series.y, ...ends(series)]).filter((value) => value !== null && (!options.yLog || value > 0));
    const low = values.length ? Math.min(...values) : 1;
    const high = values.length ? Math.max(...values) : 10;
    let range = [low - (high - low || Math.abs(high) || 1) * 0.06, high + (high - low || Math.abs(high) || 1) * 0.06];
    if (options.yLog) range = [10 ** Math.floor(Math.log10(low)), 10 ** Math.ceil(Math.log10(high * 1.05))];
    if (options.yLogFit) range = [low / 1.1, high * 1.1];
    if (options.yZero) range = [Math.min(0, low), high * 1.06];
    return { distr: options.yLog ? 3 : 1, range: () => range };
  },

  axes(options) {
    const [ink, rule] = [Site.colour("quiet"), Site.colour("rule")];
    const font = `12px ${Site.colour("sans")}`;
    const common = { stroke: ink, font, ticks: { show: false }, grid: { stroke: rule, width: 1 } };
    const decades = (u, splits) => splits.map((value) => (Math.abs(Math.log10(value) % 1) < 1e-9 ? value : null));
    return [
      { ...common, size: 32, grid: { show: false }, values: (u, splits) => splits.map((value) => (value === null ? "" : options.xText(value))), ...(options.xLog && { filter: decades }), ...(options.xSpace && { space: options.xSpace }) },
      { ...common, size: 66, values: (u, splits) => splits.map((value) => (value === null ? "" : options.yText(value))), ...(options.yLog && !options.yLogFit && { filter: decades, grid: { ...common.grid, filter: decades } }) },
    ];
  },

  intervals(u, options) {
    const { ctx } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    ctx.clip();
    options.series.forEach((series, place) => {
      if (!u.series[place + 1].show || !series.low) return;
      ctx.strokeStyle = series.colours[Site.dark.matches ? 1 : 0];
      ctx.globalAlpha = options.lines ? 0.9 : 0.3;
      ctx.lineWidth = (options.lines ? 2 : 1) * devicePixelRatio;
      ctx.beginPath();
      series.low.forEach((low, at) => {
        if (low === null || series.high[at] === null) return;
        const x = u.valToPos(u.data[0][at], "x", true);
        ctx.moveTo(x, u.valToPos(low, "y", true));
        ctx.lineTo(x, u.valToPos(series.high[at], "y", true));
      });
      ctx.stroke();
    });
    ctx.restore();
  },

  // A marker of its own for each series: in grey its colour says nothing.
  markers(u, options) {
    const { ctx } = u;
    options.series.forEach((series, place) => {
      if (!u.series[place + 1].show || !series.path) return;
      ctx.fillStyle = series.colours[Site.dark.matches ? 1 : 0];
      series.y.forEach((y, at) => {
        if (y === null) return;
        ctx.save();
        ctx.translate(u.valToPos(u.data[0][at], "x", true), u.valToPos(y, "y", true));
        ctx.scale(devicePixelRatio, devicePixelRatio);
        ctx.fill(new Path2D(series.path));
        ctx.restore();
      });
    });
  },

  read(u, options) {
    const readout = options.figure.querySelector(".readout");
    options.idle ??= [...readout.childNodes];
    const { idx } = u.cursor;
    const shown = options.series.filter((series, place) => u.series[place + 1].show);
    readout.replaceChildren(...(idx === null || idx === undefined ? options.idle : options.read(idx, shown)));
  },

  keys(plot, chart, options) {
    plot.tabIndex = 0;
    plot.setAttribute("role", "group");
    plot.setAttribute("aria-label", "Chart. The arrow keys move the cursor. The numbers under it are written below.");
    plot.onkeydown = (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      const last = options.x.length - 1;
      const index = Math.min(Math.max((chart.cursor.idx ?? (step > 0 ? -1 : last + 1)) + step, 0), last);
      chart.setCursor({ left: chart.valToPos(options.x[index], "x"), top: chart.over.clientHeight / 2 });
    };
  },

  // Buttons that hide and show a series. Its colour belongs to its name, so nothing else changes.
  legend(box, series, hidden, onToggle) {
    box.replaceChildren(
      ...series.map(({ name, label, colours, dash, path }) => {
        const button = document.createElement("button");
        button.type = "button";
        button.className = "key";
        button.textContent = label;
        button.style.setProperty("--light", colours[0]);
        button.style.setProperty("--dark", colours[1]);
        button.dataset.dash = dash;
        // the path is one of our own, from the data file
        button.insertAdjacentHTML("afterbegin", `<svg viewBox="-5 -5 10 10" aria-hidden="true"><path d="${path}"/></svg>`);
        button.setAttribute("aria-pressed", String(!hidden.has(name)));
        button.addEventListener("click", () => {
          if (!hidden.delete(name)) hidden.add(name);
          button.setAttribute("aria-pressed", String(!hidden.has(name)));
          onToggle();
        });
        return button;
      }),
    );
  },

  // Draw again where the width or the colours change.
  follow(figure, redraw) {
    let width = figure.clientWidth;
    new ResizeObserver(() => {
      if (figure.clientWidth === width) return;
      width = figure.clientWidth;
      redraw();
    }).observe(figure);
    Site.dark.addEventListener("change", redraw);
  },

  bold(text) {
    const node = document.createElement("b");
    node.textContent = text;
    return node;
  },
};
