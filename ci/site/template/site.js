// What every page shares: the selection in the address, data on demand, sorted tables, formatted numbers.
"use strict";
const Site = {
  root: document.body.dataset.root,
  dark: matchMedia("(prefers-color-scheme: dark)"),

  // Data files are scripts that assign to one global: a page opened from a folder may not fetch.
  load(name) {
    if (self.siteData?.[name]) return Promise.resolve(self.siteData[name]);
    return new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = `${Site.root}data/${name}.js`;
      script.onload = () => resolve(self.siteData[name]);
      script.onerror = () => reject(new Error(`${script.src} is missing`));
      document.head.append(script);
    });
  },

  // The fragment holds what differs from the defaults, so that an address stays short: #env=ENV&y=linear
  selection() {
    return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  },
  select(chosen, defaults) {
    const parts = Object.entries(chosen).filter(([key, value]) => value && value !== defaults[key]);
    const text = parts.map(([key, value]) => `${key}=${encodeURIComponent(value).replaceAll("%2C", ",").replaceAll("%3A", ":")}`).join("&");
    history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  },

  colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  },

  scaled(value, units, digits = 3) {
    const [size, name] = units.find(([size]) => Math.abs(value) >= size * 0.9995) ?? units.at(-1);
    const scaled = value / size;
    const suffix = name ? ` ${name}` : "";
    return Number(scaled.toPrecision(digits)).toLocaleString("en") + suffix;
  },
  quantity(value, unit, digits = 3) {
    if (value === null || value === undefined) return "";
    if (unit === "seconds") return Site.scaled(value, [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]], digits);
    if (unit === "bytes") return Site.scaled(value, [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]], digits);
    return unit === "steps/s" ? Site.scaled(value, [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]], digits) : `${Number(value.toPrecision(4))} ${unit}`.trim();
  },
  percent(ratio) {
    if (ratio >= 2 || ratio <= 0.5) return `${ratio.toFixed(2)}×`;
    return `${ratio < 1 ? "−" : "+"}${Math.abs((ratio - 1) * 100).toFixed(1)}%`;
  },

  choice(label, options, value, onChange) {
    const select = document.createElement("select");
    for (const [key, text, isMissing] of options) {
      const option = new Option(text, key, false, key === value);
      option.disabled = Boolean(isMissing);
      select.add(option);
    }
    select.addEventListener("change", () => onChange(select.value));
    // a label that wraps is named by its options too
    select.setAttribute("aria-label", label);
    const wrapped = document.createElement("label");
    wrapped.append(label, select);
    return wrapped;
  },
};

// A page that was fresh when it was built may be read a year later.
for (const time of document.querySelectorAll("time[data-measured]")) {
  const age = (Date.now() - Date.parse(time.dataset.measured)) / 86_400_000;
  // The date has no hour, so all of that day is older than 30 days only after 31.
  if (age > 31 && !time.classList.contains("old")) {
    time.classList.add("old");
    time.insertAdjacentHTML("afterend", ' <span class="tag old">old</span>');
  }
}

for (const command of document.querySelectorAll(".command")) {
  if (!navigator.clipboard) continue;
  const button = document.createElement("button");
  button.className = "copy";
  button.textContent = "copy";
  button.setAttribute("aria-label", `copy ${command.textContent}`);
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(command.querySelector("code").textContent);
    button.textContent = "copied";
  });
  command.append(button);
}

// Wide tables scroll inside their box, by keyboard too.
for (const box of document.querySelectorAll(".scroll")) {
  if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
}

function sortable(table) {
  const body = table.tBodies[0];
  table.querySelectorAll("thead th").forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      table.querySelectorAll("th[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      // What is behind a row stays behind it.
      const behind = new Map([...body.rows].filter((row) => row.className === "evidence").map((row) => [row.id, row]));
      const key = (row) => row.cells[column].dataset.sort ?? row.cells[column].textContent.trim();
      const order = (a, b) => (Number.isNaN(a - b) ? a.localeCompare(b, "en", { numeric: true }) : a - b);
      const rows = [...body.rows].filter((row) => row.className !== "evidence").sort((a, b) => order(key(a), key(b)) * (down ? -1 : 1));
      body.append(...rows.flatMap((row) => [row, behind.get(row.id.replace(/-row$/, ""))].filter(Boolean)));
    });
  });
}
document.querySelectorAll("table.sortable").forEach(sortable);

for (const input of document.querySelectorAll("input[data-filter]")) {
  input.closest(".filter").hidden = false;
  input.addEventListener("input", () => {
    const wanted = input.value.toLowerCase();
    for (const row of document.getElementById(input.dataset.filter).tBodies[0].rows) {
      if (row.className === "evidence") continue;
      row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
    }
    const shown = document.querySelector(`#${input.dataset.filter} tbody tr:not([hidden])`);
    const none = document.getElementById(`${input.dataset.filter}-none`);
    if (none) none.hidden = shown;
  });
}
